"""The decode functor of a format for matrix instructions on bytes: 8-bit integers, or 8-bit floats (E4M3).

`byte_functor` writes a struct that adds to the one of `functor` what cutlass/qmm_sm80.cuh asks for with such
activations. A number of the element, times a power of two, has to be one of the bytes' type: then the product
is exact, and the power is left to the scale. How codes become bytes is a table, `WAYS`, tried in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..formats.axes import Element, Format, f32_bits, minifloat_value
from ..formats.fragment import fragment
from .pairs import code_pieces, gather, integer_of

STEP = 32
"""Columns of one matrix instruction."""

SHIFTS = (0, *(s for n in range(1, 24) for s in (n, -n)))
"""Powers of two that are tried, small ones first."""

E4M3 = {minifloat_value(c, 4, 3, 7, "nan", True): c for c in range(127, -1, -1)} | {
    minifloat_value(c, 4, 3, 7, "nan", True): c for c in range(255, 128, -1)
}
"""Number -> code, for all but NaN."""


def _integer_code(value: float) -> int | None:
    return int(value) & 255 if value == int(value) and -128 <= value <= 127 else None


def _float_code(value: float) -> int | None:
    return 127 if math.isnan(value) else E4M3.get(value)


CODES: dict[str, Callable[[float], int | None]] = {"i8": _integer_code, "e4m3": _float_code}
"""Type of bytes -> its code of a number, None where it has none."""


@dataclass(frozen=True)
class Plan:
    """number = byte * 2^exponent. text: the expression of four bytes, from four codes `c` in bytes; zeros: it
    takes off offset and zero point together, `off`."""

    exponent: int
    text: str
    zeros: bool = False


def _repeated(byte: int) -> str:
    return f"0x{byte * 0x01010101:08x}u"


def _by_subtraction(fmt: Format, kind: str) -> Plan | None:
    """Integers, with zero points: a guard bit above each code keeps borrows in."""
    element, zero = fmt.element, fmt.zero
    if kind != "i8" or element.kind != "int":
        return None
    flipped, offset = integer_of(element)
    stored = [0.0]
    if zero is not None:
        stored = [z + (zero.stored == "minus_one") for z in zero.element.values()]
    most = (1 << element.bits) - 1
    if element.bits == 8 and zero is None and offset == 128:
        return Plan(0, "c" if flipped else "c ^ 0x80808080u")
    inside = offset + min(stored) >= 0 and offset + max(stored) <= 128
    if element.bits > 7 or not inside or most - offset - min(stored) > 127:
        return None
    code = f"(c ^ {_repeated(flipped)})" if flipped else "c"
    less = "off" if zero is not None else _repeated(offset)
    return Plan(0, f"(({code} | 0x80808080u) - {less}) ^ 0x80808080u", zero is not None)


def _shift_of(element: Element, kind: str) -> int | None:
    """The first power of two that makes every number one of the bytes'."""
    values = element.values()
    if any(math.isinf(v) for v in values):
        return None
    for shift in SHIFTS:
        if all(math.isnan(v) or CODES[kind](math.ldexp(v, shift)) is not None for v in values):
            return None if kind == "i8" and any(map(math.isnan, values)) else shift
    return None


def _by_place(fmt: Format, kind: str) -> Plan | None:
    """Small floats by moving magnitude and sign: the biases differ by a power of two."""
    e = fmt.element
    if kind != "e4m3" or e.kind != "float" or fmt.zero is not None or not e.signed:
        return None
    same = (e.exponent, e.mantissa, e.specials) == (4, 3, "nan")
    if not same and (e.specials != "none" or e.exponent > 3 or e.mantissa > 3):
        return None
    payload, at = e.exponent + e.mantissa, 3 - e.mantissa
    if same:
        return Plan(7 - e.bias, "c")
    magnitude = f"(c & {_repeated((1 << payload) - 1)})"
    sign = f"((c & {_repeated(1 << payload)}) << {7 - payload})"
    return Plan(7 - e.bias, f"({magnitude} << {at}) | {sign}" if at else f"{magnitude} | {sign}")


def _by_table(fmt: Format, kind: str) -> Plan | None:
    """Up to 16 numbers, from registers."""
    element = fmt.element
    shift = _shift_of(element, kind)
    if element.bits > 4 or shift is None or fmt.zero is not None:
        return None
    codes = [CODES[kind](math.ldexp(v, shift)) or 0 for v in element.values()]
    padded = bytes(codes + [0] * (16 - len(codes)))
    words = [f"0x{int.from_bytes(padded[i : i + 4], 'little'):08x}u" for i in range(0, 16, 4)]
    return Plan(-shift, f"fragment::pick_bytes(c, {', '.join(words)})")


WAYS: tuple[Callable[[Format, str], Plan | None], ...] = (_by_subtraction, _by_place, _by_table)


def plan(fmt: Format, kind: str) -> Plan | None:
    """The first way that applies."""
    return next((made for way in WAYS if (made := way(fmt, kind)) is not None), None)


def refusal(fmt: Format, kind: str) -> str | None:
    """Why a format cannot meet bytes of a type in one product, or None."""
    if fragment(fmt).run < STEP:
        return (
            f"scales change after {fragment(fmt).run} columns; the product with {kind} takes {STEP} at once"
        )
    if fmt.zero is not None and (fmt.zero.domain != "code" or fmt.zero.element.kind != "int"):
        return f"zero points that are no integers of codes do not go into a product with {kind}"
    if plan(fmt, kind) is None:
        return f"its numbers, less their zero points, are not all {kind} times one power of two"
    return None


def byte_functor(fmt: Format, kind: str, base: str, name: str) -> str:
    """The struct `name` for bytes of "i8" or "e4m3"; base: the struct that `functor` wrote for the format.

    decode<Step>(words, sides, lane, a): registers of 32 columns of m16n8k32, the lane's codes of 16 columns
    in the order 2 t, 2 t + 1, 2 t + 8, 2 t + 9. scale(...): with the power of two. ValueError where `refusal`
    says why not.
    """
    made = plan(fmt, kind)
    if made is None or refusal(fmt, kind):
        raise ValueError(f"{fmt.name}: {refusal(fmt, kind)}")
    lines = [*_head(base, made), *_decode(fmt, made)]
    return f"struct {name} : {base} {{\n" + "".join(f"    {line}\n" for line in lines) + "};\n"


def _head(base: str, made: Plan) -> Iterator[str]:
    yield f"static constexpr int exponent = {made.exponent};"
    yield "static constexpr bool fold_only = false;"
    yield "static WOOTZ_FN float scale(const uint8_t* sides, const float* tensor, int g, int j, int half) {"
    power = f" * fragment::as_float(0x{f32_bits(2.0**made.exponent):08x}u)" if made.exponent else ""
    yield f"    return {base}::level(sides, tensor, g, j, half){power};"
    yield "}"
    off = ", uint32_t off" if made.zeros else ""
    yield f"static WOOTZ_FN uint32_t numbers(uint32_t c{off}) {{ return {made.text}; }}"


def _decode(fmt: Format, made: Plan) -> Iterator[str]:
    layout = fragment(fmt)
    yield "template <int Step>"
    yield "static WOOTZ_FN void decode(const uint32_t* words, const uint8_t* sides, int lane,"
    yield "                            uint32_t (&a)[4]) {"
    yield f"    const uint32_t* w = words + Step / 2 * {layout.bits};"
    if made.zeros:
        offset = integer_of(fmt.element)[1]
        yield f"    const int g = lane >> 2, j = {STEP} * Step / run;"
        for half in (0, 1):
            zero = f"static_cast<uint32_t>(zero(sides, g, j, {half}))"
            yield f"    const uint32_t off{half} = ({zero} + {offset}u) * 0x01010101u;"
    yield "    if constexpr (Step % 2 == 0) {"
    yield from (f"        {line}" for line in _step(layout.positions[:8], made))
    yield "    } else {"
    yield from (f"        {line}" for line in _step(layout.positions[8:], made))
    yield from ("    }", "}")


def _step(positions: Sequence[Sequence[int]], made: Plan) -> Iterator[str]:
    """Registers of 32 columns, from the places of eight pairs."""
    for register in range(4):
        first = 4 * (register >> 1) + (register & 1)
        pairs = ", ".join(gather(code_pieces(positions[i])) for i in (first, first + 2))
        off = f", off{register & 1}" if made.zeros else ""
        yield f"a[{register}] = numbers(fragment::prmt({pairs}, 0x6420){off});"
