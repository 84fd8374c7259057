"""Entries of qgemv for one row of x and codes of 4 bits in natural layout (cutlass/qgemv_sm90_natural.cuh),
where rows are whole units of 256 columns, and x and the rings that bring w fit in group memory.

Blocks are persistent, as many as a multiprocessor holds; warps of a block share k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..formats.axes import Element, Format
from ..formats.fragment import ROWS, Fragment, fragment, stream
from ..formats.layout import SCALE_FIELDS
from ..lower.functor import Weights, functor_of, placed, stored_value
from ..manifest.target import Target
from ..variants.family import Arg, Formula, Instance, TensorMap
from ._qgemv_sm90 import EXCESS, decoder, room
from ._two_rows import converts, struct

TEMPLATE = "qgemv_sm90_natural.cuh"
SPACE = TEMPLATE.split("_")[1]
"""The namespace of what templates of one generation have in common."""

BITS = 4
UNIT = 256
"""Columns of a unit."""

BLOCK = 32
"""Columns whose codes one lane decodes: 16 bytes."""

SPANS = 16, 32, 64, 128, 256
"""Columns that a scale or zero point may be for."""

LEAST = {4: 32, 8: 16, 16: 16, 32: 16}
"""Bits of one in a field of its own -> the fewest of them."""


@dataclass(frozen=True)
class Side:
    """A scale or zero point: in a field of its own for each `span` columns, or at byte `at` of each block."""

    name: str
    element: Element
    span: int
    at: int | None

    @property
    def count(self) -> int:
        """Of a lane's 64 columns."""
        return 2 if self.at is not None else max(1, 64 // self.span)

    @property
    def copied(self) -> int:
        """Bytes that a lane copies of a row's."""
        return 0 if self.at is not None else max(4, self.count * self.element.bits // 8)

    @property
    def whole(self) -> int:
        """Columns after which a row of the field is whole pieces of what a lane copies."""
        return max(UNIT, self.copied * 8 * self.span // self.element.bits)

    def struct(self, block_bytes: int) -> str:
        """The template's type."""
        if self.at is not None:
            return f"gemv::Within<{block_bytes}, {self.at}>"
        return f"gemv::Beside<{self.element.bits}, {self.span}>"


@dataclass(frozen=True)
class Row:
    """What a row of w is made of. Blocks of `bytes`, 16 of them codes from byte `codes_at` on; order: of each
    pair that a lane decodes the two columns, 16 pairs of an even block and 16 of an odd one."""

    bytes: int
    codes_at: int
    order: tuple[tuple[int, int], ...]
    scale: Side
    zero: Side | None

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.scale,) if self.zero is None else (self.scale, self.zero)

    @property
    def piece(self) -> int:
        """Bytes of a unit."""
        return self.bytes * UNIT // BLOCK


def row_of(fmt: Format) -> Row | None:
    """None where rows are not made so, or have more levels of scales than one beside those of the tensor."""
    layout, element = fmt.layout, fmt.element
    if element.bits != BITS or element.kind not in ("int", "float") or BLOCK % layout.unit:
        return None
    places = [
        [p + 8 * (e // layout.unit) * layout.unit_bytes for p in layout.positions[e % layout.unit]]
        for e in range(BLOCK)
    ]
    start, size = min(map(min, places)), layout.unit_bytes * BLOCK // layout.unit
    column = {place[0] - start: e for e, place in enumerate(places)}
    dense = all(place == list(range(place[0], place[0] + BITS)) for place in places)
    if not dense or sorted(column) != list(range(0, 4 * BLOCK, BITS)) or start % 8 or size % 2:
        return None
    sides = _sides(fmt)
    apart = size % 4 != 0
    if sides is None or start // 8 % 4 != (2 if apart else 0):
        return None
    turns = [2 if apart else 0, 0]  # of even blocks, and odd ones
    order = tuple(
        (column[BITS * _nibble(j, 0, turned)], column[BITS * _nibble(j, 1, turned)])
        for turned in turns
        for j in range(16)
    )
    halves = [side.span < BLOCK for side in sides if side]
    halved = all(e // 16 == j // 8 for j in range(16) for e in order[j]) and not apart
    if any(halves) and not (halved and all(halves)):
        return None
    return Row(size, start // 8, order, *sides)


def _nibble(pair: int, second: int, turned: int) -> int:
    """Where a pair's first or second code is, among those of a block: words are decoded in two steps, bytes 0
    and 2 before bytes 1 and 3, and both codes of a pair are at the same place of a half-word. turned: bytes
    by which the block is."""
    word, quarter = pair // 4, pair % 4
    nibble = 8 * word + quarter + 4 * second
    return (nibble + 2 * turned) % BLOCK


def _sides(fmt: Format) -> tuple[Side, Side | None] | None:
    """The scale's and the zero point's."""
    levels = [(n, s.element, s.block) for n, s in zip(SCALE_FIELDS, fmt.scales, strict=False)]
    parts = [level for level in levels if tuple(level[2]) != (0, 0)]
    if len(parts) != 1 or parts[0][0] != SCALE_FIELDS[0]:
        return None
    if fmt.zero is not None:
        parts.append(("zero", fmt.zero.element, fmt.block))
    inline = {each.field: each for each in fmt.layout.inline}
    found: list[Side] = []
    for name, element, block in parts:
        each = inline.get(name)
        side = Side(name, element, block.cols, each.bit // 8 if each else None)
        if element.kind == "codebook" or block.rows != 1 or block.cols not in SPANS:
            return None
        if each and (element.bits != 16 or each.bit % 16 or not block.cols == fmt.layout.unit == BLOCK):
            return None
        if not each and block.cols < LEAST.get(element.bits, 2 * UNIT):
            return None
        found.append(side)
    return found[0], found[1] if len(found) > 1 else None


@dataclass(frozen=True)
class Tile:
    """One variant. warps: of a block, along k; slots: of a warp's ring; blocks: of a multiprocessor, if group
    memory allows."""

    warps: int
    slots: int
    blocks: int

    @property
    def name(self) -> str:
        """Unlike any other's among `points`."""
        return f"natural_w{self.warps}_s{self.slots}_b{self.blocks}"

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def fixed(self, row: Row) -> int:
        """Bytes of group memory but for x, as the template counts them."""
        ring = self.warps * self.slots * ROWS * row.piece
        sides = self.warps * self.slots * 64 * sum(side.copied for side in row.sides)
        barriers = (self.warps * self.slots + 1) // 2 * 16
        return ring + sides + barriers + 8 * self.warps * ROWS * 4 + 2 * UNIT

    def needed(self, row: Row) -> Formula:
        """Bytes of group memory: x, and its sum over each half of a block."""
        return ["add", self.fixed(row), ["mul", ["div", "k", UNIT], 2 * UNIT + 4 * UNIT // 16]]

    def shared(self, row: Row, most: int) -> Formula:
        """The same, and at least so many that `blocks` fit on a multiprocessor and no more."""
        return ["max", self.needed(row), room(self.blocks + 1, most) + 16]

    def grid(self, row: Row, most: int) -> Formula:
        """Blocks: no more than there are tiles, and than are resident together."""
        fits: Formula = ["le", self.needed(row), room(self.blocks, most)]
        blocks: Formula = ["mul", "sms", ["add", 1, ["mul", self.blocks - 1, fits]]]
        return ["min", ["ceildiv", "n", ROWS], blocks]


USUAL = Tile(8, 3, 2)
POINTS = Tile(8, 2, 2), Tile(8, 4, 2), Tile(8, 2, 3), Tile(16, 2, 1), Tile(16, 3, 1)
"""Further tiles, for tuning."""


def instances(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """The usual one; none where the format or the type of x does not suit."""
    yield from _entries(fmt, dtype, target, {"natural": USUAL})


def further(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """For tuning."""
    yield from _entries(fmt, dtype, target, {tile.name: tile for tile in POINTS})


def _entries(fmt: Format, dtype: str, target: Target, tiles: dict[str, Tile]) -> Iterator[Instance]:
    row, activations = row_of(fmt), ("f16", "bf16")
    if row is None or dtype not in activations or not {"wgmma", "pdl"} <= target.features:
        return
    lies = replace(fragment(fmt), positions=stream(BITS))
    weights, lift = decoder(fmt, dtype, target, lies)
    # What codes and their zero points lack is not the same power of two.
    lacking = weights.plan.exponent != 0 and weights.code_zero is not None
    if not weights.plan.exact or lacking:
        return
    for suffix, tile in tiles.items():
        yield _entry(suffix, tile, row, weights, lift, target)


def _entry(suffix: str, tile: Tile, row: Row, weights: Weights, lift: bool, target: Target) -> Instance:
    most = target.shared_max
    whole = max(side.whole for side in row.sides)
    shape: tuple[Formula, ...] = (["eq", "m", 1], ["eq", ["mod", "k", whole], 0], ["ge", "k", whole])
    fits: Formula = ["le", tile.needed(row), most]
    return Instance(
        suffix,
        (TEMPLATE,),
        _text(tile, row, weights, lift),
        _arguments(weights.layout, row),
        tile.threads,
        (tile.grid(row, most), 1, 1),
        (*shape, ["lt", "k", 2**31], fits),
        shared=tile.shared(row, most),
        maps=(_map(row),),
        pdl=True,
        gate="hmma+utmaldg",
        preamble=(functor_of(weights), _rows(row, weights)),
    )


def _rows(row: Row, weights: Weights) -> str:
    """The decoder, with what a row is made of."""
    name = f"{weights.name}_natural"
    zero = row.zero.struct(row.bytes) if row.zero else "gemv::Absent"
    lines = [
        f"static constexpr int block_bytes = {row.bytes}, codes_at = {row.codes_at};",
        f"using Scale = {row.scale.struct(row.bytes)};",
        f"using Zero = {zero};",
        *_numbers(weights),
        *_arranged(row),
        *_scales(row.scale, weights),
        *_zeros(row.zero, weights),
    ]
    return struct(name, weights.name, lines)


def _numbers(weights: Weights) -> Iterator[str]:
    """Codes as numbers; integers of few bits with what they are written into."""
    most = EXCESS if weights.plan.exponent == 0 else 0
    keeps = weights.excess is not None and weights.excess <= most
    yield f"static constexpr int excess = {weights.excess if keeps else 0};"
    yield from placed(weights) if keeps else ()
    yield "template <int Step>"
    yield "static WOOTZ_FN void numbers(const uint32_t* words, uint32_t (&a)[4]) {"
    yield f"    {weights.name}_natural::{'placed' if keeps else 'values'}<Step>(words, a);"
    yield "}"


def _arranged(row: Row) -> Iterator[str]:
    """x of a block, in pairs."""
    yield "template <bool Odd>"
    yield "static WOOTZ_FN void arrange(uint4 (&to)[4], const uint4 (&x)[4]) {"
    halves = [row.order[:16]] if row.order[:16] == row.order[16:] else [row.order[:16], row.order[16:]]
    for odd, order in enumerate(halves):
        if len(halves) > 1:
            yield f"    if constexpr (Odd == {str(bool(odd)).lower()}) {{"
        for j, (low, high) in enumerate(order):
            select = (0x7600 if high % 2 else 0x5400) | (0x32 if low % 2 else 0x10)
            one, two = (f"x[{e // 8}].{'xyzw'[e % 8 // 2]}" for e in (low, high))
            yield f"    to[{j // 4}].{'xyzw'[j % 4]} = fragment::prmt({one}, {two}, 0x{select:04x});"
        if len(halves) > 1:
            yield "    }"
    yield "}"


def _scales(scale: Side, weights: Weights) -> Iterator[str]:
    """All levels, without the decoder's power of two."""
    rest = [
        f" {'/' if level.op == 'divide' else '*'} tensor[{i}]"
        for i, level in enumerate(weights.fmt.scales[1:])
    ]
    yield "static WOOTZ_FN void scales(float (&to)[Scale::count], const Scale& held, const float* tensor) {"
    if converts(weights) and scale.at is None and scale.span == 16:
        for half in (0, 1):
            yield f"    float pair{half}[2];"
            yield f"    gemv::numbers_of_codes<{half}>(pair{half}, held.held[0]);"
            for i in (0, 1):
                yield f"    to[{2 * half + i}] = pair{half}[{i}]{''.join(rest)};"
    else:
        for i in range(scale.count):
            yield f"    to[{i}] = {_number(scale.element, i)}{''.join(rest)};"
    yield "}"


def _zeros(zero: Side | None, weights: Weights) -> Iterator[str]:
    if zero is None or weights.fmt.zero is None:
        return
    one = " + 1.0f" if weights.fmt.zero.stored == "minus_one" else ""
    yield "static WOOTZ_FN void zeros(float (&to)[Zero::count], const Zero& held) {"
    for i in range(zero.count):
        yield f"    to[{i}] = {_number(zero.element, i)}{one};"
    yield "}"


def _number(element: Element, i: int) -> str:
    code = f"held.code<{i}>()"
    if element.kind == "wide" and element.bits == 32:
        return f"fragment::as_float({code})"
    return stored_value(element, code, "")


def _map(row: Row) -> TensorMap:
    """Rows of w, by units; swizzled where they are 128 bytes."""
    pitch: Formula = ["mul", ["div", "k", UNIT], row.piece]
    swizzle = 128 if row.piece == 128 else 0
    return TensorMap("codes", "w.codes", "u8", (pitch, "n"), (pitch,), (row.piece, ROWS), swizzle=swizzle)


def _arguments(layout: Fragment, row: Row) -> tuple[Arg, ...]:
    beside = _beside(row)
    return (
        Arg("codes", "map", "map"),
        *(Arg(name, "ptr", "in") for name in ("x", *(f"w.{name}" for name in (*beside, *layout.tensors)))),
        Arg("y", "ptr", "out"),
        *(Arg(axis, "u32", "shape") for axis in ("m", "n", "k")),
        *(Arg(f"w.{name}", "u32", "pitch") for name in beside),
    )


def _beside(row: Row) -> tuple[str, ...]:
    """Fields of the format that are rows of numbers."""
    return tuple(side.name for side in (row.scale, row.zero) if side is not None and side.at is None)


def _text(tile: Tile, row: Row, weights: Weights, lift: bool) -> str:
    """The entry point."""
    tensors, beside = weights.layout.tensors, _beside(row)
    arrays = "".join(f", const void* __restrict__ w_{name}" for name in (*beside, *tensors))
    pitches = "".join(f", uint32_t {name}_pitch" for name in beside)
    levels = [f"{weights.name}::tensor_level<{i}>(w_{name})" for i, name in enumerate(tensors)]
    sides = ", ".join(map(_pointer, (row.scale, row.zero)))
    sizes = ", ".join(map(_bytes, (row.scale, row.zero)))
    numbers = f"{tile.warps}, {tile.slots}, {str(lift).lower()}"
    return f"""
using $SYMBOL_tile = gemv::NaturalTile<{weights.name}_natural, {numbers}>;
static_assert($SYMBOL_tile::x_at == {tile.fixed(row)}, "");
extern "C" __global__ void __launch_bounds__({tile.threads}, {tile.blocks})
    $SYMBOL(const __grid_constant__ {SPACE}::TensorMap codes, const uint16_t* x{arrays},
            uint16_t* y, uint32_t m, uint32_t n, uint32_t k{pitches})
{{
    extern __shared__ __align__(1024) uint8_t memory[];
    const float levels[{max(1, len(levels))}] = {{{", ".join(levels) or "1.0f"}}};
    gemv::run_natural<$SYMBOL_tile>({{&codes, x, {sides}, levels, y, m, n, k, {sizes}}}, memory);
}}
"""


def _pointer(side: Side | None) -> str:
    beside = side is not None and side.at is None
    return f"static_cast<const uint8_t*>(w_{side.name})" if side and beside else "nullptr"


def _bytes(side: Side | None) -> str:
    """The pitch in bytes, of a field whose array has entries of 8, 16 or 32 bits."""
    if side is None or side.at is not None:
        return "0"
    return f"{side.name}_pitch * {max(1, side.element.bits // 8)}"
