"""Codes of a block's numbers, once its scale and zero point are chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from math import copysign, inf, isfinite

from ..formats.axes import Element, Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import round_f32
from . import _numbers
from ._entries import LEAST_WIDE, Entries, code_of
from ._numbers import (
    BIAS,
    FAR,
    INFINITY,
    LARGEST,
    MAGNITUDE,
    MANTISSA,
    SIGN,
    Quotient,
    absolute,
    clamp,
    highest,
    signed,
)


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
            return self._signed(bits, _numbers.small_float(b, element, bits & MAGNITUDE))
        near = clamp(b, ratio, -self._far, self._far)
        return self._search(Quotient(b, near, b.const(0.0, "f32"), b.const(1.0, "f32")), ratio)

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
        there, (factor, _) = magnitude > 0.0, _numbers.moved(b, magnitude)
        divisor = b.select(there, magnitude * factor, 1.0)
        inverse, limit = b.const(1.0, "f32") / divisor, divisor * self._far

        def code(value: Val) -> Val:
            high, low = value * factor, None
            if zero and zero.domain == "value" and self.of.point is not None:
                high, low = _numbers.two_sum(high, b.op("neg", self.of.point * factor))
                low = b.select(there, signed(_numbers.as_double(b, high, low), sign), 0.0)
            bits = b.select(there, high.bitcast("u32") ^ sign, 0)
            size = (bits & MAGNITUDE).bitcast("f32")
            size = b.select(size < limit, size, limit)
            high = size if element.kind == "float" else signed(size, bits & SIGN)
            ratio = Quotient.by_inverse(b, high, low, divisor, inverse)
            if element.kind == "int":
                added = self.of.point if zero and zero.domain == "code" and self.of.point is not None else 0
                return code_of(b, element, ratio.whole(int(element.min), int(highest(element)), added))
            if element.kind == "float":
                return self._signed(bits, ratio.small_float(element))
            return self._search(ratio, high)

        return code

    @property
    def _far(self) -> float:
        """A quotient that saturates, and so do larger ones."""
        element = self.fmt.element
        return FAR if element.kind == "int" else 4 * max(abs(v) for v in element.values() if isfinite(v))

    def _as_gguf(self) -> Callable[[Val], Val]:
        """In float32, by the inverse of the scale before it was rounded, ties up."""
        b, element, first = self.b, self.fmt.element, self.fmt.scales[0].element
        kept, value = self.of.wanted, self.of.value
        assert kept is not None
        assert value is not None
        # The stored scale, where the rounded one was kept from 0 or from overflow.
        least = LEAST_WIDE[first.type] if first.kind == "wide" else min(v for v in first.values() if v > 0)
        fits = absolute(kept) > least / 2
        if first.kind != "wide":
            fits = fits & (absolute(kept) <= highest(first))
        kept = b.select(fits, kept, value)
        there = absolute(kept) > 0.0
        inverse = b.select(there, b.const(1.0, "f32") / b.select(there, kept, 1.0), 0.0)

        def code(number: Val) -> Val:
            shifted = clamp(b, number, -LARGEST, LARGEST) * inverse + (0.5 - element.min)
            shifted = b.select(shifted.ne(shifted), b.const(-element.min, "f32"), shifted)
            whole = clamp(b, b.op("trunc", shifted), 0.0, highest(element) - element.min).cast("i32")
            return code_of(b, element, whole + int(element.min))

        return code

    def _search(self, ratio: Quotient, sign_of: Val) -> Val:
        """Of any numbers: how many midpoints the quotient is past, by halves."""
        b, element = self.b, self.fmt.element
        middles = thresholds(element)
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
            distance = ratio.near - b.load(above, place)
            if below is not None:
                distance = distance - b.load(below, place)
            sign = b.fma(distance, ratio.divisor, ratio.rest)
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
