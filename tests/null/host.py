"""Compiles functions of the IR as host C++ and calls them. No test in here."""

from __future__ import annotations

import ctypes
import mmap
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.build import ninja
from gen.formats.axes import Format
from gen.ir import passes
from gen.ir.dsl import Builder
from gen.ir.nodes import Function
from gen.lower import cpu
from gen.manifest.target import Target
from gen.variants.family import family

TARGET = Target(
    "cpu", "cpu", features=frozenset({"f16", "bf16"}), simd=1, max_threads=1024, shared_bytes=1 << 16
)
PAIRS = Target(
    "pairs", "cpu", features=TARGET.features | {"f16_pairs"}, simd=1, max_threads=1024, shared_bytes=1 << 16
)
"""The same with the feature that lets decoders go through f16."""


def function(name: str, build: Callable[[Builder], None], target: Target = TARGET) -> Function:
    """One kernel of one thread, verified and rewritten as the generator does it."""
    b = Builder(name, 1, target.simd)
    build(b)
    return passes.run(b.function, target)


def kernel(name: str, fmt: Format, target: Target = TARGET) -> Function:
    """The first f32 variant of a kernel of kernels/, under the format's name."""
    variant = next(iter(family(name).variants(fmt, "f32", target, {})))
    return function(fmt.name, variant.build, target)


class Library:
    """Functions compiled into one shared object, each with helpers and tables of its own."""

    def __init__(self, folder: Path, functions: Sequence[Function], *flags: str) -> None:
        self._functions = {f.name: f for f in functions}
        heads: dict[str, None] = {}
        bodies = []
        for f in functions:
            lines = cpu.render([f]).splitlines()
            heads.update(dict.fromkeys(line for line in lines if line.startswith("#include")))
            rest = "\n".join(line for line in lines if not line.startswith("#include"))
            bodies.append(f"namespace for_{f.name} {{\n{rest}\n}}\n")
        source = folder / "functions.cpp"
        source.write_text("\n".join([*heads, *bodies]))
        compiler = shutil.which("c++") or "c++"
        command = [compiler, *ninja.CXX_FLAGS, *flags, str(source), "-o", str(folder / "functions.so")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        self._library = ctypes.CDLL(str(folder / "functions.so"))

    def run(self, name: str, arrays: Mapping[str, NDArray[Any]], **shapes: int) -> None:
        """Run `blocks` blocks (1). A pitch is the last axis of its field; other scalars go by name."""
        values: list[Any] = []
        for p in self._functions[name].params:
            if p.type == "ptr":
                values.append(ctypes.c_void_p(arrays[p.name].ctypes.data))
            elif p.role == "pitch":
                values.append(ctypes.c_uint32(arrays[p.name].shape[-1]))
            else:
                values.append(ctypes.c_uint32(shapes[p.name]))
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        grid = (ctypes.c_uint32 * 3)(shapes.get("blocks", 1), 1, 1)
        self._library[name](pointers, grid, ctypes.c_uint32(0), ctypes.c_uint32(grid[0]))


def guarded(array: NDArray[Any]) -> NDArray[Any]:
    """A copy whose last byte is the last that may be read: the page behind it has no access."""
    size = -(-max(array.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    region = mmap.mmap(-1, size + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(region))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + size), mmap.PAGESIZE, 0) == 0
    copy = np.frombuffer(region, array.dtype, array.size, size - array.nbytes).reshape(array.shape)
    copy[...] = array
    return copy
