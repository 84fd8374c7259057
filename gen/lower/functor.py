"""The decode functor of a format: C++ text for cutlass/fragment.cuh, from packed words to tensor-core operands.

`functor` writes a struct whose functions turn a lane's words into registers of the m16n8k16 product. How the
codes of an element kind become pairs of f16 or bf16 is a table, `WAYS`, tried in order, so a fast trick for a
kind is one row and serves every format of that kind. A table of numbers serves what is left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ..axes import Element, Format, Zero, f32_bits
from ..fragment import PERIOD, STEP, Fragment, fragment
from ..layout import SCALE_FIELDS
from ..target import Target

Positions = Sequence[int]


@dataclass(frozen=True)
class Kind:
    """A floating type of 16 bits. digits: significant ones; least: exponent of the least normal number."""

    name: str
    struct: str
    digits: int
    exponent: int
    magic: int
    """The bits of 2^mantissa: integers up to that, written into its mantissa, add up."""

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
    """Bits of a word, both half-words alike, moved left by `left` and then masked."""

    word: int
    left: int
    mask: int

    @property
    def moved(self) -> str:
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


def gather(found: Sequence[Piece], into: str = "") -> str:
    """The expression of all pieces, or-ed into `into`."""
    text = into
    for piece in found:
        text = f"fragment::and_or({piece.moved}, {piece.masks}, {text})" if text else _masked(piece)
    return text


def flip(found: Sequence[Piece], into: str) -> str:
    """The expression of all pieces, xor-ed into `into`."""
    for piece in found:
        into = f"fragment::and_xor({piece.moved}, {piece.masks}, {into})"
    return into


def _masked(piece: Piece) -> str:
    moved = f"({piece.moved})" if piece.left else piece.moved
    return f"({moved} & {piece.masks})"


def _code(positions: Positions, at: int = 0) -> list[Piece]:
    """The whole code, its lowest bit at bit `at` of the half-word."""
    return pieces([(p, at + i) for i, p in enumerate(positions)])


# Ways to decode


@dataclass(frozen=True)
class Plan:
    """How one element becomes pairs of a type: value = decoded * 2^exponent.

    pairs: an expression for each pair of a period; words: statements for whole steps instead. exact: but for
    the rounding of a codebook's entries. tables: declarations."""

    exact: bool
    exponent: int
    pairs: tuple[str, ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """What a way is asked for."""

    element: Element
    positions: tuple[Positions, ...]
    kind: Kind
    target: Target
    name: str

    @property
    def plain(self) -> bool:
        bits = self.element.bits
        return all(tuple(p) == tuple(range(i * bits, i * bits + bits)) for i, p in enumerate(self.positions))


def _integer(element: Element) -> tuple[int, int]:
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


def _magic(q: Question, at: Sequence[int]) -> list[str]:
    """2^mantissa + (code ^ flip) * 2^at."""
    flipped, _ = _integer(q.element)
    return [
        flip(_code(p, t), f"0x{(q.kind.magic | flipped << t) * 0x10001:08x}") for p, t in zip(q.positions, at)
    ]


def _int_by_mantissa(q: Question) -> Plan:
    """Integers by writing the code into the mantissa of a power of two and subtracting that power; where a
    code does not lie at the mantissa's end, a multiplication by a power of two rides on the subtraction."""
    kind, bits = q.kind, q.element.bits
    _, offset = _integer(q.element)
    at = _places(q.positions, bits, kind.mantissa - bits)
    power = 1 << kind.mantissa
    pairs = []
    for text, t in zip(_magic(q, at), at):
        if t == 0:
            pairs.append(f"Type::sub2({text}, {kind.pair(power + offset)})")
        else:
            pairs.append(
                f"Type::fma2({text}, {kind.pair(0.5**t)}, {kind.pair(-power * 0.5**t - offset)})",
            )
    return Plan(True, 0, tuple(pairs))


def _int_in_two(q: Question) -> Plan:
    """Integers of one bit more than the mantissa has: the rest by mantissa, the top bit as a power of its own."""
    kind, top = q.kind, q.element.bits - 1
    flipped, offset = _integer(q.element)
    power = 1 << kind.mantissa
    pairs = []
    for place in q.positions:
        rest = gather(_code(place[:top]), f"0x{kind.magic * 0x10001:08x}")
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
    """Small floats by moving sign and magnitude to the type's places; the two biases differ by a power of two,
    which is left to the scale unless that would lose range.

    A code that is no number has all exponent bits set; adding one at the right bit carries over the exponent's
    end there and nowhere else, and the carry fills the exponent."""
    e, kind = q.element, q.kind
    at, payload = kind.mantissa - e.mantissa, e.exponent + e.mantissa
    gap = kind.exponent - e.exponent  # the type's exponent bits above the element's
    special = e.specials != "none" and gap > 0
    power = kind.bias - e.bias
    factor = 0 if kind.name == "f16" else min(power, kind.bias)
    pairs = []
    for place in q.positions:
        magnitude = [(p, at + i) for i, p in enumerate(place[:payload])]
        sign = [(place[payload], 15)] if e.signed else []
        if not special:
            text = gather(pieces([*sign, *magnitude]))
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
    """A power of two to take out of a table: 0 where the type holds the numbers as they are, else one that
    brings the largest magnitude near 1."""
    finite = [abs(v) for v in values if math.isfinite(v) and v]
    if all(map(kind.holds, values)) or (max(finite) < 2.0 ** (kind.bias - 1) and max(finite) >= 2.0**-8):
        return 0
    return math.frexp(max(finite))[1]


def _by_table(q: Question) -> Plan:
    """Numbers from a table of the type: in registers up to 16, else in memory."""
    kind, bits = q.kind, q.element.bits
    values = q.element.values()
    exponent = _exponent_for(kind, values)
    numbers = [math.ldexp(v, -exponent) for v in values]
    exact = all(map(kind.holds, numbers))
    entries = [kind.bits(v) for v in numbers]
    codes = [gather(_code(p)) for p in q.positions]
    if bits > 4:
        table = f"{q.name}_numbers"
        pairs = tuple(f"fragment::pick({c}, {table})" for c in codes)
        return Plan(
            exact, exponent, pairs, tables=(_table(table, "uint16_t", [f"0x{v:04x}" for v in entries]),)
        )
    constants = _bytes_apart(entries)
    if bits == 4 and q.plain:
        return Plan(exact, exponent, steps=((f"fragment::pick16_word(a, w[0], {constants});",),))
    pick = "pick16" if bits == 4 else "pick8"
    return Plan(exact, exponent, tuple(f"fragment::{pick}({c}, {constants})" for c in codes))


def _bytes_apart(entries: Sequence[int]) -> str:
    """Words of the low bytes and of the high bytes, 8 or 16 entries (the rest 0)."""
    whole = [*entries, *[0] * (8 - len(entries))]
    parts = [bytes(v >> shift & 255 for v in whole) for shift in (0, 8)]
    words = [int.from_bytes(part[i : i + 4], "little") for part in parts for i in range(0, len(part), 4)]
    return ", ".join(f"0x{w:08x}" for w in words)


def _table(name: str, type: str, entries: Sequence[str]) -> str:
    lines = [", ".join(entries[i : i + 8]) for i in range(0, len(entries), 8)]
    return (
        f"WOOTZ_TABLE {type} {name}[{len(entries)}] = {{\n"
        + "".join(f"    {line},\n" for line in lines)
        + "};\n"
    )


@dataclass(frozen=True)
class Way:
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


# Scales and zero points


def _stored(element: Element, code: str, table: str) -> str:
    """The f32 value of a stored scale or zero point; `table` names a codebook's numbers."""
    if element.kind == "wide":
        wide = {
            "f16": "fragment::half_f32({})",
            "bf16": "fragment::as_float(static_cast<uint32_t>({}) << 16)",
        }
        return wide.get(element.type, "{}").format(code)
    if element.kind == "int":
        flipped, offset = _integer(element)
        return f"fragment::int_f32<{flipped}, {offset}>({code})"
    if element.kind == "exponent":
        return f"fragment::power_f32({code})"
    if element.kind == "codebook":
        return f"fragment::as_float({table}[{code}])"
    payload = element.exponent + element.mantissa
    top = {"none": 1 << payload, "nan": (1 << payload) - 1}.get(
        element.specials, ((1 << element.exponent) - 1) << element.mantissa
    )
    infinite, signed = str(element.specials == "ieee").lower(), str(element.signed).lower()
    axes = f"{element.exponent}, {element.mantissa}, {element.bias}, {top}, {infinite}, {signed}"
    return f"fragment::float_f32<{axes}>({code})"


_STORED = {"f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "": "uint8_t"}


def _f32_table(name: str, element: Element) -> str:
    return _table(name, "uint32_t", [f"0x{f32_bits(v):08x}" for v in element.values()])


@dataclass(frozen=True)
class Weights:
    """Everything about one functor that its text depends on."""

    fmt: Format
    kind: Kind
    target: Target
    name: str

    @property
    def layout(self) -> Fragment:
        return fragment(self.fmt)

    @property
    def plan(self) -> Plan:
        return plan(self.question)

    @property
    def question(self) -> Question:
        return Question(self.fmt.element, self.layout.positions, self.kind, self.target, self.name)

    @property
    def code_zero(self) -> Zero | None:
        """The zero point that is subtracted from a code's value."""
        zero = self.fmt.zero
        return zero if zero is not None and zero.domain == "code" else None

    @property
    def value_zero(self) -> bool:
        return self.fmt.zero is not None and self.fmt.zero.domain == "value"

    @property
    def zeros(self) -> list[float] | None:
        """All values of a narrow zero point in the code domain."""
        zero = self.code_zero
        if zero is None or zero.element.kind == "wide":
            return None
        return [z + (zero.stored == "minus_one") for z in zero.element.values() if math.isfinite(z)]

    @property
    def zero_fits(self) -> bool:
        """Whether the type has every zero point."""
        zero = self.code_zero
        if zero is None:
            return True
        if self.zeros is None:
            return zero.element.type == self.kind.name and zero.stored == "value"
        return all(map(self.kind.holds, self.zeros))

    @property
    def in_type(self) -> bool:
        """Whether the zero point is subtracted in the type, with one rounding."""
        return self.zero_fits and self.plan.exact and self.plan.exponent == 0

    @property
    def fused(self) -> int | None:
        """What makes the bits of 2^mantissa + offset + zero point of a zero point's bits, by addition: then it
        takes the place of the power that integers are decoded with. None where that is not possible."""
        zero, element = self.code_zero, self.fmt.element
        if zero is None or element.kind != "int" or zero.element.kind != "int" or self.zeros is None:
            return None
        power, (_, offset) = 1 << self.kind.mantissa, _integer(element)
        if element.bits > self.kind.mantissa:
            return None
        if min(self.zeros) + offset < 0 or max(self.zeros) + offset > power:
            return None
        return self.kind.magic + offset - _integer(zero.element)[1] + (zero.stored == "minus_one")

    @property
    def exact(self) -> bool:
        """Whether `decode` gives the very numbers, zero points subtracted."""
        if not self.plan.exact or self.code_zero is None:
            return self.plan.exact
        if self.zeros is None:
            return False
        values = {v for v in self.fmt.element.values() if math.isfinite(v)}
        steps = {v - z for v in values for z in set(self.zeros)}
        return all(self.kind.holds(math.ldexp(d, -self.plan.exponent)) for d in steps)

    @property
    def out_of_range(self) -> bool:
        """Whether a value less its zero point may be past the type's range."""
        if self.code_zero is None or self.kind.exponent == 8:
            return False
        if self.zeros is None:
            return self.code_zero.element.type != self.kind.name
        return max(map(abs, self.zeros)) >= 2.0 ** (self.kind.bias - 1)

    @property
    def fold_only(self) -> bool:
        rounded = not self.plan.exact and self.fmt.element.kind != "codebook"
        return self.layout.run < STEP or self.value_zero or rounded or self.out_of_range

    # -- text -----------------------------------------------------------------------------------------------
    def tables(self) -> Iterator[str]:
        yield from self.plan.tables
        if not self.plan.exact:
            yield _f32_table(f"{self.name}_values", self.fmt.element)
        for i, level in enumerate(self.fmt.scales):
            if level.element.kind == "codebook":
                yield _f32_table(f"{self.name}_{SCALE_FIELDS[i]}", level.element)
        if self.fmt.zero is not None and self.fmt.zero.element.kind == "codebook":
            yield _f32_table(f"{self.name}_zero", self.fmt.zero.element)

    def constants(self) -> Iterator[str]:
        f = self.layout
        numbers = {
            "bits": f.bits, "unit_k": f.columns, "steps": f.steps, "vectors": f.words // 4, "words": f.words,
            "code_bytes": f.code_bytes, "unit_bytes": f.unit_bytes, "run": f.run, "runs": f.runs,
            "tensors": len(f.tensors), "exponent": self.plan.exponent,
        }  # fmt: skip
        flags = {
            "scaled": bool(self.fmt.scales), "zeroed": self.code_zero is not None,
            "value_zero": self.value_zero, "fold_only": self.fold_only, "exact": self.exact,
        }  # fmt: skip
        yield from (f"static constexpr int {name} = {value};" for name, value in numbers.items())
        yield from (f"static constexpr bool {name} = {str(value).lower()};" for name, value in flags.items())

    def steps(self, head: str, made: Plan) -> Iterator[str]:
        """A function that runs a plan for one step, whose texts repeat after a few steps."""
        per_step = made.steps or tuple(
            tuple(f"a[{r}] = {text};" for r, text in enumerate(made.pairs[i : i + 4]))
            for i in range(0, len(made.pairs), 4)
        )
        bits = self.layout.bits
        period = len(per_step)
        if made.pairs:
            places = self.layout.positions
            period = next(p for p in (1, 2, 4) if _repeats(places, p, bits))
        yield "template <int Step>"
        yield f"static WOOTZ_FN void {head}(const uint32_t* words, uint32_t (&a)[4]) {{"
        words = period * bits // 4
        start = "Step" if period == 1 else f"Step / {period}"
        yield f"    const uint32_t* w = words + {start if words == 1 else f'{start} * {words}'};"
        for i, lines in enumerate(per_step[:period]):
            indent = "    "
            if period > 1:
                test = f"if constexpr (Step % {period} == {i}) {{" if i < period - 1 else "{"
                yield f"    {'} else ' if i else ''}{test}"
                indent *= 2
            yield from (indent + line for line in lines)
        if period > 1:
            yield "    }"
        yield "}"

    # Everything below indexes sides by `at(g, j, half)`: the entry of a row and a run.

    def stored(self, name: str, j: str) -> str:
        """The stored entry of a side in run `j`."""
        side = next(s for s in self.layout.sides if s.name == name)
        offset = side.offset - self.layout.code_bytes
        type = _STORED[side.element.type]
        if type == "uint8_t":
            return f"sides[{f'{offset} + ' if offset else ''}at(g, {j}, half)]"
        base = f"(sides + {offset})" if offset else "(sides)"
        return f"reinterpret_cast<const {type}*>{base}[at(g, {j}, half)]"

    def value(self, name: str, element: Element, j: str = "j") -> str:
        """The f32 value of an entry of a side."""
        return _stored(element, self.stored(name, j), f"{self.name}_{name}")

    def levels(self) -> Iterator[str]:
        """The f32 scale as every backend computes it, level by level, and with the decoder's power of two."""
        parameters = "(const uint8_t* sides, const float* tensor, int g, int j, int half) {"
        yield "static WOOTZ_FN int at(int g, int j, int half) { return (g * runs + j) * 2 + half; }"
        yield f"static WOOTZ_FN float level{parameters}"
        text = ""
        for name, level in zip(SCALE_FIELDS, self.fmt.scales, strict=False):
            tensors = self.layout.tensors
            one = f"tensor[{tensors.index(name)}]" if name in tensors else self.value(name, level.element)
            text = f"{text} {'/' if level.op == 'divide' else '*'} {one}" if text else one
        yield f"    return {text or '1.0f'};"
        yield "}"
        yield f"static WOOTZ_FN float scale{parameters}"
        factor = f" * {_power(self.plan.exponent)}" if self.plan.exponent else ""
        yield f"    return level(sides, tensor, g, j, half){factor};"
        yield "}"
        yield "template <int Level>"
        yield "static WOOTZ_FN float tensor_level(const void* field) {"
        for i, name in enumerate(self.layout.tensors):
            element = self.fmt.scales[SCALE_FIELDS.index(name)].element
            code = f"*static_cast<const {_STORED[element.type]}*>(field)"
            if element.bits < 8:
                code = f"({code} & {(1 << element.bits) - 1})"
            yield f"    if constexpr (Level == {i}) {{"
            yield f"        return {_stored(element, code, f'{self.name}_{name}')};"
            yield "    }"
        yield "    return 1.0f;"
        yield "}"

    def zero(self) -> Iterator[str]:
        """The zero point as f32."""
        if self.fmt.zero is not None:
            one = " + 1.0f" if self.fmt.zero.stored == "minus_one" else ""
            yield "static WOOTZ_FN float zero(const uint8_t* sides, int g, int j, int half) {"
            yield f"    return {self.value('zero', self.fmt.zero.element)}{one};"
            yield "}"

    # -- registers ------------------------------------------------------------------------------------------
    @property
    def run_of(self) -> str:
        """The run of register r's first code."""
        run = self.layout.run
        if run >= STEP:
            return f"{STEP} * Step / run"
        k = f"{STEP} * Step + 8 * (r >> 1)" + (" + 2 * (lane & 3)" if run < 8 else "")
        return k if run == 1 else f"({k}) / run"

    @property
    def second(self) -> str:
        """The run of register r's second code, where `j` is its first's."""
        return "j + 1" if self.layout.run == 1 else "j"

    def each(self, first: str, body: Callable[[], Iterator[str]]) -> Iterator[str]:
        """A statement that fills the registers, and a loop over them, its body in terms of g, half and j, where it uses them."""
        lines = list(body())
        text = "\n".join(lines)
        if re.search(r"\bg\b", text):
            yield "    const int g = lane >> 2;"
        yield f"    {first};"
        yield "    WOOTZ_UNROLL"
        yield "    for (int r = 0; r < 4; ++r) {"
        if re.search(r"\bhalf\b", text):
            yield f"        const int half = r & 1, j = {self.run_of};"
        yield from ("        " + line for line in lines)
        yield "    }"

    def twice(self, one: Callable[[str], str], join: Callable[[str, str], str], both: str) -> str:
        """What both codes of a register need: `both` of one expression where their runs are the same."""
        return both.format(one("j")) if self.second == "j" else join(one("j"), one(self.second))

    def packed_bits(self, one: Callable[[str], str]) -> str:
        """A packed pair from an expression for 16 bits, by run."""
        return self.twice(one, lambda a, b: f"({a} | {b} << 16)", "{} * 0x10001u")

    def packed_f32(self, one: Callable[[str], str]) -> str:
        """A packed pair from an expression for an f32, by run."""
        return f"Type::round({one('j')}, {one(self.second)})"

    def packed_zero(self) -> str:
        """The zero points of a register in the type; fused, with the power that integers are decoded with."""
        zero = self.fmt.zero
        assert zero is not None
        if self.fused is not None:
            flipped, _ = _integer(zero.element)
            change = f" ^ {flipped}u" if flipped else ""
            return self.packed_bits(lambda j: f"(({self.stored('zero', j)}{change}) + {self.fused}u)")
        if zero.element.type == self.kind.name:
            return self.packed_bits(lambda j: f"{self.stored('zero', j)}")
        return self.packed_f32(lambda j: f"zero(sides, g, {j}, half)")

    def packed_scale(self) -> str:
        """The scales of a register in the type."""
        if self.fmt.scales[0].element.type == self.kind.name:
            return self.packed_bits(lambda j: f"{self.stored('scale', j)}")
        return self.packed_f32(lambda j: f"level(sides, tensor, g, {j}, half)")

    @property
    def numbers(self) -> str:
        """A statement that makes the registers what `f32` takes: numbers, or codes where the type rounds."""
        return f"{'values' if self.plan.exact else 'codes'}<Step>(words, a)"

    def codes(self) -> Iterator[str]:
        if not self.plan.exact:
            yield from self.steps("codes", Plan(True, 0, tuple(gather(_code(p)) for p in self.layout.positions)))

    def f32(self, which: str) -> str:
        """The number of a code of register r as f32, whole."""
        if not self.plan.exact:
            code = "a[r] & 0xffff" if which == "low" else "a[r] >> 16"
            return f"fragment::as_float({self.name}_values[{code}])"
        text = f"Type::{which}(a[r])"
        return text if self.whole or not self.plan.exponent else f"{text} * {_power(self.plan.exponent)}"

    @property
    def whole(self) -> str:
        """A statement that brings the decoder's power of two into register r; none where the type cannot."""
        power = 2.0**self.plan.exponent
        if not self.plan.exact or not self.plan.exponent:
            return ""
        fits = all(map(self.kind.holds, (*self.fmt.element.values(), power)))
        return f"a[r] = Type::mul2(a[r], {self.kind.pair(power)});" if fits else ""

    def decode(self) -> Iterator[str]:
        head = (
            "template <int Step>",
            "static WOOTZ_FN void decode(const uint32_t* words, const uint8_t* sides, int lane, uint32_t (&a)[4]) {",
        )
        if self.code_zero is None:
            yield from (*head, "    values<Step>(words, a);", "}")
            return
        if self.fused is not None:
            placed = _magic(self.question, [0] * PERIOD)
            yield from self.steps("placed", Plan(True, 0, tuple(placed)))
        yield from head
        if self.fused is not None:
            first = "placed<Step>(words, a)"
        else:
            first = "values<Step>(words, a)" if self.in_type else self.numbers
        yield from self.each(first, self._subtract_zeros)
        yield "}"

    def _subtract_zeros(self) -> Iterator[str]:
        if self.fused is not None or self.in_type:
            yield f"a[r] = Type::sub2(a[r], {self.packed_zero()});"
            return
        back = f" * {_power(-self.plan.exponent)}" if self.plan.exponent else ""
        if self.whole:
            yield self.whole
        parts = [
            f"({self.f32(which)} - zero(sides, g, {j}, half)){back}"
            for which, j in (("low", "j"), ("high", self.second))
        ]
        yield f"a[r] = Type::round({', '.join(parts)});"

    @property
    def folds_in_type(self) -> bool:
        """Whether the type has every scale (and zero point) and the arithmetic in it rounds only once."""
        if not self.exact or len(self.fmt.scales) != 1 or self.layout.tensors:
            return False
        if self.plan.exponent and (not self.whole or self.code_zero is not None):
            return False
        zero = self.fmt.zero
        addend = zero is None or not self.value_zero or self._in_type(zero.element)
        return addend and self._in_type(self.fmt.scales[0].element)

    def _in_type(self, element: Element) -> bool:
        if element.kind == "wide":
            return element.type == self.kind.name
        return all(map(self.kind.holds, element.values()))

    def folded(self) -> Iterator[str]:
        head = (
            "template <int Step>",
            "static WOOTZ_FN void decode_folded(const uint32_t* words, const uint8_t* sides, const float* tensor,",
            "                                   int lane, uint32_t (&a)[4]) {",
        )
        made, fmt = self.plan, self.fmt
        if not fmt.scales and fmt.zero is None and not made.exponent:
            yield from (*head, "    values<Step>(words, a);", "}")
        elif self.folds_in_type:
            yield from head
            decoded = "values<Step>(words, a)" if self.code_zero is None else "decode<Step>(words, sides, lane, a)"
            yield from self.each(decoded, self._fold_in_type)
            yield "}"
        else:
            yield from head
            yield from self.each(self.numbers, self._fold_in_f32)
            yield "}"

    def _fold_in_type(self) -> Iterator[str]:
        if self.whole:
            yield self.whole
        if self.value_zero:
            yield f"a[r] = Type::fma2(a[r], {self.packed_scale()}, {self.packed_zero()});"
        else:
            yield f"a[r] = Type::mul2(a[r], {self.packed_scale()});"

    def _fold_in_f32(self) -> Iterator[str]:
        fmt = self.fmt
        if self.whole:
            yield self.whole
        for i, j in enumerate(("j", self.second)):
            value = self.f32("high" if i else "low")
            scale, zero = f"level(sides, tensor, g, {j}, half)", f"zero(sides, g, {j}, half)"
            if fmt.zero is not None and self.value_zero:
                value = f"__builtin_fmaf({value}, {scale}, {zero})" if fmt.scales else f"{value} + {zero}"
            else:
                value = f"({value} - {zero})" if fmt.zero is not None else value
                value = f"{value} * {scale}" if fmt.scales else value
            yield f"const float w{i} = {value};"
        yield "a[r] = Type::round(w0, w1);"


def _power(exponent: int) -> str:
    """The f32 literal of 2^exponent."""
    return f"fragment::as_float(0x{f32_bits(2.0**exponent):08x}u)"


def _repeats(positions: Sequence[Positions], steps: int, bits: int) -> bool:
    """Whether the places repeat after some steps, whole words later."""
    pairs = 4 * steps
    moved = pairs * bits
    return moved % 16 == 0 and all(
        tuple(b) == tuple(p + moved for p in a) for a, b in zip(positions, positions[pairs:])
    )


def functor(fmt: Format, activations: str, target: Target, name: str = "Weight") -> str:
    """The C++ struct `name` that decodes a format's packed words to pairs of "f16" or "bf16"; it needs the
    header cutlass/fragment.cuh.

    Its members:
    bits, unit_k, steps (of 16 k in a unit), vectors and words (a lane's codes: 16 and 4 bytes each),
    code_bytes, unit_bytes, run, runs, tensors (levels that are one per tensor).
    scaled; zeroed: zero points are subtracted from codes; value_zero: they are added after scaling.
    fold_only: only `decode_folded` serves: runs are shorter than a step, zero points come after scaling, or
    the type cannot hold the numbers before they are scaled.
    exact: `decode` gives the very numbers. It is false for codebooks with entries that the type rounds, for
    zero points that are no small integers, and for exponents that the type does not have.
    exponent: what `decode` leaves to the scale: number = decoded * 2^exponent. 0 but for floats in f16.

    decode<Step>(words, sides, lane, a): registers of one step, without scale.
    scale(sides, tensor, g, j, half): f32, all levels and 2^exponent, of row g + 8 * half in run j. Infinite
    where that is past f32. level(...): the same without 2^exponent.
    tensor_level<i>(field): entry i of `tensor`, from the field of that level.
    decode_folded<Step>(words, sides, tensor, lane, a): weights, scaled and with zero points, computed in f32
    as every backend computes them and rounded once to the type; codebooks are not rounded before.
    """
    w = Weights(fmt, KINDS[activations], target, name)
    made = w.plan
    lines = [*w.constants(), f"using Type = fragment::{w.kind.struct};", "using Pair = uint32_t;"]
    lines += [*w.steps("values", made), *w.levels(), *w.zero(), *w.codes(), *w.decode(), *w.folded()]
    body = "".join(f"    {line}\n" for line in lines)
    return "".join(w.tables()) + f"struct {name} {{\n{body}}};\n"
