"""Words of the codes of a lane's numbers, all at once; of a block it is known whether they are right.

A number is rounded by adding to it a power of two (FIXED of integers) whose last place is the element's
step, ties to even. That is right where x / s as a float32 is on a midpoint T of two codes where it is
exactly, and else on the same side of each. Of scales that are powers of two it is exact. Of others it is
q = RN(x hi + RN(x lo)), where hi + lo is 1 / s but for 2^-39 of it: q = T where x / s is, for 2^-39 of T
are less than half of its last place. What else is near to T is told from it in one of two ways.

Numbers of 16 bits, `apart`. Their scale is N / D but for roundings to float32, and x / s = x D / N (1 + d),
|d| < 2^-22; or it is short itself, D = 1 and d = 0. For odd integers X, N, m, the significands of x, N, T,
x D / N is X D / (N m) 2^i of T, and so T or at least 1 / (N m) or 1 / (X D + 1) of it away: 2^-20 (APART).
What is nearer is T (1 + d), and the sign of d the block's: by that sign lo has 2^-23 (TILT) of 1 / s more,
which takes q off T, and no other across one. All codes are right.

Other numbers: the code may be the other one next to T. What it leaves of x, x - c s, is then half of s and
more, and by one fused operation exact, a multiple of half the last place of s below 2 s, or x itself: where
it is more than half of s the code goes a step further. All codes are right.

Integers may do with hi alone, by a sum of x hi (1 + 2^-24) with a power of two whose last place `grid` takes
it to T where x / s is, 2^-24 T being less than half of it. What is not on T is away from it by more than
half of it and the tilt, 2 of it, by the same fractions; those are 1 / (2 N) and T / (X D + 1), T >= 1 / 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import frexp
from operator import add

from ..formats.axes import Element, Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import float_bits
from ..ir.vectors import from_words
from ..manifest.target import Target
from ._entries import Entries
from ._numbers import INFINITY, LARGE, MAGNITUDE, MANTISSA, SMALL, highest, largest
from ._pieces import gathered

FIXED = 1.5 * 2.0**MANTISSA
BEYOND = 1.4143
"""So many times the element's largest number are those under a power of two, at most: the root of two."""
BELOW, TILT, APART = 1 - 2.0**-20, 2.0**-23, 20
"""hi is so much of 1 / s: lo is positive, and 0 keeps its sign, but for integers on a grid, which have one
zero. What lo is tilted by; bits of `apart`."""
SIGNIFICANDS = {"f16": 11, "bf16": 8, "f32": 24}
CONVERSIONS = {(4, 3, 7, "nan"): "pack_e4m3", (5, 2, 15, "ieee"): "pack_e5m2"}
"""Floats (exponent, mantissa, bias, specials) that targets with `fp8_convert` make."""


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


@dataclass(frozen=True)
class Quick:
    """Of a block, by what is stored for it. peak: the bits of its largest magnitude; above: those of the
    scale of the whole tensor; dtype: of its numbers."""

    b: Builder
    fmt: Format
    target: Target
    of: Entries
    peak: Val
    above: Val | None
    dtype: str

    @property
    def exact(self) -> bool:
        """Whether scales are powers of two, under which numbers may be beyond the element's."""
        return self.fmt.scales[0].element.kind == "exponent" and len(self.fmt.scales) == 1

    @cached_property
    def scale(self) -> Val:
        assert self.of.value is not None
        return self.of.value

    # ------------------------------------------------------------ quotients
    @cached_property
    def inverse(self) -> Val:
        """1 / s, of which `rest` is the rest."""
        if self.exact:
            return (self.b.const(2 * 127 << MANTISSA, "u32") - self.scale.bitcast("u32")).bitcast("f32")
        return self.b.op("fast_div", self.b.const(BELOW, "f32"), self.scale)

    @cached_property
    def rest(self) -> Val:
        b, lacks = self.b, self.b.fma(self.b.op("neg", self.inverse), self.scale, 1.0)
        excess = self._excess() if self.apart else None
        if excess is not None:
            tilt = 2 * self.grid or TILT
            more = b.select(excess < 0.0, b.const(tilt, "f32"), 0.0)
            lacks = lacks + b.select(excess > 0.0, b.const(-tilt, "f32"), more)
        return lacks * self.inverse

    @cached_property
    def near(self) -> Val:
        """1 / s to the nearest float32, tilted."""
        return self.inverse + self.rest

    def quotient(self, value: Val) -> Val:
        if self.exact:
            return value * self.inverse
        return self.b.fma(value, self.inverse, value * self.rest)

    @property
    def _ratio(self) -> tuple[int, float]:
        """Of the N / D that a scale is: bits of N, and D."""
        levels = [scale.element for scale in self.fmt.scales]
        if len(levels) > 1:
            return SIGNIFICANDS[self.dtype] + significand(levels[0]), self.fmt.element.max * levels[0].max
        if levels[0].type == "f32":
            return SIGNIFICANDS[self.dtype], self.fmt.element.max
        return significand(levels[0]), 1.0

    @property
    def apart(self) -> bool:
        """Whether quotients of numbers by N / D are on midpoints of codes, or apart from them."""
        whole, divisor = self._ratio
        return max(whole + self._middle, SIGNIFICANDS[self.dtype] + odd(divisor).bit_length()) <= APART

    @property
    def _middle(self) -> int:
        """Bits of midpoints of codes."""
        element = self.fmt.element
        return element.bits + (not element.signed) if element.kind == "int" else element.mantissa + 2

    @property
    def grid(self) -> float:
        """The last place of a sum that has room for integers; 0 where it is none that will do."""
        place = 2.0 ** (self._middle - MANTISSA)
        if self.fmt.element.kind != "int" or self.exact or not self.apart:
            return 0.0
        (whole, divisor), off = self._ratio, TILT
        if divisor != 1.0:
            off += 2 * place
        own = SIGNIFICANDS[self.dtype] + odd(divisor).bit_length()
        most = 2.0 ** (self._middle - 1)
        fits = place / 2 + most * off < 2.0 ** -(whole + 1) and place + off < 2.0**-own
        return place if fits else 0.0

    def _excess(self) -> Val | None:
        """Of the sign of s - N / D, which is not 0 of them all."""
        b, (_, divisor) = self.b, self._ratio
        if divisor == 1.0:
            return None
        whole = self.peak.bitcast("f32")
        if self.above is not None and self.of.own is not None:
            # The largest of the tensor is the number of its type that D times its scale rounds to.
            whole = (self.above.bitcast("f32") * divisor).cast(self.dtype).cast("f32") * self.of.own
        return b.fma(self.scale, divisor, b.op("neg", whole))

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

    # ------------------------------------------------------------ codes
    def words(self, held: Sequence[Val], places: Sequence[Sequence[int]]) -> list[Val]:
        """Words with the codes, at these places, of the finite numbers that are `held`: right ones where
        this `applies`."""
        values, whole = from_words(self.b, held, self.dtype, len(places)), self.whole(places)
        if whole and (operation := self._conversion):
            return self._converted(operation, values, [place[0] for place in places])
        mask = MAGNITUDE if self.dtype == "f32" else 0x7FFF7FFF
        sizes = from_words(self.b, [word & mask for word in held], self.dtype, len(places))
        of = self._way(whole)
        fields = [of(value, size) for value, size in zip(values, sizes)]
        if whole and self.fmt.element.bits < 8:
            return self._added(fields, [place[0] for place in places])
        return gathered([self._alone(f) for f in fields], self.fmt.element.bits, places, 32)

    @staticmethod
    def whole(places: Sequence[Sequence[int]]) -> bool:
        """Whether a code's bits are neighbours in one word."""
        return all(p[0] // 32 == p[-1] // 32 and list(p) == list(range(p[0], p[-1] + 1)) for p in places)

    def has_lines(self, whole: bool) -> bool:
        element = self.fmt.element
        return (self.exact or self.apart) and whole and element.exponent == 2 and element.mantissa > 0

    def _way(self, whole: bool) -> Callable[[Val, Val], Field]:
        """The code of (a number, its magnitude)."""
        if self.fmt.element.kind == "int":
            return self._integer
        return self._by_lines if self.has_lines(whole) else self._float

    def _integer(self, value: Val, size: Val) -> Field:
        b, element = self.b, self.fmt.element
        low, high = int(element.min), int(highest(element))
        if self.exact:
            total = b.fma(value, self.inverse, FIXED)
        elif self.grid:
            first = 1.5 * 2.0**MANTISSA * self.grid
            total = b.fma(value, self.near, first) + (FIXED - first)
        else:
            total = self.quotient(value) + FIXED
            total = self._mended(value, total, total - FIXED, self.scale * 0.5)
        bits = total.bitcast("u32")
        if self.exact or -low != high:
            bits = b.minimum(b.maximum(bits, float_bits(FIXED) + low), float_bits(FIXED) + high)
        sign = 1 << (element.bits - 1) if element.signed else 0
        return Field(bits, float_bits(FIXED) - sign, flip=sign)

    def _mended(self, value: Val, total: Val, near: Val, limit: Val) -> Val:
        """total: a sum whose last place is a step, `near` what it says the quotient is; a step further where
        that leaves more than `limit`."""
        if self.apart:
            return total
        rest = self.b.fma(self.b.op("neg", near), self.scale, value)
        further = self.b.fma(rest, self.inverse * 1.5, total)
        return self.b.select(self.b.op("abs", rest) > limit, further, total)

    def _by_lines(self, value: Val, size: Val) -> Field:
        b, quotient = self.b, self.quotient(size)
        lines = [(steep, FIXED + start) for steep, start in lines_of(self.fmt.element)]
        code = reduce(b.minimum, [b.fma(quotient, *line).bitcast("u32") for line in lines])
        if not self.over:
            code = b.minimum(code, float_bits(FIXED) + self.largest)
        return Field(code, float_bits(FIXED), value.bitcast("u32"), over=self.over)

    @property
    def largest(self) -> int:
        return largest(self.fmt.element)

    @property
    def over(self) -> bool:
        """Whether no number has a code that is more than one beyond the largest."""
        most = self.fmt.element.max * BEYOND
        code = round(min(most * steep + start for steep, start in lines_of(self.fmt.element)))
        return code <= self.largest + 1 == 1 << (self.fmt.element.bits - 1)

    def _float(self, value: Val, size: Val) -> Field:
        """Below its exponent the sum has the code's mantissa, with the bit that carries; the exponent is put
        above it."""
        b, element = self.b, self.fmt.element
        cut, least = MANTISSA - element.mantissa, float_bits(2.0 ** (1 - element.bias))
        quotient = self.quotient(size)
        if self.exact:
            quotient = b.minimum(quotient.bitcast("u32"), float_bits(element.max)).bitcast("f32")
        power = b.maximum(quotient.bitcast("u32") & INFINITY, least).bitcast("f32")
        total = b.fma(power, 2.0**cut, quotient)
        if not self.exact:
            limit = power * (self.scale * 2.0 ** (-1 - element.mantissa))
            total = self._mended(size, total, b.fma(power, -(2.0**cut), total), limit)
        bits = total.bitcast("u32")
        code = bits + (bits >> cut) - (float_bits(2.0 ** (1 - element.bias + cut)) >> cut)
        sign = value.bitcast("u32") >> (32 - element.bits)  # above bits that the code's take the place of
        return Field(((code ^ sign) & ((1 << (element.bits - 1)) - 1)) ^ sign, 0)

    # ------------------------------------------------------------ conversions
    @property
    def _conversion(self) -> str | None:
        """The operation that makes a word of four numbers."""
        element = self.fmt.element
        if element.kind != "float" or not (self.exact or self.apart) or not self.target.has("fp8_convert"):
            return None
        return CONVERSIONS.get((element.exponent, element.mantissa, element.bias, element.specials))

    def _converted(self, operation: str, values: Sequence[Val], starts: Sequence[int]) -> list[Val]:
        made = [self.quotient(values[starts.index(at)]).value for at in sorted(starts)]
        return [self.b.make(operation, "u32", tuple(made[i : i + 4])) for i in range(0, len(made), 4)]

    # ------------------------------------------------------------ words
    def _alone(self, code: Field) -> Val:
        """What is turned round is the highest bit, if any: the same as adding it."""
        mask = (1 << self.fmt.element.bits) - 1
        return (code.word - ((code.base + code.flip) & mask)) & mask

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


def significand(element: Element) -> int:
    """Bits of its numbers."""
    if element.kind == "wide":
        return SIGNIFICANDS[element.type]
    return element.bits if element.kind == "int" else element.mantissa + 1


def odd(number: float) -> int:
    """The odd integer of which it is a power of two."""
    whole = number.as_integer_ratio()[0]
    return whole // (whole & -whole)
