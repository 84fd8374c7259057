"""Decode of packed elements, by element kind: the one definition that every backend emits.

A code's bits lie at positions of a row of 32-bit words (little-endian: bit p is bit p % 32 of word p // 32).
`decode` turns positions into f32 values; `KINDS` is the table of ways to do it, tried in order, so a fast
bit trick for a kind is one row and serves every format of that kind. All rows are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..formats.axes import Element
from ..manifest.target import Target
from .dsl import Builder, Val
from .nodes import float_bits
from .vectors import from_words

Positions = Sequence[int]


@dataclass(frozen=True)
class Run:
    """`length` bits of a code, from bit `low` of the code, at bit `shift` of word `word`."""

    word: int
    shift: int
    low: int
    length: int


def runs(positions: Positions) -> list[Run]:
    """The maximal runs of consecutive bits of one code, none crossing a word's end."""
    found: list[Run] = []
    for low, position in enumerate(positions):
        word, shift = divmod(position, 32)
        last = found[-1] if found else None
        if last and last.word == word and last.shift + last.length == shift and last.low + last.length == low:
            found[-1] = Run(word, last.shift, last.low, last.length + 1)
        else:
            found.append(Run(word, shift, low, 1))
    return found


def extract(b: Builder, words: Sequence[Val], positions: Positions) -> Val:
    """The code as a u32."""
    code: Val | None = None
    for run in runs(positions):
        piece = words[run.word] >> run.shift
        if run.shift + run.length < 32:
            piece = piece & ((1 << run.length) - 1)
        piece = piece << run.low
        code = piece if code is None else code | piece
    if code is None:
        raise ValueError("extract: a code needs at least one bit position")
    return code


_MANTISSA = 23


def _integer(element: Element) -> tuple[int, int]:
    """(bit to flip, offset): value = (code ^ flip) - offset, for two's complement, offset and plain codes."""
    sign = 1 << (element.bits - 1)
    return (sign, sign) if element.signed else (0, element.offset)


def _int_by_mantissa(
    b: Builder,
    element: Element,
    words: Sequence[Val],
    codes: Sequence[Positions],
    less: Val | None = None,
) -> list[Val]:
    """Integers by writing the code into the mantissa of a power of two and subtracting that power: exact,
    and one bit operation and one subtraction a code where the code lies in one word."""
    flip, offset = _integer(element)
    values: list[Val] = []
    for positions in codes:
        pieces = runs(positions)
        word, shift = extract(b, words, positions), 0
        if len(pieces) == 1:
            word, shift = words[pieces[0].word], pieces[0].shift
            if shift + element.bits > _MANTISSA:
                word, shift = word >> 16, shift - 16  # a code has at most 8 bits, so this always makes room
        power = 2.0 ** (_MANTISSA - shift)
        bits = b.op("and_xor", word, ((1 << element.bits) - 1) << shift, float_bits(power) | (flip << shift))
        base = power + offset
        values.append(bits.bitcast("f32") - (base if less is None else less + base))
    return values


def _float_by_half(
    b: Builder, element: Element, words: Sequence[Val], codes: Sequence[Positions]
) -> list[Val]:
    """Small floats by moving sign and magnitude to an f16's places, for both halves of a word at once. The
    f16's own subnormals are the element's, so nothing is special-cased; the two biases differ by the
    factor."""
    payload = element.exponent + element.mantissa
    values: list[Val] = []
    for positions in codes:
        pieces = runs(positions)
        if len(pieces) == 1 and pieces[0].shift // 16 == (pieces[0].shift + element.bits - 1) // 16:
            word, shift = words[pieces[0].word], pieces[0].shift
        else:
            word, shift = extract(b, words, positions), 0
        half, low = divmod(shift, 16)
        bits = halves(b, element, word, low)
        value = b.make("unpack_f16", "f32", (bits.value,), {"half": half})
        if element.specials == "nan":
            ones = ((1 << payload) - 1) << (16 * half + low)
            value = b.select((word & ones).eq(ones), b.const(float("nan"), "f32"), value)
        values.append(value)
    return values


def halves(b: Builder, element: Element, word: Val, low: int) -> Val:
    """The codes at bits `low` and `low` + 16 as f16, each lacking `half_factor`; NaN is a number where an f16
    has further exponents."""
    payload = element.exponent + element.mantissa
    top = 10 - element.mantissa  # where the payload's lowest bit belongs
    bits = _shift(word, top - low) & (0x10001 * (((1 << payload) - 1) << top))
    return bits | (_shift(word, 15 - low - payload) & 0x80008000) if element.signed else bits


def nan_codes(element: Element, word: Val) -> Val | None:
    """One at the `sign_bits` of those codes of a word that are NaN and that `halves` makes numbers (a sum
    that reaches the sign); other bits mean nothing. None where there are no such codes."""
    sign = sign_bits(element)
    ones = sign >> (element.bits - 1)
    return (word & (sign - ones)) + ones if element.specials == "nan" else None


def sign_bits(element: Element) -> int:
    """Of all codes of a word."""
    return sum(1 << at for at in range(element.bits - 1, 32, element.bits))


def half_factor(element: Element) -> float:
    return 2.0 ** (15 - element.bias)


def _shift(word: Val, left: int) -> Val:
    return word << left if left >= 0 else word >> -left


def _each(decode_code: Callable[[Builder, Element, Val], Val]) -> Callable[..., list[Val]]:
    """A way that works code by code."""

    def way(b: Builder, element: Element, words: Sequence[Val], codes: Sequence[Positions]) -> list[Val]:
        return [decode_code(b, element, extract(b, words, p)) for p in codes]

    return way


def _float_by_select(b: Builder, element: Element, code: Val) -> Val:
    """Any small float with integer operations: normals are rebiased in place, subnormals are an integer
    times the smallest step, specials are selected."""
    e, m = element.exponent, element.mantissa
    magnitude = code & ((1 << (e + m)) - 1)
    normal = ((magnitude << (_MANTISSA - m)) + ((127 - element.bias) << _MANTISSA)).bitcast("f32")
    step = 2.0 ** (1 - element.bias - m)
    value = b.select(magnitude < (1 << m), magnitude.cast("f32") * step, normal)
    if element.specials == "nan":
        value = b.select(magnitude.eq((1 << (e + m)) - 1), b.const(float("nan"), "f32"), value)
    elif element.specials == "ieee":
        infinity = ((1 << e) - 1) << m
        value = b.select(magnitude.eq(infinity), b.const(float("inf"), "f32"), value)
        value = b.select(magnitude > infinity, b.const(float("nan"), "f32"), value)
    if element.signed:
        value = (value.bitcast("u32") | ((code >> (e + m)) << 31)).bitcast("f32")
    return value


def _float_by_minimum(
    b: Builder, element: Element, words: Sequence[Val], codes: Sequence[Positions]
) -> list[Val]:
    """Small floats without a choice, so that compilers make vector instructions of it. Rebiased in place, a
    normal number is a = 2^e (1 + f), and a subnormal 2a - 2^(1 - bias); the lesser of both is right for
    either, as bits, too, since none is negative."""
    e, m, payload = element.exponent, element.mantissa, element.exponent + element.mantissa
    place = _MANTISSA - m
    values: list[Val] = []
    for positions in codes:
        pieces = runs(positions)
        word, low = extract(b, words, positions), 0
        if len(pieces) == 1:
            word, low = words[pieces[0].word], pieces[0].shift
        magnitude = _shift(word, place - low) & (((1 << payload) - 1) << place)
        a = magnitude + ((127 - element.bias) << _MANTISSA)
        doubled = b.mad(a.bitcast("f32"), 2.0, -(2.0 ** (1 - element.bias))).bitcast("u32")
        bits = b.minimum(a, doubled)
        if element.specials == "nan":
            ones = ((1 << payload) - 1) << place
            bits = bits | b.select(magnitude.eq(ones), b.const(0xFFFFFFFF, "u32"), 0)
        elif element.specials == "ieee":
            infinity = ((1 << e) - 1) << _MANTISSA
            bits = bits | b.select(magnitude >= infinity, b.const(0x7F800000, "u32"), 0)
        if element.signed:
            bits = bits | (_shift(word, 31 - payload - low) & 0x80000000)
        values.append(bits.bitcast("f32"))
    return values


def _exponent(b: Builder, element: Element, code: Val) -> Val:
    """2^(code - bias) with bias 127: code 0 is the subnormal 2^-127, all ones is NaN."""
    value = b.select(code.eq(0), b.const(0x00400000, "u32"), code << _MANTISSA)
    return b.select(code.eq((1 << element.bits) - 1), b.const(0x7FC00000, "u32"), value).bitcast("f32")


def _codebook(b: Builder, element: Element, code: Val) -> Val:
    return b.load(b.table("codebook", element.values()), code)


def fits_half(element: Element) -> bool:
    """Whether an f16 holds a float, whose largest exponent is for infinities and NaN."""
    return element.exponent == 5 if element.specials == "ieee" else element.exponent < 5


def _by_half(element: Element, target: Target) -> bool:
    """The target keeps f16 subnormals."""
    return fits_half(element) and target.has("f16_pairs")


def _has_lone_threads(element: Element, target: Target) -> bool:
    """Where vector instructions are the compiler's to find, and f32 has exponents enough."""
    return target.simd == 1 and element.exponent <= 5


@dataclass(frozen=True)
class Way:
    """A row: value = decoded f32 * factor(element), the factor a power of two that a caller applies once a
    sum."""

    kind: str
    applies: Callable[[Element, Target], bool]
    decode: Callable[[Builder, Element, Sequence[Val], Sequence[Positions]], list[Val]]
    factor: Callable[[Element], float] = lambda element: 1.0


def _always(element: Element, target: Target) -> bool:
    return True


def _wide(b: Builder, element: Element, words: Sequence[Val], codes: Sequence[Positions]) -> list[Val]:
    """IEEE types at their natural places: no bit to move but the high half of a word."""
    each = 32 // element.bits
    return [from_words(b, [words[p[0] // 32]], element.type, each)[p[0] % 32 // element.bits] for p in codes]


KINDS: tuple[Way, ...] = (
    Way("int", _always, _int_by_mantissa),
    Way("float", _by_half, _float_by_half, half_factor),
    Way("float", _has_lone_threads, _float_by_minimum),
    Way("float", _always, _each(_float_by_select)),
    Way("exponent", _always, _each(_exponent)),
    Way("codebook", _always, _each(_codebook)),
    Way("wide", _always, _wide),
)


def _way(element: Element, target: Target) -> Way:
    for way in KINDS:
        if way.kind == element.kind and way.applies(element, target):
            return way
    raise ValueError(
        f"no way to decode element kind {element.kind!r}; known: {sorted({w.kind for w in KINDS})}"
    )


def decode(
    b: Builder, element: Element, words: Sequence[Val], codes: Sequence[Positions], target: Target
) -> list[Val]:
    """f32 values, each lacking `factor_of`, of the codes whose bits lie at the given positions of `words`."""
    return _way(element, target).decode(b, element, words, codes)


def decode_one(
    b: Builder, element: Element, words: Sequence[Val], positions: Positions, target: Target
) -> Val:
    """The value of one code, nothing lacking. A lone thread looks small floats up: of one scale, which many
    elements share, compilers would make branches, or decode a vector of copies."""
    if target.simd == 1 and element.kind in ("float", "exponent"):
        return b.load(b.table("values_of_codes", element.values()), extract(b, words, positions))
    (value,), factor = decode(b, element, words, [positions], target), factor_of(element, target)
    return value if factor == 1.0 else value * factor


def decode_less(
    b: Builder, element: Element, words: Sequence[Val], codes: Sequence[Positions], less: Val
) -> list[Val]:
    """What `decode` gives of an integer element, less an integer of at most 9 bits. All sums here are whole
    numbers within 2^24, which are exact, so that one subtraction does for both."""
    return _int_by_mantissa(b, element, words, codes, less)


def factor_of(element: Element, target: Target) -> float:
    """The power of two that `decode`'s values are to be multiplied by."""
    return _way(element, target).factor(element)


def decode_wide(b: Builder, element: Element, code: Val) -> Val:
    """f16, bf16 or f32 bits in a u32 (low bits) to f32."""
    if element.type == "f32":
        return code.bitcast("f32")
    if element.type == "bf16":
        return (code << 16).bitcast("f32")
    return b.make("unpack_f16", "f32", (code.value,), {"half": 0})
