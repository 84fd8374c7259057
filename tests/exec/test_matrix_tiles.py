"""Matrix tiles of the IR, executed: loaded from group memory and from buffers, as they are and transposed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from lanes import ORDERS, Arg, Entry, Program, poisoned
from wootz.reference import round_to, to_double

from gen.ir import matrix, passes
from gen.ir.dsl import Builder
from gen.ir.nodes import Function, MatrixShape, Ref
from gen.lower import cpu, cuda, metal
from gen.manifest.target import Target

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "null"))
import host

TARGETS = {
    "cuda": Target("t", "cuda", features=frozenset({"mma"}), shared_bytes=48 << 10),
    "metal": Target("t", "metal", features=frozenset({"simdgroup_matrix"}), shared_bytes=32 << 10),
    "cpu": host.TARGET,
}
Array = npt.NDArray[Any]
Build = Callable[[Builder], None]
RENDER = {"cuda": cuda.render, "metal": metal.render, "cpu": cpu.render}
SPACES = [*product((False, True), repeat=2)]
"""(through group memory, transposed)"""

WAYS = [*product(SPACES, SPACES)]
"""How the left and the right operand are loaded."""

CASES = [
    (backend, dtype)
    for backend, target in TARGETS.items()
    for dtype in (matrix.shape_of(target) or matrix.SHAPES[""]).operands
]


def stage(b: Builder, name: str, source: Ref, size: int, through: bool) -> Ref:
    """The buffer, or a copy of it in group memory."""
    if not through:
        return source
    copy = b.shared(name, source.dtype, size)
    with b.loop(b.thread(), size, b.function.threads) as i:
        b.store(copy, i, b.load(source, i))
    b.barrier()
    return copy


def kernel(shape: MatrixShape, dtype: str, left: tuple[bool, bool], right: tuple[bool, bool]) -> Build:
    """y = a * b, two SIMD groups side by side: a [2 rows, depth], b [depth, 2 columns], a tile four times."""

    def build(b: Builder) -> None:
        rows, columns, depth = 2 * shape.rows, 2 * shape.columns, shape.depth
        x, w, y = b.buffer("a", dtype), b.buffer("b", dtype), b.buffer("y", "f32", "out")
        groups = max(b.function.threads // b.simd, 1) if b.simd > 1 else 1
        a = stage(b, "left", x, rows * depth, left[0])
        c = stage(b, "right", w, depth * columns, right[0])
        group = b.thread() // b.simd
        lefts, rights = b.tiles("l", "left", dtype, 2, shape), b.tiles("r", "right", dtype, 1, shape)
        sums = b.tiles("s", "sum", "f32", 2, shape)
        with b.loop(0, 2, unroll=True) as i:
            b.tile_fill(sums, i, 0.5)
            stride, at = (rows, i * shape.rows) if left[1] else (depth, i * (shape.rows * depth))
            b.tile_load(lefts, i, a, at, stride, left[1])
        with b.loop(group, 2, groups) as j:
            stride, at = (depth, j * (shape.columns * depth)) if right[1] else (columns, j * shape.columns)
            b.tile_load(rights, 0, c, at, stride, right[1])
            with b.loop(0, 2, unroll=True) as i:
                if groups == 1:
                    b.tile_fill(sums, i, 0.5)
                b.tile_multiply(sums, i, lefts, i, rights, 0)
                b.tile_store(y, i * (shape.rows * columns) + j * shape.columns, columns, sums, i)

    return build


def function(name: str, target: Target, build: Build) -> Function:
    b = Builder(name, 64 if target.simd > 1 else 1, target.simd)
    build(b)
    return passes.run(b.function, target)


def run(
    backend: str, some: list[Function], values: list[dict[str, Array]], folder: Path
) -> list[list[Array]]:
    """The outputs of each function, one for each order."""
    if backend == "cpu":
        library = host.Library(folder, some)
        for made, arrays in zip(some, values):
            library.run(made.name, arrays)
        return [[arrays["y"]] for arrays in values]
    entries = [
        Entry(f.name, tuple(Arg(p.name, p.type, p.role) for p in f.params), (64, 1, 1), (1, 1, 1))
        for f in some
    ]
    with Program.build(RENDER[backend](some), backend, entries, None) as program:
        return [
            [
                program.run(
                    entry, {(k, "out" if k == "y" else "in"): v for k, v in arrays.items()}, order, 60
                )["y", "out"]
                for order in ORDERS
            ]
            for entry, arrays in zip(entries, values)
        ]


@pytest.mark.parametrize(("backend", "dtype"), CASES)
def test_product(backend: str, dtype: str, tmp_path: Path) -> None:
    target = TARGETS[backend]
    shape = matrix.shape_of(target)
    assert shape is not None
    rng = np.random.default_rng(7)
    a = round_to(rng.standard_normal((2 * shape.rows, shape.depth)), dtype)
    b = round_to(rng.standard_normal((shape.depth, 2 * shape.columns)), dtype)
    expected = to_double(a, dtype) @ to_double(b, dtype) + 0.5
    made = [function(f"tiles{i}", target, kernel(shape, dtype, *way)) for i, way in enumerate(WAYS)]
    values = [
        {
            "a": np.ascontiguousarray(a.T if left[1] else a),
            "b": np.ascontiguousarray(b.T if right[1] else b),
            "y": poisoned(expected.shape, np.float32),
        }
        for left, right in WAYS
    ]
    for way, results in zip(WAYS, run(backend, made, values, tmp_path)):
        for result in results:
            np.testing.assert_allclose(result, expected, rtol=1e-6, atol=2e-6, err_msg=str(way))
