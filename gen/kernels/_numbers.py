"""Arithmetic of wootz.quantize, which works in float64, by float32 and integers: the same bits.

Quotients are looked at exactly: q0 = n / s to the nearest float32, and what is left, n - q0 * s, by one fused
operation. Which side of a midpoint m the quotient is on is the sign of (q0 - m) * s + rest, again by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, isfinite, isqrt

from ..formats.axes import Element
from ..ir.dsl import Builder, Val
from ..ir.nodes import float_bits

MANTISSA, BIAS = 23, 127
INFINITY, MAGNITUDE, SIGN = 0x7F800000, 0x7FFFFFFF, 0x80000000
LARGEST, LEAST = float.fromhex("0x1.fffffep127"), 2.0**-149
SMALL, LARGE = 2.0**-60, 2.0**60
"""Beyond these numbers are moved by UP and DOWN, so that no rest is lost to underflow or overflow."""
UP, DOWN = 2.0**90, 2.0**-60
FAR = 1024.0
"""Codes and zero points have 8 bits: a quotient that is larger saturates."""


def as_number(b: Builder, condition: Val) -> Val:
    return b.select(condition, b.const(1, "u32"), 0)


def absolute(x: Val) -> Val:
    return (x.bitcast("u32") & MAGNITUDE).bitcast("f32")


def signed(magnitude: Val, sign: Val) -> Val:
    """sign: 0 or the sign bit."""
    return (magnitude.bitcast("u32") ^ sign).bitcast("f32")


def moved(b: Builder, magnitude: Val) -> tuple[Val, Val]:
    """A power of two that takes a magnitude to where arithmetic is exact, and the one that takes it back."""
    small, large = magnitude < SMALL, magnitude >= LARGE
    factor = b.select(small, b.const(UP, "f32"), b.select(large, b.const(DOWN, "f32"), 1.0))
    back = b.select(small, b.const(1 / UP, "f32"), b.select(large, b.const(1 / DOWN, "f32"), 1.0))
    return factor, back


# ------------------------------------------------------------ sums
def two_sum(x: Val, y: Val) -> tuple[Val, Val]:
    """(the rounded sum, what it lacks), exactly."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def as_double(b: Builder, high: Val, low: Val) -> Val:
    """What is left of `low` when high + low is rounded to float64: a multiple of its last place."""
    bits, sign = high.bitcast("u32"), low.bitcast("u32") & SIGN
    below = (bits & ((1 << MANTISSA) - 1)).eq(0) & ((bits ^ sign) & SIGN).ne(0) & low.ne(0.0)
    biased = ((bits & MAGNITUDE) >> MANTISSA) - as_number(b, below)
    unit = (b.maximum(biased, 29) - 29) << MANTISSA  # 2^23 of the last place
    shift = (unit | sign).bitcast("f32")
    rounds = (biased > 29) & ((low.bitcast("u32") & MAGNITUDE) < unit)
    return b.select(rounds, (low + shift) - shift, low)


# ------------------------------------------------------------ quotients
@dataclass(frozen=True)
class Quotient:
    """near + rest / divisor, exactly: `near` is the float32 next to it. The divisor is positive."""

    b: Builder
    near: Val
    rest: Val
    divisor: Val

    @classmethod
    def of(cls, b: Builder, high: Val, low: Val | None, divisor: Val) -> Quotient:
        """(high + low) / divisor, `low` being at most half of the last place of `high`."""
        near = high / divisor
        rest = b.fma(b.op("neg", near), divisor, high)
        return cls(b, near, rest if low is None else rest + low, divisor)

    @classmethod
    def by_inverse(cls, b: Builder, high: Val, low: Val | None, divisor: Val, inverse: Val) -> Quotient:
        """The same of many quotients by one divisor; they are no infinities. inverse: 1 / divisor."""
        first = high * inverse
        near = b.fma(b.fma(b.op("neg", first), divisor, high), inverse, first)  # within its last place
        rest = b.fma(b.op("neg", near), divisor, high)
        return cls(b, near, rest if low is None else rest + low, divisor)

    def past(self, near: Val, middle: Val | None = None) -> Val:
        """Positive, zero or negative as the quotient, whose `near` is given, is above, at or below `middle`;
        without it, of near itself. NaN for infinities."""
        return self.b.fma(near - middle if middle else near, self.divisor, self.rest)

    def whole(self, low: int, high: int, added: Val | int = 0, even: int = 0) -> Val:
        """The nearest integer, of halves the one that is even after `even` is added; plus `added`, from low
        to high (i32)."""
        b, near = self.b, clamp(self.b, self.near, -FAR, FAR)
        floor = b.op("floor", near)
        sign = self.past(near, floor + 0.5)
        whole = floor.cast("i32")
        odd = ((whole + even) & 1).ne(0)
        up = b.select((sign > 0.0) | (sign.eq(0.0) & odd), b.const(1, "i32"), 0)
        return clamp(b, whole + up + added, low, high)

    def small_float(self, element: Element) -> Val:
        """The code of a float's magnitude; the quotient is not negative."""
        b, cut = self.b, MANTISSA - element.mantissa
        step = 2.0 ** (1 - element.bias - element.mantissa)
        near = b.minimum(self.near, element.max)
        bits = near.bitcast("u32")
        steps = b.op("floor", near * (1 / step))
        below = near < 2.0 ** (1 - element.bias)
        code = b.select(below, steps.cast("u32"), (bits >> cut) - ((BIAS - element.bias) << element.mantissa))
        half = (((bits >> cut) << cut) | (1 << (cut - 1))).bitcast("f32")
        sign = self.past(near, b.select(below, (steps + 0.5) * step, half))
        up = (sign > 0.0) | (sign.eq(0.0) & (code & 1).ne(0))
        return b.minimum(code + as_number(b, up), largest(element))

    def rounded(self) -> Val:
        """The nearest float32 of a positive quotient, which is no subnormal."""
        b, bits = self.b, self.near.bitcast("u32")
        above = ((bits + 1).bitcast("f32") - self.near) * 0.5
        below = (self.near - (bits - 1).bitcast("f32")) * 0.5
        odd = (bits & 1).ne(0)
        over, under = self.past(b.op("neg", above)), self.past(below)
        up = (over > 0.0) | (over.eq(0.0) & odd)
        down = (under < 0.0) | (under.eq(0.0) & odd)
        return (bits + as_number(b, up) - as_number(b, down)).bitcast("f32")


def highest(element: Element) -> float:
    """The largest number that is used."""
    return element.max if element.symmetric else max(v for v in element.values() if isfinite(v))


def clamp(b: Builder, x: Val, low: float, high: float) -> Val:
    return b.minimum(b.maximum(x, low), high)


# ------------------------------------------------------------ small floats
def small_float(b: Builder, element: Element, magnitude: Val) -> Val:
    """The code of a float's magnitude (its bits, not NaN): nearest even, saturating."""
    cut = MANTISSA - element.mantissa
    offset = (BIAS - element.bias) << element.mantissa
    odd = ((magnitude >> cut) - offset) & 1
    normal = ((magnitude + ((1 << (cut - 1)) - 1) + odd) >> cut) - offset
    # Added to this power of two, a number below the normal ones is rounded at the element's smallest step.
    shift = 2.0 ** (1 - element.bias + cut)
    rounded = (magnitude.bitcast("f32") + shift).bitcast("u32") - float_bits(shift)
    code = b.select(magnitude < float_bits(2.0 ** (1 - element.bias)), rounded, normal)
    return b.minimum(code, largest(element))


def largest(element: Element) -> int:
    """The code of the largest finite magnitude."""
    half = element.values()[: 1 << (element.bits - element.signed)]
    return half.index(element.max)


def power_of_two(b: Builder, rule: str, element: Element, peak: Val) -> Val:
    """The e8m0 code of a block's scale, from the bits of its largest magnitude, which is not 0.

    2^(e - f + more) with peak = p 2^e, the element's largest E 2^f, p and E from 1/2 to 1; the rule decides
    on `more` by comparing p with a constant, exactly."""
    fraction, exponent = frexp(element.max)
    top, more = int(fraction * (2 << MANTISSA)), 0
    if exponent < 2:  # for others subnormal numbers all have the least code
        more = 24
        lifted = (peak.bitcast("f32") * 2.0**more).bitcast("u32")
        peak = b.select(peak < (1 << MANTISSA), lifted, peak + (more << MANTISSA))
    significand = (peak & ((1 << MANTISSA) - 1)) | (1 << MANTISSA)
    biased = (peak >> MANTISSA) + 1
    if rule == "even":
        up = (2 << MANTISSA) - (1 << (MANTISSA - 1 - _kept_bits(element)))
        biased = biased + as_number(b, significand >= up)
    elif rule == "ceil":
        biased = biased + as_number(b, significand > top)
    elif rule == "nearest":
        biased = biased + as_number(b, significand > isqrt(2 * top * top))
        biased = biased - as_number(b, significand <= isqrt(top * top // 2))
    code = b.maximum(biased, exponent + more) - (exponent + more)
    return b.minimum(code, 2 * BIAS) if exponent < 2 else code


def _kept_bits(element: Element) -> int:
    """Bits after the leading one that the element keeps of a large number."""
    exponent = frexp(element.max)[1]
    top = sorted({abs(v) for v in element.values() if isfinite(v) and abs(v) <= element.max})
    top = [v for v in top if frexp(v)[1] == exponent]
    return max(0, exponent - frexp(top[-1] - top[-2])[1]) if len(top) > 1 else 0


# ------------------------------------------------------------ scales
def _normal(b: Builder, bits: Val) -> tuple[Val, Val]:
    """(P, e) with P from 2^23 to 2^24 and the float of those bits (positive, finite) = P 2^(e - 150)."""
    fraction = bits & ((1 << MANTISSA) - 1)
    subnormal = bits < (1 << MANTISSA)
    lifted = fraction.cast("f32").bitcast("u32")  # the same significand, 2^149 times as large
    chosen = b.select(subnormal, lifted, bits)
    exponent = (chosen >> MANTISSA).cast("i32") - b.select(subnormal, b.const(149, "i32"), 0)
    return (chosen & ((1 << MANTISSA) - 1)) | (1 << MANTISSA), exponent


def quotient(b: Builder, scale: Element, largest: float, peak: Val, above: Val) -> Val:
    """The code of peak / (largest * above), rounded to float32 and then to the scale's type, at least its
    smallest number. peak, above: bits of positive floats.

    The quotient is taken in integers, 29 bits and more with a last one for the rest, so that the float that
    it is cast to is rounded once."""
    (p, e), (g, f) = _normal(b, peak), _normal(b, above)
    odd, exponent = int(largest), 0
    while odd % 2 == 0:
        odd, exponent = odd // 2, exponent + 1
    shift = 29 + odd.bit_length()
    dividend, divisor = p.cast("u64") << shift, g.cast("u64") * odd
    whole = dividend // divisor
    rest = (dividend - whole * divisor).ne(0)
    single = (whole.cast("u32") | as_number(b, rest)).cast("f32").bitcast("u32")
    biased = (single >> MANTISSA).cast("i32") + e - f - (shift + exponent)
    biased = b.minimum(b.maximum(biased, 1), 2 * BIAS)
    bits = (biased.cast("u32") << MANTISSA) | (single & ((1 << MANTISSA) - 1))
    return b.maximum(small_float(b, scale, bits), 1)
