"""log_softmax: y[m, n] = x - max - log(sum of e^(x - max)), along rows; in f32, one rounding to the output
type.

A row with NaN or +inf in it, or with nothing but -inf, is NaN, as torch has it. y may be x.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import FAST_MATH, Family, Operand, Variant
from ._rows import LIMITS, lattice
from .softmax import along_rows


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    return along_rows(dtype, target, options, log=True)


FAMILY = Family(
    (Operand("x", "array", ("m", "n")),),
    Operand("y", "array", ("m", "n")),
    variants,
    LIMITS,
    alias=True,
    knobs=FAST_MATH,
    lattice=lattice,
)
