"""Artifact folders and wheels made by hand: an index of the real form, without binaries."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

from gen.build import index

MEMBER = "mine/artifacts/index.json"
COMPILERS = {"c++": "g++ 12.2.0", "nvcc": "13.0.88", "cutlass": "4.2.0"}
BACKENDS = {"cpu": "cpu", "sm_90a": "cuda", "metal3.1": "metal"}


def cell(kernel: str, target: str = "cpu", dtype: str = "f32", **changes: Any) -> dict[str, Any]:
    """A record with one binary of 100 bytes, whose sha256 is that of `code`; `size`, `source`, `evidence`,
    `grid` and `kind` as told. size=0: emitted only."""
    size, code = changes.get("size", 100), changes.get("code", f"{kernel} {target}")
    binary = {"file": f"bin/{kernel}/{target}", "size": size, "sha256": _sha(code), "isa": ""}
    stub = {"file": f"stub/{kernel}/{target}.so", "size": 7, "sha256": _sha(code + "stub")}
    cutlass = changes.get("kind", "dsl") == "cutlass"
    return {
        "key": f"{kernel}/-/{dtype}/{target}",
        "kernel": kernel,
        "dtype": dtype,
        "target": target,
        "files": [binary] if size else [],
        **({"stub": {**stub, "source": "s", "source_sha256": _sha("s")}} if cutlass else {}),
        "source": f"src/{kernel}/{target}",
        "source_sha256": _sha(changes.get("source", kernel)),
        "source_kind": changes.get("kind", "dsl"),
        "evidence": changes.get("evidence", ["emitted", "compiled"]),
        "entries": [{"symbol": kernel, "grid": changes.get("grid", 1)}],
    }


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def text(*cells: dict[str, Any], compilers: dict[str, str] = COMPILERS) -> str:
    """The index of these cells."""
    targets = sorted({each["target"] for each in cells})
    kernels = sorted({each["kernel"] for each in cells})
    sections: dict[str, list[dict[str, Any]]] = {
        "targets": [{"key": target, "backend": BACKENDS[target]} for target in targets],
        "kernels": [{"key": kernel} for kernel in kernels],
        "formats": [],
        "cells": list(cells),
    }
    return "".join(index.lines(compilers, sections))


def folder(path: Path, content: str) -> Path:
    """An artifact folder with this index."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "index.json").write_text(content)
    return path


def wheel(path: Path, **members: str) -> Path:
    """A wheel that has these members beside a file of Python."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mine/__init__.py", "")
        for name, content in members.items():
            archive.writestr(name, content)
    return path
