"""Codes of a lane's numbers, all at once and without a choice; and whether they are surely right.

A number is rounded by adding to it a power of two (FIXED of integers) whose last place is the element's step.
Of scales that are powers of two the quotient is exact, and that is all. Of others it is not: what a code
leaves of the number, by one fused operation, has to be less than half a step, which ties, and quotients too
near to one, are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import frexp
from operator import and_

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import float_bits
from ._entries import Entries
from ._numbers import INFINITY, LARGE, MANTISSA, SIGN, SMALL, highest

FIXED = 1.5 * 2.0**MANTISSA


def accepts(fmt: Format) -> bool:
    """Formats for which there is this way."""
    element = fmt.element
    plain = element.kind == "int" and not element.offset
    return bool(fmt.scales) and not fmt.zero and (plain or (element.kind == "float" and element.signed))


@dataclass(frozen=True)
class Quick:
    """Of a block, by what is stored for it. peak: the bits of its largest magnitude."""

    b: Builder
    fmt: Format
    of: Entries
    peak: Val

    @property
    def exact(self) -> bool:
        """Whether scales are powers of two, under which numbers may be beyond the element's."""
        return self.fmt.scales[0].element.kind == "exponent" and len(self.fmt.scales) == 1

    @cached_property
    def scale(self) -> Val:
        assert self.of.value is not None
        return self.of.value

    @cached_property
    def inverse(self) -> Val:
        if self.exact:
            return (self.b.const(2 * 127 << MANTISSA, "u32") - self.scale.bitcast("u32")).bitcast("f32")
        return self.b.op("fast_div", self.b.const(1.0, "f32"), self.scale)

    def applies(self) -> Val:
        """Whether nothing is lost to underflow or overflow, and no quotient is beyond the element's range."""
        fits = (self.scale >= SMALL) & (self.scale < LARGE)
        if self.exact:
            return fits
        return fits & (self.peak.bitcast("f32") * self.inverse <= self._most)

    @property
    def _most(self) -> float:
        """What is rounded to the element's largest magnitude."""
        element = self.fmt.element
        step = 1.0 if element.kind == "int" else 2.0 ** (frexp(element.max)[1] - 1 - element.mantissa)
        return element.max + step * 0.49

    def codes(self, values: Sequence[Val]) -> tuple[list[Val], Val]:
        """(the codes of finite numbers, whether they are right)."""
        of = self._integer if self.fmt.element.kind == "int" else self._float
        made = [of(value) for value in values]
        signs = [
            (self.b.op("abs", rest) - limit).bitcast("u32") for _, rest, limit in made if rest is not None
        ]
        right = self.applies()
        if signs:  # all of them have to be negative
            right = right & (reduce(and_, signs) >= SIGN)
        return [code for code, *_ in made], right

    def _integer(self, value: Val) -> tuple[Val, Val | None, Val]:
        """The code, what it leaves, which has to be less than the third."""
        b, element, rest = self.b, self.fmt.element, None
        total = b.fma(value, self.inverse, FIXED)
        if not self.exact:
            rest = b.fma(b.op("neg", total - FIXED), self.scale, value)
        bits = total.bitcast("u32")
        low, high = int(element.min), int(highest(element))
        if self.exact or -low != high:
            bits = b.minimum(b.maximum(bits, float_bits(FIXED) + low), float_bits(FIXED) + high)
        return bits & ((1 << element.bits) - 1), rest, self.scale * 0.5

    def _float(self, value: Val) -> tuple[Val, Val | None, Val]:
        """The same. Below its exponent the sum has the code's mantissa, with the bit that carries; the
        exponent is put above it."""
        b, element, rest = self.b, self.fmt.element, None
        cut, least = MANTISSA - element.mantissa, float_bits(2.0 ** (1 - element.bias))
        size = b.op("abs", value)
        quotient = size * self.inverse
        if self.exact:
            quotient = b.minimum(quotient.bitcast("u32"), float_bits(element.max)).bitcast("f32")
        power = b.maximum(quotient.bitcast("u32") & INFINITY, least).bitcast("f32")
        total = b.fma(power, 2.0**cut, quotient)
        if not self.exact:
            near = b.fma(power, -(2.0**cut), total)
            rest = b.fma(b.op("neg", near), self.scale, size)
        bits = total.bitcast("u32")
        code = bits + (bits >> cut) - (float_bits(2.0 ** (1 - element.bias + cut)) >> cut)
        code = code & ((1 << (element.bits - 1)) - 1)
        code = code | ((value.bitcast("u32") & SIGN) >> (32 - element.bits))
        return code, rest, power * (self.scale * 2.0 ** (-1 - element.mantissa))
