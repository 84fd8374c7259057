"""Runs exported programs where there is no device: their kernels by the lanes runtime, their host code as it
is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lanes import Entry, build, tools
from lanes.plan import kinds_of

from gen.export import program
from gen.export import solution as solutions
from gen.export.cell import Source
from gen.export.problem import Problem

HERE = Path(__file__).parent
TORCH = HERE.parent / "compile" / "torch_stub"
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


def compiled(source: Source, text: str, folder: Path) -> Path:
    """The executable of a program's text. CompileError where it does not compile."""
    (folder / "program.cu").write_text(text)
    host = ['#include "program.cu"', f'#include "{HERE / "lanes/cuda/launch.h"}"', _launchers(source)]
    (folder / "host.cpp").write_text("\n".join(host))
    runtime = [HERE / "lanes" / "runtime" / name for name in _RUNTIME]
    flags = [tools.clang(), *build._CUDA, *build._KERNEL, "-isystem", str(tools.cuda_include())]
    cuda = HERE / "lanes" / "cuda"
    device = [
        "-include",
        "cuda_runtime.h",
        "-include",
        cuda / "device.h",
        "-I",
        cuda,
        "-I",
        HERE,
        "-I",
        TORCH,
    ]
    build._compile([*flags, *device, folder / "host.cpp", "-c", "-o", folder / "host.o"])
    build._compile([*flags, folder / "host.o", *runtime, "-o", folder / "program"])
    return folder / "program"


def solution(source: Source, drawn: Problem, folder: Path) -> Path:
    """The executable of a solution with an operand x and an output y, called with tensors by the program's
    main; where that passes, once more with an x of bytes."""
    whole = program.text(source, drawn)
    data, main = whole[whole.index("static const char") :].split("int main()\n")
    x, y = (_tensor(source, name, drawn) for name in "xy")
    call = f"    run({{upload(x_data), {x}}}, {{call.y, {y}}});"
    wrong = call.replace(x.split(",")[0], "torch::kByte", 1)
    kept = [line for line in main.splitlines() if not line.lstrip().startswith(("need(launch", "call.work"))]
    at = next(i for i, line in enumerate(kept) if "cudaDeviceSynchronize" in line)
    end = next(i for i, line in enumerate(kept) if "return passed" in line)
    again = ["    if (passed) {", "        std::fflush(stdout);", f"    {wrong}", "    }"]
    text = "\n".join([*kept[:at], call, *kept[at:end], *again, *kept[end:], ""])
    headers = "#include <cmath>\n#include <cstring>\n#include <string>\n"
    return compiled(source, f"{headers}{solutions.text(source)}\n{data}int main()\n{text}", folder)


def _tensor(source: Source, name: str, drawn: Problem) -> str:
    tensor = next(each for each in solutions.tensors(source) if each.symbol == name)
    shape = ", ".join(str(drawn.names[str(axis)]) for axis in tensor.shape or ())
    return f"torch::{solutions.TORCH[tensor.dtype]}, {{{shape}}}"


def run(executable: Path) -> tuple[int, str]:
    """(exit status, what it says)."""
    done = subprocess.run([str(executable)], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr
