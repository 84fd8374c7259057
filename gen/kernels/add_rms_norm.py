"""add_rms_norm: residual += x, rounded to its type; y[m, n] = rms_norm of the new residual, weight[n].

Bit for bit what `binary` add and then `rms_norm` give. y may be x, and not the residual.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.collective import add
from ..ir.dsl import Builder, Val
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._rows import LIMITS, Share, lattice, over_rows, rows, shares
from .rms_norm import EPS


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def build(b: Builder, share: Share) -> None:
        x, residual = b.buffer("x", dtype, alone=False), b.buffer("residual", dtype, "out")
        weight, y = b.buffer("weight", dtype), b.buffer("y", dtype, "out", alone=False)
        m, n, eps = b.scalar("m"), b.scalar("n"), b.scalar("eps", "f32", "scalar")
        with rows(b, share, m, n) as row:
            from_line, sum_line, line = row.at(x), row.at(residual), row.at(y)

            def added(first: Val) -> list[Val]:
                pairs = zip(row.load(from_line, first), row.load(sum_line, first))
                sums = [(v + r).cast(dtype).cast("f32") for v, r in pairs]
                row.store(sum_line, first, sums)
                return sums

            numbers = row.source(added, lambda first: row.load(sum_line, first))
            squares = numbers.reduce(lambda v: v * v, add, 0.0)
            scale = b.op("rsqrt", squares / n.cast("f32") + eps)
            row.write(line, numbers, lambda v, w: v * scale * w, weight)

    return over_rows(shares(dtype, target), options, build)


FAMILY = Family(
    (
        Operand("x", "array", ("m", "n")),
        Operand("residual", "array", ("m", "n"), updated=True),
        Operand("weight", "array", ("n",)),
    ),
    Operand("y", "array", ("m", "n")),
    variants,
    LIMITS,
    alias=("x",),
    scalars=(EPS,),
    lattice=lattice,
)
