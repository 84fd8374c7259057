"""softmax: y[m, n] = e^(x - max) / sum of them, along rows; in f32, one rounding to the output type. Knobs:
math.

A row with NaN or +inf in it, or with nothing but -inf, is NaN, as torch has it. y may be x.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.collective import add
from ..ir.dsl import Builder
from ..ir.maths import power
from ..manifest.target import Target
from ..variants.family import FAST_MATH, Family, Operand, Variant
from ._rows import LIMITS, Share, larger, lattice, over_rows, rows, shares


def along_rows(dtype: str, target: Target, options: dict[str, str], log: bool) -> Iterable[Variant]:
    """The variants of softmax, or of its logarithm."""

    def build(b: Builder, share: Share) -> None:
        b.fast = options.get("math") == "fast"
        x, y = (b.buffer(name, dtype, role, alone=False) for name, role in (("x", "in"), ("y", "out")))
        m, n = b.scalar("m"), b.scalar("n")
        with rows(b, share, m, n) as row:
            numbers, line = row.source_of(x), row.at(y)
            largest = numbers.reduce(lambda v: v, larger, float("-inf"))
            if log:
                below = numbers.map(lambda v: v - largest)
                shift = b.op("log", below.reduce(lambda v: power(b, v), add, 0.0))
                row.write(line, below, lambda v: v - shift)
            else:
                powers = numbers.map(lambda v: power(b, v - largest))
                scale = b.const(1.0, "f32") / powers.reduce(lambda v: v, add, 0.0)
                row.write(line, powers, lambda v: v * scale)

    return over_rows(shares(dtype, target), options, build)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    return along_rows(dtype, target, options, log=False)


FAMILY = Family(
    (Operand("x", "array", ("m", "n")),),
    Operand("y", "array", ("m", "n")),
    variants,
    LIMITS,
    alias=True,
    knobs=FAST_MATH,
    lattice=lattice,
)
