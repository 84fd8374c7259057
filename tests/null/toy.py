"""A toy emitter in the place of gen.emit.text, so that tests of the build do not depend on kernels: one line
an entry.

A format whose name begins with "bad" emits text that no compiler takes. With TOY_STUBS in the environment,
CUDA entries are gated and have host stubs, whose text it is; with TOY_FAST, its condition is that of a second
variant, "_fast", which comes first. Run as a program, it is the `wootz` command line with the toy in place.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from gen.build import stages as build  # noqa: E402
from gen.emit import emission  # noqa: E402
from gen.formats.axes import Format  # noqa: E402
from gen.manifest.reader import KernelSpec  # noqa: E402
from gen.manifest.target import Target  # noqa: E402
from gen.plan import cells as plan  # noqa: E402
from gen.plan import name  # noqa: E402

HERE = Path(__file__).resolve().parent
LINES = {
    "cpu": 'extern "C" __attribute__((visibility("default"))) void {}(void* const*) {{}}\n',
    "cuda": 'extern "C" __global__ void {}(float* x) {{ x[0] = 1; }}\n',
    "metal": "kernel void {}() {{}}\n",
}
TARGETS = """
  cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}
  sm_80: {backend: cuda, capability: [8, 0], features: [f16]}
  sm_90a: {backend: cuda, capability: [9, 0], suffix: a, features: [f16, bf16]}
  metal3.1: {backend: metal, min_os: "14.0", features: [f16, bf16]}
"""
KERNELS = """
  copy: {dtypes: [f16, f32], formats: none}
  dequant: {dtypes: [f16, f32], formats: all}
"""


STUBS = os.environ.get("TOY_STUBS", "")
FAST = os.environ.get("TOY_FAST", "")
HEAD = """#include <stdint.h>
#define API extern "C" __attribute__((visibility("default")))
API void wootz_stub_encode(void*) {}
"""
STUB = """API int $SYMBOL_query(const void*, uint64_t* launch) { launch[0] = 64; return 0; }
API int $SYMBOL_fill(const void*, void*, void*, void*) { return 0; }
"""
"""A stub that says what the double of nvcc says."""


@dataclass(frozen=True)
class Entry:
    symbol: str
    dtype: str
    options: dict[str, str]
    types: dict[str, str] = field(default_factory=dict)
    stub: bool = False
    when: tuple[Any, ...] = ()

    def to_json(self) -> dict[str, Any]:
        fixed = {"args": [["x", "ptr", "in"]], "block": [1, 1, 1], "grid": [["ceildiv", "n", 4], 1, 1]}
        extra = {"stub": self.symbol, "gate": "hmma"} if self.stub else {}
        return {"symbol": self.symbol, **fixed, "shared": 0, "when": list(self.when), **extra}


@dataclass(frozen=True)
class Emitted:
    text: str
    entries: tuple[Entry, ...]
    stub: str = ""
    instances: bool = False


def refusal(
    kernel: KernelSpec, fmt: Format | None, dtype: str, target: Target, options: dict[str, str]
) -> str | None:
    return None if target.has(dtype) or dtype == "f32" else f"{dtype} needs the feature {dtype}"


def kernel_record(kernel: KernelSpec) -> dict[str, Any]:
    return {"key": kernel.name, "operands": []}


ALL = "*"


def emit(
    kernel: KernelSpec,
    fmt: Format | None,
    target: Target,
    dtypes: tuple[str, ...],
    tiles: tuple[str, ...] = (),
) -> Emitted:
    """Each cell has one further variant, "_wide"."""
    entries = []
    for dtype, values in product(dtypes, product(*kernel.options.values())):
        options = dict(zip(kernel.options, values))
        symbol = name.symbol(kernel.name, options, fmt.name if fmt else None, dtype)
        stub = target.backend == "cuda" and bool(STUBS)
        if stub and FAST:
            entries.append(Entry(f"{symbol}_fast", dtype, options, stub=stub, when=(json.loads(FAST),)))
        entries.append(Entry(symbol, dtype, options, stub=stub))
        if ALL in tiles or f"{symbol}_wide" in tiles:
            entries.append(Entry(f"{symbol}_wide", dtype, options))
    planted = "#error planted\n" if fmt and fmt.name.startswith("bad") else ""
    value = f"// {fmt.block}\n" if fmt else ""
    text = "".join(LINES[target.backend].format(entry.symbol) for entry in entries)
    stubs = [STUBS.replace("$SYMBOL", entry.symbol) for entry in entries if entry.stub]
    stub = HEAD + "".join(stubs) if stubs else ""
    return Emitted(planted + value + text, tuple(entries), stub, bool(stubs))


def install(monkeypatch: Any = None) -> None:
    """Put the toy in the place of gen.emit.text; for good without `monkeypatch`."""
    set_attribute = monkeypatch.setattr if monkeypatch else setattr
    set_attribute(plan, "emit", sys.modules[__name__])
    set_attribute(build, "emit", sys.modules[__name__])
    set_attribute(emission, "emit", sys.modules[__name__])


def manifest(
    path: Path, formats: dict[str, int], targets: str = TARGETS, extra: str = "", kernels: str = KERNELS
) -> Path:
    """Write a manifest of 4-bit formats, given as name -> block length."""
    rows = "".join(
        f"  {n}: {{element: {{int: 4}}, block: {block}, scale: f32}}\n" for n, block in formats.items()
    )
    profiles = "  default: {targets: all}\n  cpu: {targets: [cpu]}\n  native: {targets: [native]}\n"
    text = f"version: 1\ntargets:{targets}\nformats:\n{rows}\nkernels:{kernels}\nprofiles:\n{profiles}{extra}"
    path.write_text(text, encoding="utf-8")
    return path


def tool(folder: Path, script: str, called: str) -> Path:
    """An executable that runs one of the doubles with this Python."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / called
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{HERE / script}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what would steer a build, and with changes."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("WOOTZ_", "FAKE_", "CUDA_")) and k != "CXX"
    }
    return {**kept, **changes}


if __name__ == "__main__":
    from gen.cli import main

    install()
    sys.exit(main())
