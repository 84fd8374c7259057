"""`wootz export program`: one cell as a CUDA program with its operands, its check and a Makefile.

The program has what the cell's check drew at export, and for every element of the result the interval that
the check allows, written out: it needs nvcc and a device, nothing of wootz.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from . import folder, harness, launcher
from .cell import Source
from .problem import Array, Problem, entry_for, problem

PROGRAM = "program.cu"
FILES = (PROGRAM, "Makefile", "program")
"""What an export, or a compiler after it, leaves in its folder."""

_HEADERS = ("cuda_runtime.h", "cmath", "cstdio", "cstdlib", "cstring", "string", "vector")


def write(source: Source, sizes: Mapping[str, int], out: Path) -> dict[str, Any]:
    """Write the program of a cell; gives what it is of. Raises ExportError, BuildError."""
    drawn = problem(source, sizes)
    texts = {PROGRAM: text(source, drawn), "Makefile": makefile(source)}
    folder.write(out, texts, FILES)
    return {
        "cell": source.key,
        "files": sorted(texts),
        "size": dict(drawn.size),
        "kernel": entry_for(source, drawn)["symbol"],
        "bytes": drawn.bytes,
    }


def makefile(source: Source) -> str:
    """Builds and runs the program."""
    return f"""\
# make, make run; ARCH: the device's architecture, NVCC: the compiler
ARCH ?= {source.target.arch}
NVCC ?= nvcc

program: {PROGRAM}
\t$(NVCC) -std=c++17 -O3 {" ".join(source.flags)} -arch=$(ARCH) -o $@ $<

run: program
\t./program

clean:
\trm -f program

.PHONY: run clean
"""


def text(source: Source, drawn: Problem) -> str:
    """The whole program."""
    size = ", ".join(f"{name} = {extent}" for name, extent in drawn.size.items())
    main = _main(source, drawn)
    parts = [
        *launcher.parts(source, f"Kernels, launch, operands and check of {source.key}: {size}.", _HEADERS),
        "\n".join(map(_data, drawn.arrays)),
        *harness.functions(main),
        main,
    ]
    return "\n".join(part for part in parts if part)


def _symbol(name: str) -> str:
    return name.replace(".", "_")


def _data(array: Array) -> str:
    """An array's bytes, in hexadecimal: what it holds before, and what it should hold afterwards."""
    texts, symbol = [], _symbol(array.name)
    if array.data and not _blank(array.data):
        texts.append(_literal(f"{symbol}_data", array.data))
    if array.wanted and array.wanted.bits:
        texts.append(_literal(f"{symbol}_wanted", array.wanted.bits))
    elif array.wanted and array.wanted.low is not None and array.wanted.high is not None:
        texts.append(_literal(f"{symbol}_low", array.wanted.low.astype("<f8").tobytes()))
        texts.append(_literal(f"{symbol}_high", array.wanted.high.astype("<f8").tobytes()))
    return "\n".join(texts)


def _literal(name: str, data: bytes) -> str:
    lines = wrap(data.hex(), 100) or [""]
    return "\n".join([f"static const char {name}[] =", *(f'    "{line}"' for line in lines)]) + ";\n"


def _main(source: Source, drawn: Problem) -> str:
    lines = ["    Call call{};", *(_placed(array) for array in drawn.arrays)]
    for field in launcher.fields(source):
        if field.role not in ("in", "out", "workspace"):
            number = _number(drawn.numbers[field.name, field.role], field.type)
            lines.append(f"    call.{field.symbol} = {number};")
    if launcher.has_workspace(source):
        lines.append("    call.workspace = allocate(workspace_bytes(call));")
    lines += [
        '    need(launch(call, nullptr), "launch");',
        '    need(cudaDeviceSynchronize(), "the kernel");',
        "    bool passed = true;",
        *(f"    passed &= {_checked(array)};" for array in drawn.arrays if array.wanted),
        f'    std::printf("%s {source.key}\\n", passed ? "PASS" : "FAIL");',
        "    return passed ? 0 : 1;",
    ]
    return "\n".join(["int main()", "{", *lines, "}", ""])


def _placed(array: Array) -> str:
    """Brings an array to the device."""
    symbol = _symbol(array.name)
    if array.data is None:
        return f"    call.{symbol} = nullptr;"
    if _blank(array.data):
        return f"    call.{symbol} = poisoned({len(array.data)});"
    return f"    call.{symbol} = upload({symbol}_data);"


def _blank(data: bytes) -> bool:
    return not data.strip(b"\xff")


def _checked(array: Array) -> str:
    wanted, symbol = array.wanted, _symbol(array.name)
    if wanted is None or wanted.bits:
        return f'same_bits("{array.name}", call.{symbol}, {symbol}_wanted)'
    return f'within("{array.name}", call.{symbol}, {symbol}_low, {symbol}_high, read_{wanted.dtype})'


def _number(value: float, kind: str) -> str:
    if kind == "float":
        return f"float({float(value).hex()})"
    return f"{int(value)}{'ull' if kind == 'uint64_t' else ''}"
