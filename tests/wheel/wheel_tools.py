"""A wheel as a file, and an environment in which it is installed and little else."""

from __future__ import annotations

import email.message
import email.parser
import fcntl
import json
import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = "wootz/artifacts/"

USE = """
import sys, numpy as np, wootz
from wootz import checks, reference
lib = wootz.load()
rng = np.random.default_rng(0)
for name in lib.formats()[:: max(1, len(lib.formats()) // 6)]:
    q = wootz.quantize(rng.standard_normal((37, 200)).astype(np.float32), name)
    for m in (1, 3):
        x = rng.standard_normal((m, 200)).astype(np.float32)
        y = lib.kernel("qgemv", format=name, dtype="f32", device="cpu")(x, q)
        assert reference.compare(y, checks.expect("qgemv", {}, {"x": x, "w": q}, "f32"), "f32").passed, name
print(wootz.__file__)
"""
"""Multiplies with the prebuilt kernel, checks against the reference, prints where the package lies."""


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`make(folder)` in one of pytest-xdist's workers, while the others wait."""
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / ".done"
        if not done.is_file():
            folder.mkdir(exist_ok=True)
            make(folder)
            done.touch()
    return folder


class Wheel:
    """A built wheel."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def archive(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(self.path)

    @property
    def files(self) -> dict[str, zipfile.ZipInfo]:
        """By name; no folders."""
        return {info.filename: info for info in self.archive.infolist() if not info.is_dir()}

    def read(self, name: str) -> bytes:
        return self.archive.read(name)

    @cached_property
    def index(self) -> dict[str, Any]:
        return dict(json.loads(self.read(f"{ARTIFACTS}index.json")))

    @cached_property
    def metadata(self) -> email.message.Message:
        name = next(name for name in self.files if name.endswith(".dist-info/METADATA"))
        return email.parser.BytesParser().parsebytes(self.read(name))

    def artifacts(self) -> set[str]:
        return {name.removeprefix(ARTIFACTS) for name in self.files if name.startswith(ARTIFACTS)}

    def named(self) -> Iterator[tuple[str, str, int | None]]:
        """(file, sha256, size) of every file that the index names; a stub's source has no size there."""
        for cell in self.index["cells"]:
            yield cell["source"], cell["source_sha256"], cell["source_size"]
            yield from ((each["file"], each["sha256"], each["size"]) for each in cell["files"])
            if stub := cell.get("stub"):
                yield stub["source"], stub["source_sha256"], None
                yield stub["file"], stub["sha256"], stub["size"]


@dataclass(frozen=True)
class Clean:
    """A virtual environment. Nothing of this process's is seen there, and no compiler is on its PATH."""

    folder: Path

    @property
    def command(self) -> str:
        return str(self.folder / "bin/wootz")

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        nothing = {"PATH": str(self.folder / "nothing"), "HOME": str(self.folder)}
        kept = {key: value for key, value in os.environ.items() if key.startswith("OPENBLAS_")}
        return subprocess.run(
            arguments,
            env={**nothing, **kept, **environment},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )

    def python(self, code: str, **environment: str) -> str:
        """Runs code that must succeed, and gives what it printed."""
        done = self.run(str(self.folder / "bin/python"), "-W", "error", "-c", code, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout
