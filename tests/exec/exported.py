"""Runs exported programs where there is no device: their kernels by the lanes runtime, their host code as it
is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lanes import Entry, build, tools
from lanes.plan import kinds_of

from gen.export.cell import Source

HERE = Path(__file__).parent
_RUNTIME = ("fiber.cpp", "grid.cpp", "matrix.cpp")


def _entries(source: Source) -> Iterator[Entry]:
    records: list[Mapping[str, Any]] = [each for e in source.entries for each in (*e.get("prologue", ()), e)]
    yield from map(Entry.from_json, records)


def _launchers(source: Source) -> str:
    entries = list(_entries(source))
    kinds = {e.symbol: ", ".join(f"lanes::{kind}" for kind in kinds_of(e)) for e in entries}
    macros = [f"LANES_ENTRY({symbol}, {some})" for symbol, some in kinds.items()]
    rows = [
        f"{{(const void*){e.symbol}, lanes_call_{e.symbol}, "
        f'"{"".join("p" if arg.type == "ptr" else "n" for arg in e.args)}"}}'
        for e in entries
    ]
    return "\n".join([*macros, f"#define KERNELS {', '.join(rows)}", '#include "cudart.h"', ""])


def compiled(source: Source, program: str, folder: Path) -> Path:
    """The executable of a program's text. CompileError where it does not compile."""
    (folder / "program.cu").write_text(program)
    text = ['#include "program.cu"', f'#include "{HERE / "lanes/cuda/launch.h"}"', _launchers(source)]
    (folder / "host.cpp").write_text("\n".join(text))
    runtime = [HERE / "lanes" / "runtime" / name for name in _RUNTIME]
    flags = [tools.clang(), *build._CUDA, *build._KERNEL, "-isystem", str(tools.cuda_include())]
    cuda = HERE / "lanes" / "cuda"
    device = ["-include", "cuda_runtime.h", "-include", cuda / "device.h", "-I", cuda, "-I", HERE]
    build._compile([*flags, *device, folder / "host.cpp", "-c", "-o", folder / "host.o"])
    build._compile([*flags, folder / "host.o", *runtime, "-o", folder / "program"])
    return folder / "program"


def run(program: Path) -> tuple[int, str]:
    """(exit status, what it says)."""
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr
