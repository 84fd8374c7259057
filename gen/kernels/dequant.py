"""dequant: y[n, k] = the dequantised weights."""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import require
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from . import _dequant
from ._dequant import Rows


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def declare(b: Builder) -> Rows:
        y, n, k = b.buffer("y", dtype, "out"), b.scalar("n"), b.scalar("k")
        return Rows(y, n, k, lambda row: (row, None))

    return _dequant.variants(require(fmt, "dequant"), dtype, target, options, "n", declare)


FAMILY = Family((Operand("w", "quantised", ("n", "k")),), Operand("y", "array", ("n", "k")), variants)
