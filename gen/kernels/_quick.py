"""Words of the codes of a lane's numbers, all at once and without a choice; whether they are surely right.

A number is rounded by adding to it a power of two (FIXED of integers) whose last place is the element's step.
Of scales that are powers of two the quotient is exact, and that is all. Of others it is not: what a code
leaves of the number, by one fused operation, has to be less than half a step, which ties, and quotients too
near to one, are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import frexp
from operator import add, and_

from ..formats.axes import Element, Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import float_bits
from ._entries import Entries
from ._numbers import INFINITY, LARGE, MANTISSA, SIGN, SMALL, highest, largest
from ._pieces import gathered

FIXED = 1.5 * 2.0**MANTISSA
BEYOND = 1.4143
"""So many times the element's largest number are those under a power of two, at most: the root of two."""


def accepts(fmt: Format) -> bool:
    """Formats for which there is this way."""
    element = fmt.element
    plain = element.kind == "int" and not element.offset
    return bool(fmt.scales) and not fmt.zero and (plain or (element.kind == "float" and element.signed))


@dataclass(frozen=True)
class Field:
    """A code: what a word is more than `base`. sign: a word whose highest bit is the code's (of pairs: of
    each half); flip: bits that are the other way round; over: whether the code may be one more than the
    highest."""

    word: Val
    base: int
    sign: Val | None = None
    flip: int = 0
    over: bool = False


Rest = tuple[Val, Val]
"""What a code leaves of a number, and what that has to be less than."""


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

    def words(self, values: Sequence[Val], places: Sequence[Sequence[int]]) -> tuple[list[Val], Val]:
        """(words with the codes of finite numbers at these places, whether they are right)."""
        whole = self.whole(places)
        of, right = self._way(whole), self.applies()
        made = [of(value) for value in values]
        fields = [code for code, _ in made]
        lacks = [(self.b.op("abs", rest[0]) - rest[1]).bitcast("u32") for _, rest in made if rest]
        if lacks:  # all of them have to be negative
            right = right & (reduce(and_, lacks) >= SIGN)
        if whole:
            return self._added(fields, [place[0] for place in places]), right
        return gathered([self._alone(f) for f in fields], self.fmt.element.bits, places, 32), right

    @staticmethod
    def whole(places: Sequence[Sequence[int]]) -> bool:
        """Whether a code's bits are neighbours in one word."""
        return all(p[0] // 32 == p[-1] // 32 and list(p) == list(range(p[0], p[-1] + 1)) for p in places)

    def has_lines(self, whole: bool) -> bool:
        return self.exact and whole and self.fmt.element.exponent == 2 and self.fmt.element.mantissa > 0

    def _way(self, whole: bool) -> Callable[[Val], tuple[Field, Rest | None]]:
        if self.fmt.element.kind == "int":
            return self._integer
        return self._by_lines if self.has_lines(whole) else self._float

    # ------------------------------------------------------------ codes
    def _integer(self, value: Val) -> tuple[Field, Rest | None]:
        b, element = self.b, self.fmt.element
        low, high = int(element.min), int(highest(element))
        total, rest = b.fma(value, self.inverse, FIXED), None
        bits = total.bitcast("u32")
        if not self.exact:
            rest = b.fma(b.op("neg", total - FIXED), self.scale, value), self.scale * 0.5
        if self.exact or -low != high:
            bits = b.minimum(b.maximum(bits, float_bits(FIXED) + low), float_bits(FIXED) + high)
        sign = 1 << (element.bits - 1) if element.signed else 0
        return Field(bits, float_bits(FIXED) - sign, flip=sign), rest

    def _by_lines(self, value: Val) -> tuple[Field, Rest | None]:
        b, quotient = self.b, self.b.op("abs", value) * self.inverse
        lines = [(steep, FIXED + start) for steep, start in lines_of(self.fmt.element)]
        code = reduce(b.minimum, [b.fma(quotient, *line).bitcast("u32") for line in lines])
        if not self.over:
            code = b.minimum(code, float_bits(FIXED) + self.largest)
        return Field(code, float_bits(FIXED), value.bitcast("u32"), over=self.over), None

    @property
    def largest(self) -> int:
        return largest(self.fmt.element)

    @property
    def over(self) -> bool:
        """Whether no number has a code that is more than one beyond the largest."""
        most = self.fmt.element.max * BEYOND
        code = round(min(most * steep + start for steep, start in lines_of(self.fmt.element)))
        return code <= self.largest + 1 == 1 << (self.fmt.element.bits - 1)

    def _float(self, value: Val) -> tuple[Field, Rest | None]:
        """Below its exponent the sum has the code's mantissa, with the bit that carries; the exponent is put
        above it."""
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
            limit = power * (self.scale * 2.0 ** (-1 - element.mantissa))
            rest = b.fma(b.op("neg", near), self.scale, size), limit
        bits = total.bitcast("u32")
        code = bits + (bits >> cut) - (float_bits(2.0 ** (1 - element.bias + cut)) >> cut)
        sign = value.bitcast("u32") >> (32 - element.bits)  # above bits that the code's take the place of
        return Field(((code ^ sign) & ((1 << (element.bits - 1)) - 1)) ^ sign, 0), rest

    # ------------------------------------------------------------ words
    def _alone(self, code: Field) -> Val:
        bits = (code.word - code.base) & ((1 << self.fmt.element.bits) - 1)
        return bits ^ code.flip if code.flip else bits

    def _added(self, fields: Sequence[Field], places: Sequence[int]) -> list[Val]:
        """Fields lie in words of their own, so that they can be added up."""
        words: list[Val] = []
        for at in range(0, max(places) + 1, 32):
            mine = [(f, p - at) for f, p in zip(fields, places) if at <= p < at + 32]
            words.append(self.total(mine))
        return words

    def total(self, fields: Sequence[tuple[Field, int]], each: int = 1) -> Val:
        """Of fields, each moved so many bits up; each: the lowest bits of the codes in a field."""
        b, top = self.b, self.fmt.element.bits - 1
        base = -sum(f.base << p for f, p in fields) % 2**32
        word = reduce(add, [f.word << p for f, p in fields], b.const(base, "u32"))
        if any(f.over for f, _ in fields):
            word = word - ((word & sum(each << (p + top) for _, p in fields)) >> top)
        high = 31 if each == 1 else 15
        flips = sum(f.flip << p for f, p in fields)
        signs = [_moved(f.sign & (each << high), p + top - high) for f, p in fields if f.sign]
        return reduce(add, signs, word ^ flips if flips else word)


def _moved(word: Val, up: int) -> Val:
    return word << up if up > 0 else word >> -up


def lines_of(element: Element) -> list[tuple[float, int]]:
    """(steepness, start): a float's code over the number is a line for each exponent, each less steep than
    that before it: the least of them."""
    steep, count = element.mantissa - 1 + element.bias, (1 << element.exponent) - 1
    return [(2.0 ** (steep - i), i << element.mantissa) for i in range(count)]
