"""Scales and zero points of blocks: what the rules want, as it is stored, and what that stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..formats.axes import EXPONENT_RULES, Element, Format
from ..ir.decode import decode_one, decode_wide
from ..ir.dsl import Builder, Val
from ..manifest.target import Target
from . import _numbers
from ._numbers import BIAS, LARGEST, LEAST, SIGN, Quotient, absolute, clamp, highest, signed
from ._ranges import Range

LARGEST_WIDE = {"f16": 65504.0, "bf16": 2.0**128 - 2.0**120, "f32": LARGEST}
LEAST_WIDE = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": LEAST}
"""Of the wide types."""


@dataclass(frozen=True)
class Entries:
    """What is stored for a block, and what that stands for. wanted: the scale before it was rounded; own: the
    stored one's, without the whole tensor's."""

    scale: Val | None = None
    value: Val | None = None
    wanted: Val | None = None
    zero: Val | None = None
    point: Val | None = None
    own: Val | None = None

    def inside(self, there: Val) -> Entries:
        """What is stored between codes: 0 for a block past the end."""
        kept = (v and v.builder.select(there, v, 0) for v in (self.scale, self.zero))
        scale, zero = kept
        return replace(self, scale=scale, zero=zero)


def entries(b: Builder, fmt: Format, target: Target, found: Range, above: Val | None) -> Entries:
    """above: the bits of the scale of the whole tensor."""
    if not fmt.scales:
        return Entries()
    first, element, wanted = fmt.scales[0], fmt.element, None
    if first.rule in EXPONENT_RULES:
        peak = found.peak()
        scale = _numbers.power_of_two(b, first.rule, element, peak)
        idle = BIAS if 0 in element.values() else 0
        scale = b.select(peak.eq(0), b.const(idle, "u32"), scale)
    elif above is not None:
        peak = found.peak()
        scale = _numbers.quotient(b, first.element, element.max, peak, above)
        scale = b.select(peak.eq(0), b.const(0, "u32"), scale)
    else:
        wanted = _wanted(b, first.rule, element, found)
        scale = encode(b, first.element, wanted)
    own = value_of(b, first.element, scale, target)
    value = own if above is None else own * above.bitcast("f32")
    zero, point = _zero(b, fmt, found, value, target) if fmt.zero else (None, None)
    return Entries(scale, value, wanted, zero, point, own)


def _wanted(b: Builder, rule: str, element: Element, found: Range) -> Val:
    """The scale as float32."""
    if rule == "minmax":
        return _spread(b, *found.ends(), highest(element) - element.min or 1.0)
    if rule == "signed_absmax":
        return bounded(b, found.first() / (element.min if element.min < 0 else element.max), found.first())
    peak = found.peak().bitcast("f32")
    return bounded(b, peak / element.max, peak)


def bounded(b: Builder, ratio: Val, of: Val) -> Val:
    """Without overflow, and not 0 unless `of` is."""
    magnitude = b.minimum(absolute(ratio), LARGEST)
    magnitude = b.select(of.eq(0.0), magnitude, b.maximum(magnitude, LEAST))
    return signed(magnitude, ratio.bitcast("u32") & SIGN)


def _spread(b: Builder, low: Val, high: Val, span: float) -> Val:
    """(high - low) / span, each rounded to float64, then to float32."""
    factor, back = _numbers.moved(b, b.maximum(absolute(low), absolute(high)))
    total, rest = _numbers.two_sum(high * factor, b.op("neg", low * factor))
    rest = _numbers.as_double(b, total, rest)
    ratio = Quotient.of(b, total, rest, b.const(span, "f32")).rounded()
    return b.select(total > 0.0, bounded(b, ratio * back, total), 0.0)


def encode(b: Builder, element: Element, x: Val) -> Val:
    """A finite number as a type stores it, a scale: nearest, saturating, 0 only for 0. A u32."""
    magnitude, sign = absolute(x), x.bitcast("u32") & SIGN
    some = magnitude > 0.0
    if element.kind == "float":
        code = _numbers.small_float(b, element, magnitude.bitcast("u32"))
        code = b.select(some, b.maximum(code, 1), code)
        return code | (sign >> (32 - element.bits)) if element.signed else code
    if element.kind == "int":
        whole = b.op("round", clamp(b, x, element.min, highest(element)))
        least = signed(b.const(1.0, "f32"), sign) if element.min < 0 else b.const(1.0, "f32")
        return code_of(b, element, b.select(some & whole.eq(0.0), least, whole).cast("i32"))
    if element.type == "f32":
        return x.bitcast("u32")
    kept = clamp(b, magnitude, LEAST_WIDE[element.type], LARGEST_WIDE[element.type])
    kept = b.select(some, kept, magnitude)
    return signed(kept, sign).cast(element.type).bitcast("u16").cast("u32")


def value_of(b: Builder, element: Element, stored: Val, target: Target) -> Val:
    if element.kind == "wide":
        return decode_wide(b, element, stored)
    return decode_one(b, element, [stored], range(element.bits), target)


def code_of(b: Builder, element: Element, whole: Val) -> Val:
    """The code of an integer (i32) of its range."""
    if element.signed:
        return whole.cast("u32") & ((1 << element.bits) - 1)
    return (whole + element.offset).cast("u32")


def _zero(b: Builder, fmt: Format, found: Range, scale: Val, target: Target) -> tuple[Val, Val]:
    """(as it is stored, as a number: an i32 in the code domain)."""
    zero, low = fmt.zero, found.ends()[0]
    assert zero is not None
    lacks = 1 if zero.stored == "minus_one" else 0
    if zero.domain == "value":
        limit = LARGEST_WIDE[zero.element.type]
        stored = clamp(b, low - float(lacks) if lacks else low, -limit, limit)
        if zero.element.type == "f32":
            code = stored.bitcast("u32")
        else:
            code = stored.cast(zero.element.type).bitcast("u16").cast("u32")
        value = decode_wide(b, zero.element, code)
        return code, value + 1.0 if lacks else value
    there = absolute(scale) > 0.0
    factor, _ = _numbers.moved(b, absolute(scale))
    above = b.select(there, signed(low * factor, (scale.bitcast("u32") & SIGN) ^ SIGN), 0.0)
    below = b.select(there, absolute(scale) * factor, 1.0)
    base = int(fmt.element.min) - lacks
    least, most = int(zero.element.min), int(highest(zero.element))
    whole = Quotient.of(b, above, None, below).whole(least - base, most - base, even=base) + base
    return code_of(b, zero.element, whole), whole + lacks
