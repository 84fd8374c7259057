"""How a block is quantised: its range, its scale and zero point, its codes; bit for bit as wootz.quantize.

NaN takes the element's NaN, and counts as 0 where there is none. Float32 numbers that are subnormal are taken
as the device takes them: one that flushes them sees zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from math import copysign, inf, isfinite

from ..axes import EXPONENT_RULES, Element, Format
from ..collective import Tuple, block_reduce
from ..decode import decode, decode_wide, factor_of
from ..dsl import Builder, Val, Var
from ..ir import float_bits, round_f32
from ..target import Target
from ._numbers import (
    BIAS,
    INFINITY,
    LARGEST,
    LEAST,
    MAGNITUDE,
    MANTISSA,
    SIGN,
    Quotient,
    absolute,
    as_double,
    as_number,
    clamp,
    moved,
    power_of_two,
    quotient,
    signed,
    small_float,
    two_sum,
)  # fmt: skip

MIDDLE_BITS = 29
"""Bits of a midpoint with which float64 decides as exact arithmetic does."""


_LARGEST_WIDE = {"f16": 65504.0, "bf16": 2.0**128 - 2.0**120, "f32": LARGEST}
_LEAST_WIDE = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": LEAST}


# ------------------------------------------------------------ what can be done
def refused(fmt: Format) -> str | None:
    """Why kernels cannot quantise to a format, or None."""
    element, zero = fmt.element, fmt.zero
    numbers = [abs(v) for v in element.values() if isfinite(v) and v]
    if element.kind == "exponent" or min(numbers) < 2.0**-42 or max(numbers) > 2.0**90:
        return "kernels quantise to numbers from 2^-42 to 2^90"
    if element.kind == "codebook" and any(_bits(m) > MIDDLE_BITS for m, *_ in thresholds(element)):
        return f"it has codes whose midpoint takes more than {MIDDLE_BITS} bits"
    if not fmt.scales:
        return "it has a zero point without a scale" if zero else None
    if zero and fmt.scales[0].rule == "signed_absmax":
        return "signed_absmax goes without a zero point"
    return _refused_scale(fmt) or (_refused_zero(fmt) if zero else None)


@cache
def thresholds(element: Element) -> list[tuple[float, bool, int]]:
    """(midpoint, whether it is past itself, the code from there on), in ascending order; the lowest number
    has no midpoint before it. A tie goes to the lower code of a codebook."""
    limit = element.max if element.symmetric else inf
    best: dict[tuple[float, bool], int] = {}
    for code, v in enumerate(element.values()):
        if isfinite(v) and abs(v) <= limit:
            best.setdefault((v, copysign(1, v) > 0), code)
    ranked = sorted(best.items())
    return [
        (x / 2 + y / 2, after < before or x == y == 0, after)
        for ((x, _), before), ((y, _), after) in pairwise(ranked)
    ]


def _least_code(element: Element) -> int:
    """The code of the lowest number, -0 before 0."""
    values = element.values()
    return min(range(len(values)), key=lambda code: (values[code], copysign(1, values[code])))


def _bits(number: float) -> int:
    """Significant bits of a float."""
    whole = abs(number.as_integer_ratio()[0])
    return whole.bit_length() - (whole & -whole).bit_length() + 1 if whole else 0


def _refused_scale(fmt: Format) -> str | None:
    first, above = fmt.scales[0], fmt.scales[1:]
    kind, rule = first.element.kind, first.rule
    if kind == "codebook":
        return "its scales are of a codebook"
    if (rule in EXPONENT_RULES) != (kind == "exponent"):
        return f"the rules {', '.join(EXPONENT_RULES)} are for e8m0 scales, and others for others; got {rule}"
    if not above:
        return None
    outer = above[-1]
    plain = outer.element.type == "f32" and outer.rule == "absmax" and outer.op == "multiply"
    if len(above) > 1 or tuple(outer.block) != (0, 0) or not plain:
        return "of scales above the first, one f32 of the whole tensor is taken, by absmax, which multiplies"
    if kind != "float" or rule != "absmax" or fmt.element.max % 1 or fmt.element.max > 2**20:
        return "under a scale of the whole tensor, scales are small floats, by absmax"
    return None


def _refused_zero(fmt: Format) -> str | None:
    zero = fmt.zero
    assert zero is not None
    if fmt.element.kind != "int":
        return "zero points go with integer elements"
    if zero.domain == "code":
        return None if zero.element.kind == "int" else "zero points in the code domain are integers"
    if zero.element.kind != "wide" or fmt.element.min:
        return "zero points in the value domain are wide, with elements from 0 up"
    return None


# ------------------------------------------------------------ ranges
@dataclass
class Range:
    """What a block's numbers say about its scale: the largest magnitude, the first of largest magnitude, or
    both ends; of finite ones. Whether there are infinities, too."""

    b: Builder
    fmt: Format
    infinite: Var = field(init=False)

    def __post_init__(self) -> None:
        b = self.b
        self.infinite = b.var("infinite", 0, "u32")
        if self.kind == "ends":
            self.low, self.high = b.var("low", inf), b.var("high", -inf)
        else:
            self.largest = b.var("largest", 0, "u32")
        if self.kind == "signed":
            self.extreme, self.seen = b.var("extreme", 0.0), b.var("seen", 0, "u32")

    @property
    def kind(self) -> str:
        if self.fmt.zero:
            return "ends"
        return "signed" if self.fmt.scales[0].rule == "signed_absmax" else "magnitude"

    def add(self, value: Val, inside: Val) -> None:
        """inside: whether there is such a number; it is 0 where not."""
        b = self.b
        bits = value.bitcast("u32") & MAGNITUDE
        finite = bits < INFINITY
        self.infinite.set(self.infinite.get() | as_number(b, bits.eq(INFINITY)))
        if self.kind == "ends":
            there, value = bits.ne(INFINITY) & inside, b.select(bits > INFINITY, 0.0, value)
            self.low.set(b.minimum(self.low.get(), b.select(there, value, inf)))
            self.high.set(b.maximum(self.high.get(), b.select(there, value, -inf)))
            return
        magnitude = b.select(finite, bits, 0)
        if self.kind == "signed":
            first = (magnitude > self.largest.get()) | self.seen.get().eq(0)
            self.extreme.set(b.select(first, b.select(finite, value, 0.0), self.extreme.get()))
            self.seen.set(1)
        self.largest.set(b.maximum(self.largest.get(), magnitude))

    def share(self) -> None:
        """Made that of all threads of the block. Not of signed numbers, whose order matters."""
        own = (self.low, self.high) if self.kind == "ends" else (self.largest,)
        found = block_reduce(self.b, [v.get() for v in (*own, self.infinite)], self._join, again=True)
        for variable, value in zip((*own, self.infinite), found):
            variable.set(value)

    def _join(self, x: Tuple, y: Tuple) -> Tuple:
        b, infinite = self.b, x[-1] | y[-1]
        if self.kind == "ends":
            return b.minimum(x[0], y[0]), b.maximum(x[1], y[1]), infinite
        return b.maximum(x[0], y[0]), infinite

    # ---- with infinities and otherwise zeros, the element's own range
    def _alone(self, zeros: Val) -> Val:
        return zeros & self.infinite.get().ne(0)

    def peak(self) -> Val:
        """The bits of the largest magnitude."""
        b = self.b
        if self.kind == "ends":
            low, high = self._found()
            found = b.maximum(absolute(low), absolute(high)).bitcast("u32")
        else:
            found = self.largest.get()
        own = float_bits(self.fmt.element.max)
        return b.select(self._alone(found.eq(0)), b.const(own, "u32"), found)

    def first(self) -> Val:
        """The first of the numbers of largest magnitude."""
        alone = self._alone(self.largest.get().eq(0))
        return self.b.select(alone, self.b.const(self.fmt.element.min, "f32"), self.extreme.get())

    def _found(self) -> tuple[Val, Val]:
        """Both ends; zeros have no sign."""
        b, low, high = self.b, self.low.get(), self.high.get()
        none = low > high
        return b.select(none, 0.0, low + 0.0), b.select(none, 0.0, high + 0.0)

    def ends(self) -> tuple[Val, Val]:
        """The least number and the largest; where the zero point needs it, with 0 between them."""
        b, element, (low, high) = self.b, self.fmt.element, self._found()
        alone = self._alone(low.eq(0.0) & high.eq(0.0))
        low = b.select(alone, b.const(element.min, "f32"), low)
        high = b.select(alone, b.const(highest(element), "f32"), high)
        if self.fmt.zero and self.fmt.zero.domain == "code":
            low, high = b.minimum(low, 0.0), b.maximum(high, 0.0)
        return low, high


# ------------------------------------------------------------ scales and zero points
@dataclass(frozen=True)
class Entries:
    """What is stored for a block, and what that stands for. wanted: the scale before it was rounded."""

    scale: Val | None = None
    value: Val | None = None
    wanted: Val | None = None
    zero: Val | None = None
    point: Val | None = None

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
        scale = power_of_two(b, first.rule, element, peak)
        idle = BIAS if 0 in element.values() else 0
        scale = b.select(peak.eq(0), b.const(idle, "u32"), scale)
    elif above is not None:
        peak = found.peak()
        scale = quotient(b, first.element, element.max, peak, above)
        scale = b.select(peak.eq(0), b.const(0, "u32"), scale)
    else:
        wanted = _wanted(b, first.rule, element, found)
        scale = encode(b, first.element, wanted)
    value = value_of(b, first.element, scale, target)
    if above is not None:
        value = value * above.bitcast("f32")
    zero, point = _zero(b, fmt, found, value, target) if fmt.zero else (None, None)
    return Entries(scale, value, wanted, zero, point)


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
    factor, back = moved(b, b.maximum(absolute(low), absolute(high)))
    total, rest = two_sum(high * factor, b.op("neg", low * factor))
    rest = as_double(b, total, rest)
    ratio = Quotient.of(b, total, rest, b.const(span, "f32")).rounded()
    return b.select(total > 0.0, bounded(b, ratio * back, total), 0.0)


def highest(element: Element) -> float:
    """The largest number that is used."""
    return element.max if element.symmetric else max(v for v in element.values() if isfinite(v))


def encode(b: Builder, element: Element, x: Val) -> Val:
    """A finite number as a type stores it, a scale: nearest, saturating, 0 only for 0. A u32."""
    magnitude, sign = absolute(x), x.bitcast("u32") & SIGN
    some = magnitude > 0.0
    if element.kind == "float":
        code = small_float(b, element, magnitude.bitcast("u32"))
        code = b.select(some, b.maximum(code, 1), code)
        return code | (sign >> (32 - element.bits)) if element.signed else code
    if element.kind == "int":
        whole = b.op("round", clamp(b, x, element.min, highest(element)))
        least = signed(b.const(1.0, "f32"), sign) if element.min < 0 else b.const(1.0, "f32")
        return code_of(b, element, b.select(some & whole.eq(0.0), least, whole).cast("i32"))
    if element.type == "f32":
        return x.bitcast("u32")
    kept = clamp(b, magnitude, _LEAST_WIDE[element.type], _LARGEST_WIDE[element.type])
    kept = b.select(some, kept, magnitude)
    return signed(kept, sign).cast(element.type).bitcast("u16").cast("u32")


def value_of(b: Builder, element: Element, stored: Val, target: Target) -> Val:
    if element.kind == "wide":
        return decode_wide(b, element, stored)
    value, factor = decode(b, element, [stored], [range(element.bits)], target)[0], factor_of(element, target)
    return value if factor == 1.0 else value * factor


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
        limit = _LARGEST_WIDE[zero.element.type]
        stored = clamp(b, low - float(lacks) if lacks else low, -limit, limit)
        if zero.element.type == "f32":
            code = stored.bitcast("u32")
        else:
            code = stored.cast(zero.element.type).bitcast("u16").cast("u32")
        value = decode_wide(b, zero.element, code)
        return code, value + 1.0 if lacks else value
    there = absolute(scale) > 0.0
    factor, _ = moved(b, absolute(scale))
    above = b.select(there, signed(low * factor, (scale.bitcast("u32") & SIGN) ^ SIGN), 0.0)
    below = b.select(there, absolute(scale) * factor, 1.0)
    base = int(fmt.element.min) - lacks
    least, most = int(zero.element.min), int(highest(zero.element))
    whole = Quotient.of(b, above, None, below).whole(least - base, most - base, even=base) + base
    return code_of(b, zero.element, whole), whole + lacks


# ------------------------------------------------------------ codes
@dataclass(frozen=True)
class Codes:
    """The codes of one block's numbers."""

    b: Builder
    fmt: Format
    of: Entries

    def __post_init__(self) -> None:
        """What all codes need is made here, where all of them see it."""
        assert callable(self._finite)

    def code(self, value: Val) -> Val:
        b, element = self.b, self.fmt.element
        nan = (value.bitcast("u32") & MAGNITUDE) > INFINITY
        nans = [i for i, v in enumerate(element.values()) if v != v]
        if nans:
            return b.select(nan, b.const(nans[0], "u32"), self._finite(value))
        return self._finite(b.select(nan, 0.0, value))

    @cached_property
    def _finite(self) -> Callable[[Val], Val]:
        first = self.fmt.scales[0] if self.fmt.scales else None
        if first is None:
            return self._exact
        if first.rule == "signed_absmax" and self.fmt.element.kind == "int":
            return self._as_gguf()
        if first.element.kind == "exponent" and not self.fmt.zero:
            assert self.of.scale is not None
            largest = self.b.const(2 * BIAS, "u32")  # whose inverse is subnormal
            turned = (largest - self.of.scale) << MANTISSA
            turned = self.b.select(self.of.scale.eq(largest), 1 << (MANTISSA - 1), turned)
            inverse = turned.bitcast("f32")
            return lambda value: self._exact(value * inverse)
        return self._by_rest()

    def _exact(self, ratio: Val) -> Val:
        """Of a quotient that float32 holds."""
        b, element = self.b, self.fmt.element
        if element.kind == "int":
            whole = b.op("round", clamp(b, ratio, element.min, highest(element)))
            return code_of(b, element, whole.cast("i32"))
        if element.kind == "float":
            bits = ratio.bitcast("u32")
            return self._signed(bits, small_float(b, element, bits & MAGNITUDE))
        return self._search(Quotient(b, ratio, b.const(0.0, "f32"), b.const(1.0, "f32")), ratio)

    def _signed(self, bits: Val, code: Val) -> Val:
        b, element = self.b, self.fmt.element
        if element.signed:
            return code | ((bits >> 31) << (element.bits - 1))
        return b.select((bits >> 31).ne(0), 0, code)

    def _by_rest(self) -> Callable[[Val], Val]:
        b, element, zero = self.b, self.fmt.element, self.fmt.zero
        scale = self.of.value
        assert scale is not None
        magnitude, sign = absolute(scale), scale.bitcast("u32") & SIGN
        there, (factor, _) = magnitude > 0.0, moved(b, magnitude)
        divisor = b.select(there, magnitude * factor, 1.0)

        def code(value: Val) -> Val:
            high, low = value * factor, None
            if zero and zero.domain == "value" and self.of.point is not None:
                high, low = two_sum(high, b.op("neg", self.of.point * factor))
                low = b.select(there, signed(as_double(b, high, low), sign), 0.0)
            high = b.select(there, signed(high, sign), 0.0)
            if element.kind == "int":
                added = self.of.point if zero and zero.domain == "code" and self.of.point is not None else 0
                ratio = Quotient.of(b, high, low, divisor)
                return code_of(b, element, ratio.whole(int(element.min), int(highest(element)), added))
            if element.kind == "float":
                ratio = Quotient.of(b, absolute(high), None, divisor)
                return self._signed(high.bitcast("u32"), ratio.small_float(element))
            return self._search(Quotient.of(b, high, None, divisor), high)

        return code

    def _as_gguf(self) -> Callable[[Val], Val]:
        """In float32, by the inverse of the scale before it was rounded, ties up."""
        b, element, first = self.b, self.fmt.element, self.fmt.scales[0].element
        kept, value = self.of.wanted, self.of.value
        assert kept is not None
        assert value is not None
        # The stored scale, where the rounded one was kept from 0 or from overflow.
        least = _LEAST_WIDE[first.type] if first.kind == "wide" else min(v for v in first.values() if v > 0)
        fits = absolute(kept) > least / 2
        if first.kind != "wide":
            fits = fits & (absolute(kept) <= highest(first))
        kept = b.select(fits, kept, value)
        there = absolute(kept) > 0.0
        inverse = b.select(there, b.const(1.0, "f32") / b.select(there, kept, 1.0), 0.0)

        def code(number: Val) -> Val:
            moved_ = clamp(b, number, -LARGEST, LARGEST) * inverse + (0.5 - element.min)
            moved_ = b.select(moved_.ne(moved_), b.const(-element.min, "f32"), moved_)
            whole = clamp(b, b.op("trunc", moved_), 0.0, highest(element) - element.min).cast("i32")
            return code_of(b, element, whole + int(element.min))

        return code

    def _search(self, ratio: Quotient, sign_of: Val) -> Val:
        """Of any numbers: how many midpoints the quotient is past, by halves."""
        b, element = self.b, self.fmt.element
        middles = thresholds(element)
        most = 4 * max(abs(v) for v in element.values())
        near = clamp(b, ratio.near, -most, most)
        rest = b.select(absolute(ratio.near) < most, ratio.rest, 0.0)
        size = 1 << len(middles).bit_length()
        fill = [inf] * (size - 1 - len(middles))
        above = b.table("middles", [m for m, *_ in middles] + fill)
        lows = [m - round_f32(m) for m, *_ in middles] + [0.0] * len(fill)
        below = b.table("below", lows) if any(lows) else None
        ups = [float(up) for _, up, _ in middles] + [0.0] * len(fill)
        tied = b.table("tied", ups) if any(ups) else None
        at, step = b.var("at", 0, "u32"), size // 2
        while step:
            place = at.get() + (step - 1)
            distance = near - b.load(above, place)
            if below is not None:
                distance = distance - b.load(below, place)
            sign = b.fma(distance, ratio.divisor, rest)
            past = sign > 0.0
            if tied is not None:
                past = past | (sign.eq(0.0) & (b.load(tied, place) > 0.0))
            at.set(b.select(past, at.get() + step, at.get()))
            step //= 2
        codes = [_least_code(element), *(code for _, _, code in middles)]
        found = at.get()
        if codes != list(range(len(codes))):
            found = b.load(b.table("codes", [float(c) for c in codes]), found).cast("u32")
        minus = [i for i, v in enumerate(element.values()) if v == 0 and copysign(1, v) < 0]
        if minus:
            found = b.select(sign_of.bitcast("u32").eq(SIGN), b.const(minus[0], "u32"), found)
        return found
