"""dequant: y[n, k] = the dequantised weights. One thread decodes one chunk of a row."""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import COLUMNS, Packed, require, steps
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._dequant import write_chunk


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "dequant")
    threads = threads_of(target.simd, 128)
    walk = steps(fmt)

    def build(b: Builder) -> None:
        w = Packed(b, fmt, target, walk)
        y = b.buffer("y", dtype, "out")
        n, k = b.scalar("n"), b.scalar("k")
        w.declare_pitches(k)
        item = b.block() * threads + b.thread()
        with b.when(item < n * w.chunks()):
            row, chunk = item // w.chunks(), item % w.chunks()
            line = b.at(y, row.cast("u64") * k.cast("u64"))
            write_chunk(b, w, row, chunk, line, k)

    chunks = ["mul", "n", ["ceildiv", "k", walk.chunk]]
    yield Variant(
        "", threads, (["ceildiv", chunks, threads], 1, 1), build, (COLUMNS, ["lt", chunks, 2**31]), options
    )


FAMILY = Family((Operand("w", "quantised", ("n", "k")),), Operand("y", "array", ("n", "k")), variants)
