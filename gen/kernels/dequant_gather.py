"""dequant_gather: y[t, k] = the dequantised row indices[t] of w[n, k], to the bit what dequant gives: the
rows of an embedding. An index that w has not gives a row of zeros; wootz.check_indices finds it."""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.packed import require
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from . import _dequant
from ._dequant import Rows


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def declare(b: Builder) -> Rows:
        indices, y = b.buffer("indices", "i32"), b.buffer("y", dtype, "out")
        t, n, k = b.scalar("t"), b.scalar("n"), b.scalar("k")

        def source(place: Val) -> tuple[Val, Val]:
            row = b.load(indices, place).cast("u32")  # a negative one is past the end, too
            return b.select(row < n, row, 0), row < n

        return Rows(y, t, k, source)

    return _dequant.variants(require(fmt, "dequant_gather"), dtype, target, options, "t", declare)


FAMILY = Family(
    (Operand("w", "quantised", ("n", "k")), Operand("indices", "array", ("t",), "i32")),
    Operand("y", "array", ("t", "k")),
    variants,
)
