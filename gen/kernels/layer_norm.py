"""layer_norm: y[m, n] = (x - mean) / sqrt(variance + eps) * weight[n] + bias[n], mean and (biased) variance
along rows; in f32, one rounding. The variance is of the differences, so that a large mean costs no digits.

NaN or an infinity in a row makes it NaN. y may be x.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.collective import add
from ..ir.dsl import Builder
from ..manifest.target import Target
from ..variants.family import Family, Operand, Scalar, Variant
from ._rows import LIMITS, Share, lattice, over_rows, rows, shares


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def build(b: Builder, share: Share) -> None:
        x = b.buffer("x", dtype, alone=False)
        weight, bias = b.buffer("weight", dtype), b.buffer("bias", dtype)
        y, m, n = b.buffer("y", dtype, "out", alone=False), b.scalar("m"), b.scalar("n")
        eps = b.scalar("eps", "f32", "scalar")
        with rows(b, share, m, n) as row:
            numbers, line = row.source_of(x), row.at(y)
            mean = numbers.reduce(lambda v: v, add, 0.0) / n.cast("f32")
            apart = numbers.map(lambda v: v - mean)
            squares = apart.reduce(lambda v: v * v, add, 0.0)
            scale = b.op("rsqrt", squares / n.cast("f32") + eps)
            row.write(line, apart, lambda v, w, c: v * scale * w + c, weight, bias)

    return over_rows(shares(dtype, target), options, build)


FAMILY = Family(
    (Operand("x", "array", ("m", "n")), Operand("weight", "array", ("n",)), Operand("bias", "array", ("n",))),
    Operand("y", "array", ("m", "n")),
    variants,
    LIMITS,
    alias=("x",),
    scalars=(Scalar("eps", "f32", 1e-5),),
    lattice=lattice,
)
