"""rms_norm: y[m, n] = x / sqrt(mean of x^2 along the row + eps) * weight[n]; in f32, one rounding.

A row of zeros gives zeros (eps is positive), NaN or an infinity in a row NaN or zeros as the formula has it.
Squares overflow float32 from about 1.8e19 on: such a row becomes zeros. y may be x.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.collective import add
from ..ir.dsl import Builder
from ..manifest.target import Target
from ..variants.family import Family, Operand, Scalar, Variant
from ._rows import LIMITS, Share, lattice, over_rows, rows, shares

EPS = Scalar("eps", "f32", 1e-6)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def build(b: Builder, share: Share) -> None:
        x, weight = b.buffer("x", dtype, alone=False), b.buffer("weight", dtype)
        y, m, n = b.buffer("y", dtype, "out", alone=False), b.scalar("m"), b.scalar("n")
        eps = b.scalar("eps", "f32", "scalar")
        with rows(b, share, m, n) as row:
            numbers, line = row.source_of(x), row.at(y)
            squares = numbers.reduce(lambda v: v * v, add, 0.0)
            scale = b.op("rsqrt", squares / n.cast("f32") + eps)
            row.write(line, numbers, lambda v, w: v * scale * w, weight)

    return over_rows(shares(dtype, target), options, build)


FAMILY = Family(
    (Operand("x", "array", ("m", "n")), Operand("weight", "array", ("n",))),
    Operand("y", "array", ("m", "n")),
    variants,
    LIMITS,
    alias=("x",),
    scalars=(EPS,),
    lattice=lattice,
)
