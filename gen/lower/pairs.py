"""How codes of an element kind become packed pairs of f16 or bf16: C++ expressions over a lane's words.

`WAYS` is the table of ways to do it, tried in order, so a fast trick for a kind is one row and serves every
format of that kind. A table of numbers serves what is left. All rows are exact but for the rounding of a
table's entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ..formats.axes import Element
from ..formats.fragment import stream
from ..manifest.target import Target

Positions = Sequence[int]


@dataclass(frozen=True)
class Kind:
    """A floating type of 16 bits. struct: its name in the header; digits: significant ones; exponent: bits of
    it; magic: the bits of 2^mantissa, whose mantissa takes an integer below that as it is."""

    name: str
    struct: str
    digits: int
    exponent: int
    magic: int

    @property
    def mantissa(self) -> int:
        return self.digits - 1

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    def bits(self, value: float) -> int:
        """The bits of `value`, rounded to nearest even; NaN is quiet and positive."""
        top = ((1 << self.exponent) - 1) << self.mantissa
        sign = 0x8000 if math.copysign(1.0, value) < 0 else 0
        if math.isnan(value):
            return top | 1 << (self.mantissa - 1)
        if math.isinf(value):
            return sign | top
        if value == 0:
            return sign
        magnitude = Fraction(abs(value))
        scale = max(math.frexp(abs(value))[1] - 1, 1 - self.bias)
        units = round(magnitude / Fraction(2) ** (scale - self.mantissa))
        # units holds the hidden bit of a normal number, which adds one to the exponent; so does a carry.
        field = scale + self.bias - 1
        return sign | min((field << self.mantissa) + units, top)

    def value(self, bits: int) -> float:
        """The number of some bits."""
        field, fraction = (
            bits >> self.mantissa & ((1 << self.exponent) - 1),
            bits & ((1 << self.mantissa) - 1),
        )
        sign = -1.0 if bits >> 15 else 1.0
        if field == (1 << self.exponent) - 1:
            return math.nan if fraction else sign * math.inf
        if field == 0:
            return sign * math.ldexp(fraction, 1 - self.bias - self.mantissa)
        return sign * math.ldexp(fraction + (1 << self.mantissa), field - self.bias - self.mantissa)

    def holds(self, value: float) -> bool:
        """Whether the type has this very number."""
        return math.isnan(value) or self.value(self.bits(value)) == value

    def pair(self, value: float) -> str:
        """A literal of the number twice."""
        return f"0x{self.bits(value) * 0x10001:08x}"


KINDS = {
    "f16": Kind("f16", "Half", 11, 5, 0x6400),
    "bf16": Kind("bf16", "Bfloat", 8, 8, 0x4300),
}


# Bits of both codes of a pair


@dataclass(frozen=True)
class Piece:
    """Bits of a word, both half-words alike, moved left by `left` and then masked. text: how they are
    moved, if not by one shift."""

    word: int
    left: int
    mask: int
    text: str = ""

    @property
    def moved(self) -> str:
        if self.text:
            return self.text
        shift = f" {'<<' if self.left > 0 else '>>'} {abs(self.left)}" if self.left else ""
        return f"w[{self.word}]{shift}"

    @property
    def masks(self) -> str:
        return f"0x{self.mask * 0x10001:08x}"


def pieces(moves: Sequence[tuple[int, int]]) -> list[Piece]:
    """Bits (from stream bit, to bit of the half-word) as few moves of whole words."""
    found: dict[tuple[int, int], int] = {}
    for source, to in moves:
        key = (source // 16, to - source % 16)
        found[key] = found.get(key, 0) | 1 << to
    return [Piece(word, left, mask) for (word, left), mask in found.items()]


def multiplied(found: Sequence[Piece], times: str) -> list[Piece]:
    """The same, moved by a function times(word, number) where that will do: to the left, and back from
    what moves furthest to the right."""
    if not times:
        return list(found)
    return [replace(piece, text=_multiplied(piece, found, times)) for piece in found]


def _multiplied(piece: Piece, found: Sequence[Piece], times: str) -> str:
    far = max(0, *(-p.left for p in found if p.word == piece.word))
    first = (piece.mask & -piece.mask).bit_length() - 1 - piece.left  # its lowest bit, in the word
    if piece.left > 0:
        return f"{times}(w[{piece.word}], {1 << piece.left}u)"
    if 0 < -piece.left < far <= first:
        return f"{times}(w[{piece.word}] >> {far}, {1 << (far + piece.left)}u)"
    return ""


def copied(found: Sequence[Piece], far: int, times: str) -> str:
    """The expression of two pieces by one product, which has the bits of both twice: none where those would
    meet, or it takes no less. far: bits to the right that any pair's are moved."""
    if not times or len(found) != 2 or found[0].word != found[1].word or far == 0:
        return ""
    lefts = sorted(piece.left for piece in found)
    bits = sum(piece.mask << far >> (far + piece.left) for piece in found)
    back = far if bits & (1 << far) - 1 == 0 else max(0, -lefts[0])
    bits, moves = bits >> back, [left + back for left in lefts]
    copies = [bits << move for move in moves]
    if bits << back >> back != bits or copies[0] & copies[1] or max(copies) >> 16 or moves[0] < 0:
        return ""
    word = f"w[{found[0].word}]{f' >> {back}' if back else ''}"
    product = f"{times}({word} & 0x{bits * 0x10001:08x}, {sum(1 << move for move in moves)}u)"
    return f"({product} & 0x{(found[0].mask | found[1].mask) * 0x10001:08x})"


def gather(found: Sequence[Piece], into: str = "") -> str:
    """The expression of all pieces, or-ed into `into` if there is one."""
    for piece in found:
        into = f"fragment::and_or({piece.moved}, {piece.masks}, {into})" if into else _masked(piece)
    return into


def flip(found: Sequence[Piece], into: str) -> str:
    """The expression of all pieces, xor-ed into `into`."""
    for piece in found:
        into = f"fragment::and_xor({piece.moved}, {piece.masks}, {into})"
    return into


def _masked(piece: Piece) -> str:
    moved = f"({piece.moved})" if piece.left and not piece.text else piece.moved
    return f"({moved} & {piece.masks})"


def code_pieces(positions: Positions, at: int = 0) -> list[Piece]:
    """The whole code, its lowest bit at bit `at` of the half-word."""
    return pieces([(p, at + i) for i, p in enumerate(positions)])


# Ways to decode


@dataclass(frozen=True)
class Plan:
    """How one element becomes pairs of a type: value = decoded * 2^exponent.

    pairs: an expression for each pair of a period; steps: statements for whole steps in place of that. exact:
    no entry of a table is rounded. tables: declarations."""

    exact: bool
    exponent: int
    pairs: tuple[str, ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """What a way is asked for. bare: no power of two is multiplied back, whatever range is lost; times: what
    `multiplied` takes, if shifts are to be multiplications."""

    element: Element
    positions: tuple[tuple[int, ...], ...]
    kind: Kind
    target: Target
    name: str
    bare: bool = False
    times: str = ""

    @property
    def plain(self) -> bool:
        """Whether the codes are one stream, lowest bit first."""
        return self.positions == stream(self.element.bits)


def integer_of(element: Element) -> tuple[int, int]:
    """(bit to flip, offset): value = (code ^ flip) - offset, for two's complement, offset and plain codes."""
    sign = 1 << (element.bits - 1)
    return (sign, sign) if element.signed else (0, element.offset)


def _places(positions: Sequence[Positions], bits: int, room: int) -> list[int]:
    """Where in the mantissa each pair's code goes (0 to `room`), so that few shifts serve all.

    Codes in one word that can share a shift do; codes in several pieces go to the lowest bit."""
    at = [0] * len(positions)
    words: dict[int, list[int]] = {}
    for i, place in enumerate(positions):
        if place[-1] // 16 == place[0] // 16 and place[-1] - place[0] == bits - 1:
            words.setdefault(place[0] // 16, []).append(i)
    for members in words.values():
        shift = 0
        for i in sorted(members, key=lambda i: positions[i][0]):
            start = positions[i][0] % 16
            if start - shift > room:
                shift = start
            at[i] = start - shift
    return at


def magic(q: Question, at: Sequence[int]) -> list[str]:
    """2^mantissa + (code ^ flip) * 2^at."""
    flipped, _ = integer_of(q.element)
    return [
        flip(code_pieces(p, t), f"0x{(q.kind.magic | flipped << t) * 0x10001:08x}")
        for p, t in zip(q.positions, at)
    ]


def subnormal(q: Question) -> tuple[tuple[str, ...], list[int]]:
    """code ^ flip, as the least numbers of the type, and the places of their lowest bits."""
    at = _places(q.positions, q.element.bits, q.kind.mantissa - q.element.bits)
    flipped, _ = integer_of(q.element)
    moved = [code_pieces(p, t) for p, t in zip(q.positions, at)]
    if not flipped:
        return tuple(map(gather, moved)), at
    return tuple(flip(m, f"0x{(flipped << t) * 0x10001:08x}") for m, t in zip(moved, at)), at


def by_mantissa(q: Question, rest: int) -> tuple[str, ...]:
    """(code ^ flip) + rest, by writing the code into the mantissa of a power of two and subtracting what that
    is more; where a code does not lie at the mantissa's end, a multiplication by a power of two rides on the
    subtraction."""
    kind, bits = q.kind, q.element.bits
    at = _places(q.positions, bits, kind.mantissa - bits)
    power = 1 << kind.mantissa
    pairs = []
    for text, t in zip(magic(q, at), at):
        if t:
            pairs.append(f"Type::fma2({text}, {kind.pair(0.5**t)}, {kind.pair(rest - power * 0.5**t)})")
        else:
            pairs.append(f"Type::sub2({text}, {kind.pair(power - rest)})" if rest != power else text)
    return tuple(pairs)


def _int_by_mantissa(q: Question) -> Plan:
    """Integers that a mantissa takes."""
    return Plan(True, 0, by_mantissa(q, -integer_of(q.element)[1]))


def _int_in_two(q: Question) -> Plan:
    """Integers of one bit more than the mantissa has: the top one as a power of its own."""
    kind, top = q.kind, q.element.bits - 1
    flipped, offset = integer_of(q.element)
    power = 1 << kind.mantissa
    pairs = []
    for place in q.positions:
        rest = gather(code_pieces(place[:top]), f"0x{kind.magic * 0x10001:08x}")
        bit = pieces([(place[top], top)])
        plain = gather(bit, f"0x{kind.magic * 0x10001:08x}")  # 2^top, or with the bit twice that
        inverse = flip(bit, f"0x{(kind.magic | power) * 0x10001:08x}")
        if flipped:
            pairs.append(f"Type::sub2({rest}, {plain})")
        elif offset == power:
            pairs.append(f"Type::sub2({rest}, {inverse})")
        else:
            low = f"Type::sub2({rest}, {kind.pair(2 * power if offset == 0 else power)})"
            if offset == 0:
                pairs.append(f"Type::add2({low}, {plain})")
            else:
                high = f"Type::sub2({plain}, {kind.pair(power)})"
                pairs.append(f"Type::add2(Type::sub2({low}, {kind.pair(offset)}), {high})")
    return Plan(True, 0, tuple(pairs))


def _float_fits(q: Question) -> bool:
    """Whether sign, exponent and mantissa only need to be moved: the type's subnormals are the element's."""
    e, room = q.element, q.kind.exponent
    fits = e.exponent < room or (e.exponent == room and e.specials == "ieee")
    return fits and e.mantissa <= q.kind.mantissa and not (e.specials == "nan" and e.mantissa == 0)


def _float_by_place(q: Question) -> Plan:
    """Small floats by moving sign and magnitude to the type's places; the two biases differ by a power of
    two, which is left to the scale unless that would lose range, and that is not asked for.

    A code that is no number has all exponent bits set; adding one at the right bit carries over the
    exponent's end there and nowhere else, and the carry fills the exponent."""
    e, kind = q.element, q.kind
    at, payload = kind.mantissa - e.mantissa, e.exponent + e.mantissa
    gap = kind.exponent - e.exponent  # the type's exponent bits above the element's
    special = e.specials != "none" and gap > 0
    power = kind.bias - e.bias
    factor = 0 if kind.name == "f16" or q.bare else min(power, kind.bias)
    far = max(0, *(place[0] % 16 - at for place in q.positions))
    pairs = []
    for place in q.positions:
        magnitude = [(p, at + i) for i, p in enumerate(place[:payload])]
        sign = [(place[payload], 15)] if e.signed else []
        if not special:
            found = pieces([*sign, *magnitude])
            text = copied(found, far, q.times) or gather(multiplied(found, q.times))
        else:
            carry = 1 << (at + payload)
            one = 1 << (at if e.specials == "nan" else kind.mantissa)
            masks = f"0x{one * 0x10001:08x}, 0x{carry * 0x10001:08x}, {(1 << gap) - 1}"
            text = f"fragment::fill<{masks}>({gather(pieces(magnitude))}, {gather(pieces(sign)) or '0'})"
        pairs.append(f"Type::mul2({text}, {kind.pair(2.0**factor)})" if factor else text)
    return Plan(True, power - factor, tuple(pairs))


def _converts(q: Question) -> bool:
    e = q.element
    axes = (e.exponent, e.mantissa, e.bias, e.specials, e.signed)
    return axes == (4, 3, 7, "nan", True) and q.plain and q.target.has("fp8_convert")


def _float_by_conversion(q: Question) -> Plan:
    """Both codes of two pairs by the conversion instruction of the hardware, which makes f16 of them."""
    step = [f"fragment::convert_e4m3(a[{2 * i}], a[{2 * i + 1}], w[{i}]);" for i in range(2)]
    if q.kind.name != "f16":
        step += [f"a[{r}] = fragment::from_half<Type>(a[{r}]);" for r in range(4)]
    return Plan(True, 0, steps=(tuple(step),))


def _is_half(q: Question) -> bool:
    """Whether the element is an f16 with a shorter mantissa, infinities and NaN as well."""
    e = q.element
    return (e.exponent, e.specials, e.signed) == (5, "ieee", True) and q.kind.name != "f16"


def _float_by_half(q: Question) -> Plan:
    """f16 numbers by place, which are then converted: less than making infinities and NaN anew."""
    half = _float_by_place(replace(q, kind=KINDS["f16"]))
    return replace(half, pairs=tuple(f"fragment::from_half<Type>({text})" for text in half.pairs))


def _exponent_for(kind: Kind, values: Sequence[float]) -> int:
    """A power of two to take out of a table: 0 where the type holds the numbers as they are or nearly
    so, else one that brings the largest magnitude near 1."""
    largest = max(abs(v) for v in values if math.isfinite(v))
    if all(map(kind.holds, values)) or 2.0**-8 <= largest < 2.0 ** (kind.bias - 1):
        return 0
    return max(-126, min(126, math.frexp(largest)[1]))


def _by_table(q: Question) -> Plan:
    """Numbers from a table of the type: in registers up to 16, else in memory."""
    kind, bits = q.kind, q.element.bits
    values = q.element.values()
    exponent = _exponent_for(kind, values)
    numbers = [math.ldexp(v, -exponent) for v in values]
    exact = all(map(kind.holds, numbers))
    entries = [kind.bits(v) for v in numbers]
    codes = [gather(code_pieces(p)) for p in q.positions]
    if bits > 4:
        name = f"{q.name}_numbers"
        table = table_text(name, "uint16_t", [f"0x{v:04x}" for v in entries])
        return Plan(exact, exponent, tuple(f"fragment::pick({c}, {name})" for c in codes), tables=(table,))
    constants = ", ".join(bytes_apart(entries))
    if bits == 4 and q.plain:
        return Plan(exact, exponent, steps=((f"fragment::pick16_word(a, w[0], {constants});",),))
    pick = "pick16" if bits == 4 else "pick8"
    return Plan(exact, exponent, tuple(f"fragment::{pick}({c}, {constants})" for c in codes))


def bytes_apart(entries: Sequence[int]) -> list[str]:
    """Words of the low bytes and of the high bytes, 8 or 16 entries (the rest 0)."""
    whole = [*entries, *[0] * (8 - len(entries))]
    parts = [bytes(v >> shift & 255 for v in whole) for shift in (0, 8)]
    words = [int.from_bytes(part[i : i + 4], "little") for part in parts for i in range(0, len(part), 4)]
    return [f"0x{w:08x}" for w in words]


def table_text(name: str, type: str, entries: Sequence[str]) -> str:
    """The declaration of a table in memory."""
    lines = "".join(f"    {', '.join(entries[i : i + 8])},\n" for i in range(0, len(entries), 8))
    return f"WOOTZ_TABLE {type} {name}[{len(entries)}] = {{\n{lines}}};\n"


@dataclass(frozen=True)
class Way:
    """A row: how an element kind may be decoded, and when."""

    kind: str
    applies: Callable[[Question], bool]
    plan: Callable[[Question], Plan]


def _always(q: Question) -> bool:
    return True


WAYS: tuple[Way, ...] = (
    Way("int", lambda q: q.element.bits <= q.kind.mantissa, _int_by_mantissa),
    Way("int", _always, _int_in_two),
    Way("float", _converts, _float_by_conversion),
    Way("float", _is_half, _float_by_half),
    Way("float", _float_fits, _float_by_place),
    Way("float", _always, _by_table),
    Way("exponent", _always, _by_table),
    Way("codebook", _always, _by_table),
)


def plan(q: Question) -> Plan:
    """The first way that applies."""
    for way in WAYS:
        if way.kind == q.element.kind and way.applies(q):
            return way.plan(q)
    raise ValueError(
        f"no way to decode element kind {q.element.kind!r}; known: {sorted({w.kind for w in WAYS})}"
    )
