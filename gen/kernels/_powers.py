"""Powers as whole numbers, the same on every target."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.dsl import Builder, Val
from ..ir.maths import polynomial

_EXP2 = (1.0, 0.693147004, 0.240222424, 0.0555073358, 0.00967151299, 0.00132647261)
"""2^f for |f| <= 1/2, within 2^-23; exactly 1 at 0. Least largest error, fitted to float64 values."""
_MAGIC = 1.5 * 2.0**23
ONE = 39
"""The weight of the largest logit is 2^ONE: that of 2^24 of them fits in 63 bits."""


@dataclass(frozen=True)
class Weights:
    """2^((x - largest) * slope), rounded down to a whole number of 2^-ONE. Products are fused and have one
    rounding: the same on every target. Of -inf, of NaN, and beside an infinite `largest` it is 0."""

    b: Builder
    largest: Val
    slope: Val

    def of(self, x: Val) -> Val:
        b = self.b
        below = x - self.largest
        shifted = b.fma(below, self.slope, _MAGIC)
        whole = shifted - _MAGIC
        power = polynomial(b, b.fma(below, self.slope, b.op("neg", whole)), _EXP2)
        bits = power.bitcast("u32") + (shifted.bitcast("u32") << 23)
        digits = ((bits & 0x7FFFFF) | 0x800000).cast("u64") << (ONE - 23)
        found = digits >> ((b.const(127, "u32") - (bits >> 23)) & 63).cast("u64")
        live = shifted > _MAGIC - ONE - 1.0  # not for NaN
        return b.select(x.eq(self.largest), 1 << ONE, b.select(live, found, 0))
