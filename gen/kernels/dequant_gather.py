"""dequant_gather: y[t, k] = the dequantised row indices[t] of w[n, k], to the bit what dequant gives: the
rows of an embedding. An index that w has not gives a row of zeros; wootz.check_indices finds it."""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import COLUMNS, Packed, require, steps
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant
from ._dequant import write_chunk


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "dequant_gather")
    threads = threads_of(target.simd, 128)
    walk = steps(fmt)

    def build(b: Builder) -> None:
        w = Packed(b, fmt, target, walk)
        indices, y = b.buffer("indices", "i32"), b.buffer("y", dtype, "out")
        t, n, k = b.scalar("t"), b.scalar("n"), b.scalar("k")
        w.declare_pitches(k)
        item = b.block() * threads + b.thread()
        with b.when(item < t * w.chunks()):
            place, chunk = item // w.chunks(), item % w.chunks()
            row = b.load(indices, place).cast("u32")  # a negative one is past the end, too
            there = row < n
            line = b.at(y, place.cast("u64") * k.cast("u64"))
            write_chunk(b, w, b.select(there, row, 0), chunk, line, k, there)

    chunks: Formula = ["mul", "t", ["ceildiv", "k", walk.chunk]]
    fits: tuple[Formula, ...] = (COLUMNS, ["lt", chunks, 2**31])
    yield Variant("", threads, (["ceildiv", chunks, threads], 1, 1), build, fits, options)


FAMILY = Family(
    (Operand("w", "quantised", ("n", "k")), Operand("indices", "array", ("t",), "i32")),
    Operand("y", "array", ("t", "k")),
    variants,
)
