"""quantize_activations: x[m, k] in a block-scaled format, as the matrix instructions read it (tiled).

Bit for bit what wootz.quantize and wootz.tile give, by integers where floats would round twice: the scale by
the format's rule, codes to nearest even, saturating, the sign of -0 kept. NaN takes the element's NaN, and
counts as 0 where there is none. Where the format has a scale of the whole tensor it is given (scale1), so
that no pass over x comes first; it must be positive.

A thread takes four blocks of a row, whose scales are one word of a tile. Every byte of the result is written:
codes past k are 0, and so are scales past k and of rows past m. Float32 numbers that are subnormal are taken
as the device takes them: one that flushes them sees zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import frexp, isqrt

from ..axes import EXPONENT_RULES, Element, Format
from ..dsl import Builder, Val
from ..family import Family, Formula, Operand, Variant
from ..ir import Ref, float_bits
from ..target import Target
from ..vectors import load_ragged, threads_of
from . import _scaled
from ._scaled import COLUMNS, ROWS, RUN, TILE, Scaling

_MANTISSA, _BIAS = 23, 127
_INFINITY, _MAGNITUDE = 0x7F800000, 0x7FFFFFFF
_ONE = _BIAS << _MANTISSA


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    reason = _scaled.refused(fmt)
    if reason or fmt is None:
        return reason
    taken = EXPONENT_RULES if fmt.scales[0].element.kind == "exponent" else ("absmax",)
    if fmt.scales[0].rule not in taken:
        return f"it picks scales by the rules {', '.join(taken)}, not by {fmt.scales[0].rule}"
    return None


# ------------------------------------------------------------ numbers
def small_float(b: Builder, element: Element, magnitude: Val) -> Val:
    """The code of a float's magnitude (its bits, not NaN): nearest even, saturating."""
    cut = _MANTISSA - element.mantissa
    odd = (magnitude >> cut) & 1
    normal = ((magnitude + ((1 << (cut - 1)) - 1) + odd) >> cut) - (
        (_BIAS - element.bias) << element.mantissa
    )
    # Added to this power of two, a number below the normal ones is rounded at the element's smallest step.
    shift = 2.0 ** (1 - element.bias + cut)
    rounded = (magnitude.bitcast("f32") + shift).bitcast("u32") - float_bits(shift)
    code = b.select(magnitude < float_bits(2.0 ** (1 - element.bias)), rounded, normal)
    return b.minimum(code, _largest(element))


def _largest(element: Element) -> int:
    """The code of the largest finite magnitude."""
    half = element.values()[: 1 << (element.bits - 1)]
    return half.index(element.max)


def power_of_two(b: Builder, rule: str, element: Element, peak: Val) -> Val:
    """The e8m0 code of a block's scale, from the bits of its largest magnitude, which is not 0.

    2^(e - f + more) with peak = p 2^e, the element's largest E 2^f, p and E from 1/2 to 1; the rule decides
    on `more` by comparing p with a constant, exactly."""
    fraction, exponent = frexp(element.max)
    top = int(fraction * (2 << _MANTISSA))
    significand = (peak & ((1 << _MANTISSA) - 1)) | (1 << _MANTISSA)
    biased = (peak >> _MANTISSA) + 1
    if rule == "even":
        up = (2 << _MANTISSA) - (1 << (_MANTISSA - 1 - element.mantissa))
        biased = biased + _as_number(b, significand >= up)
    elif rule == "ceil":
        biased = biased + _as_number(b, significand > top)
    elif rule == "nearest":
        biased = biased + _as_number(b, significand > isqrt(2 * top * top))
        biased = biased - _as_number(b, significand <= isqrt(top * top // 2))
    return b.maximum(biased, exponent) - exponent


def _as_number(b: Builder, condition: Val) -> Val:
    return b.select(condition, b.const(1, "u32"), 0)


def _normal(b: Builder, bits: Val) -> tuple[Val, Val]:
    """(P, e) with P from 2^23 to 2^24 and the float of those bits (positive, finite) = P 2^(e - 150)."""
    fraction = bits & ((1 << _MANTISSA) - 1)
    subnormal = bits < (1 << _MANTISSA)
    lifted = fraction.cast("f32").bitcast("u32")  # the same significand, 2^149 times as large
    chosen = b.select(subnormal, lifted, bits)
    exponent = (chosen >> _MANTISSA).cast("i32") - b.select(subnormal, b.const(149, "i32"), 0)
    return (chosen & ((1 << _MANTISSA) - 1)) | (1 << _MANTISSA), exponent


def quotient(b: Builder, scale: Element, largest: float, peak: Val, above: Val) -> Val:
    """The code of peak / (largest * above), rounded to float32 and then to the scale's type, at least its
    smallest number. peak, above: bits of positive floats.

    The quotient is taken in integers, 27 bits and more with a last one for the rest, so that the float that
    it is cast to is rounded once."""
    (p, e), (g, f) = _normal(b, peak), _normal(b, above)
    odd, exponent = int(largest), 0
    while odd % 2 == 0:
        odd, exponent = odd // 2, exponent + 1
    dividend, divisor = p.cast("u64") << 30, g.cast("u64") * odd
    whole = dividend // divisor
    rest = (dividend - whole * divisor).ne(0)
    single = (whole.cast("u32") | _as_number(b, rest)).cast("f32").bitcast("u32")
    biased = (single >> _MANTISSA).cast("i32") + e - f - (30 + exponent)
    biased = b.minimum(b.maximum(biased, 1), 2 * _BIAS)
    bits = (biased.cast("u32") << _MANTISSA) | (single & ((1 << _MANTISSA) - 1))
    return b.maximum(small_float(b, scale, bits), 1)


def small_value(b: Builder, element: Element, code: Val) -> Val:
    """The number of a finite code without sign."""
    normal = (code << (_MANTISSA - element.mantissa)) + ((_BIAS - element.bias) << _MANTISSA)
    step = 2.0 ** (1 - element.bias - element.mantissa)
    return b.select(code < (1 << element.mantissa), code.cast("f32") * step, normal.bitcast("f32"))


# ------------------------------------------------------------ blocks
@dataclass(frozen=True)
class Block:
    """One block of one row in a thread's registers. above: the bits of the tensor's scale."""

    b: Builder
    fmt: Format
    of: Scaling
    values: Ref
    above: Val

    def peak(self) -> Val:
        """The bits of the largest finite magnitude; of the element's largest where the block has infinities
        and otherwise zeros."""
        b = self.b
        largest, infinite = b.var("largest", 0, "u32"), b.var("infinite", 0, "u32")
        with b.loop(0, self.of.block, unroll=True) as i:
            bits = b.load(self.values, i).bitcast("u32") & _MAGNITUDE
            largest.set(b.maximum(largest.get(), b.select(bits < _INFINITY, bits, 0)))
            infinite.set(infinite.get() | _as_number(b, bits.eq(_INFINITY)))
        found = largest.get()
        alone = found.eq(0) & infinite.get().ne(0)
        return b.select(alone, b.const(float_bits(self.fmt.element.max), "u32"), found)

    def scale(self, peak: Val) -> Val:
        """The scale's code: of a block of zeros that of 1 where the type has no zero, else 0."""
        b, level = self.b, self.fmt.scales[0]
        if level.element.kind == "exponent":
            code = power_of_two(b, level.rule, self.fmt.element, peak)
            return b.select(peak.eq(0), b.const(level.element.bias, "u32"), code)
        code = quotient(b, level.element, self.fmt.element.max, peak, self.above)
        return b.select(peak.eq(0), b.const(0, "u32"), code)

    def codes(self, scale: Val, into: Ref) -> None:
        """The words of the block's codes."""
        b, bits = self.b, self.of.bits
        code = (
            self._by_power(scale) if self.fmt.scales[0].element.kind == "exponent" else self._by_steps(scale)
        )
        with b.loop(0, self.of.block * bits // 32, unroll=True) as word:
            packed: Val | None = None
            for j in range(32 // bits):
                piece = code(b.load(self.values, word * (32 // bits) + j)) << (bits * j)
                packed = piece if packed is None else packed | piece
            assert packed is not None
            b.store(into, word, packed)

    def _signed(self, value: Val, magnitude: Val, kept: Val | None = None) -> Val:
        """The magnitude's code with the value's sign; NaN as its code, or 0 where there is none."""
        b, element = self.b, self.fmt.element
        word = value.bitcast("u32")
        sign = (word >> 31) << (element.bits - 1)
        code = magnitude | (sign if kept is None else b.select(kept, sign, 0))
        nans = [i for i, v in enumerate(element.values()) if v != v]
        return b.select((word & _MAGNITUDE) > _INFINITY, b.const(nans[0] if nans else 0, "u32"), code)

    def _by_power(self, scale: Val) -> Callable[[Val], Val]:
        """Codes of value / 2^n: the quotient is exact."""
        b = self.b
        inverse = ((b.const(2 * _BIAS, "u32") - scale) << _MANTISSA).bitcast("f32")

        def code(value: Val) -> Val:
            magnitude = (value * inverse).bitcast("u32") & _MAGNITUDE
            return self._signed(value, small_float(b, self.fmt.element, magnitude))

        return code

    def _by_steps(self, scale: Val) -> Callable[[Val], Val]:
        """Codes of value / s for any s: one more for each midpoint that the value is past. A midpoint has few
        bits, so the fused difference has the right sign. Small scales are lifted out of the subnormals."""
        b, element = self.b, self.fmt.element
        plain = small_value(b, self.fmt.scales[0].element, scale) * self.above.bitcast("f32")
        factor = b.select(plain < 2.0**-60, b.const(2.0**60, "f32"), 1.0)
        lifted = plain * factor
        numbers = element.values()[: 1 << (element.bits - 1)]
        middles = [(low + high) / 2 for low, high in pairwise(numbers)]

        def code(value: Val) -> Val:
            magnitude = (value.bitcast("u32") & _MAGNITUDE).bitcast("f32") * factor
            total: Val | None = None
            for i, middle in enumerate(middles):
                past = b.fma(lifted, -middle, magnitude)
                one = _as_number(b, past >= 0.0 if i % 2 else past > 0.0)
                total = one if total is None else total + one
            assert total is not None
            there = plain > 0.0
            return self._signed(value, b.select(there, total, 0), there)

        return code


# ------------------------------------------------------------ the kernel
def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    of = _scaled.weights(fmt, "quantize_activations")
    assert fmt is not None
    threads, span = threads_of(target.simd, 128), of.block * COLUMNS
    format_ = fmt

    def build(b: Builder) -> None:
        x = b.buffer("x", dtype)
        scale1 = b.buffer("scale1", "f32") if of.globally else None
        codes, tiles = b.buffer("y.codes", "u8", "out"), b.buffer("y.tiles", "u8", "out")
        m, k = b.scalar("m"), b.scalar("k")
        pitch = b.ceildiv(k, RUN) * (RUN * of.bits // 8)
        spans = b.ceildiv(k, RUN) * (RUN // span)
        item = b.block() * threads + b.thread()
        row, at = item // spans, item % spans
        with b.when(row < b.ceildiv(m, ROWS) * ROWS):
            word = b.var("scales", 0, "u32")
            with b.when(row < m):
                above = b.load(scale1, 0).bitcast("u32") if scale1 is not None else b.const(_ONE, "u32")
                line = b.at(x, row.cast("u64") * k.cast("u64"))
                out = b.at(codes, row.cast("u64") * pitch.cast("u64"))
                values = b.local("values", "f32", of.block)
                packed = b.local("packed", "u32", of.block * of.bits // 32)
                with b.loop(0, COLUMNS) as i:
                    first = (at * COLUMNS + i) * of.block
                    load_ragged(b, line, first, k, dtype, values, of.block)
                    block = Block(b, format_, of, values, above)
                    scale = block.scale(block.peak())
                    block.codes(scale, packed)
                    for j in range(0, packed.size, 4):
                        words = [b.load(packed, j + i) for i in range(min(4, packed.size))]
                        b.store_words(out, first * of.bits // 8 + 4 * j, words)
                    inside = b.select(first < k, scale, 0)
                    word.set(word.get() | (inside << (i * 8)))
            place = ((row // ROWS) * spans + at).cast("u64") * TILE
            place = place + ((row % 32) * 16 + row % ROWS // 32 * COLUMNS).cast("u64")
            b.store_words(tiles, place, [word.get()])

    spans: Formula = ["mul", ["ceildiv", "k", RUN], RUN // span]
    items: Formula = ["mul", ["mul", ["ceildiv", "m", ROWS], ROWS], spans]
    fits: tuple[Formula, ...] = (["lt", items, 2**31], ["lt", "k", 2**31])
    yield Variant("", threads, (["ceildiv", items, threads], 1, 1), build, fits, options)


FAMILY = Family(
    (
        Operand("x", "array", ("m", "k")),
        Operand("scale1", "array", (1, 1), "f32", optional=True, handed_on=True),
    ),
    Operand("y", "tiled", ("m", "k")),
    variants,
    accepts=accepts,
)
