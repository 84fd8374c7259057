"""Entries of qmm_packed on warpgroup MMA (cutlass/qmm_sm90.cuh), where rows of x are multiples of 16 bytes.

A tile of the result is 128 rows of w by `columns` rows of x. Blocks are persistent, one a multiprocessor;
tiles left over when all have had the same number are cut along k, and their sums meet in the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import frexp, gcd, isfinite

from ..formats.axes import Format
from ..formats.fragment import PERIOD, STEP, Fragment, fragment
from ..lower.functor import KINDS, Weights, added_in_type, functor_of, subnormals, zero_bits
from ..lower.pairs import Kind, bytes_apart, integer_of
from ..lower.wgmma import wgmmas
from ..manifest.target import Target
from ..variants.family import Arg, Formula, Instance, TensorMap
from ._two_rows import looked_up, struct, two_rows

ROWS = 128
COLUMNS = 16, 32, 64, 128, 256
WIDE = 128
"""Columns of a tile that any number of rows of x is worth."""

SUITS: tuple[Formula, ...] = (["eq", ["mod", "k", 8], 0], ["lt", ["max", "m", "k"], 2**31 - 256])
"""Shapes whose x can be read by tensor maps: whole 16 bytes a row, and coordinates of 31 bits."""

CHUNK = 64
"""Columns of x in 128 bytes, the width of the swizzle."""

MANY = 20
"""Code words of a lane beside which two batches of four steps leave too few registers."""

LESS = 8
"""Where codes are subnormal numbers, weights enter the product 2^LESS smaller: their scales have no room
otherwise."""

WORDS = 24
"""Code words of a lane that leave a tile of 64 columns in two groups enough registers."""


@dataclass(frozen=True)
class Rings:
    """A tile and the rings that feed it, as cutlass/qmm_sm90_plan.cuh has them. groups: pairs of consumer
    warpgroups, each on its own units; box: chunks of x a copy; slots: of the rings of x and of w; batch: k16
    steps decoded together; narrower: numbers of columns that a tile with fewer rows of x takes instead."""

    columns: int
    groups: int
    box: int
    x_slots: int
    w_slots: int
    batch: int
    narrower: tuple[int, ...] = ()

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns that a tile may take."""
        return (*self.narrower, self.columns)

    @property
    def part(self) -> int:
        """Rows of x of a copy that is no box."""
        return gcd(*self.widths)

    @property
    def struct(self) -> str:
        """The template's type."""
        numbers = [self.columns, self.groups, self.box, self.x_slots, self.w_slots, self.batch]
        parted = [self.part, *self.narrower] if self.narrower else []
        return f"warpgroup::Tile<{', '.join(map(str, numbers + parted))}>"

    @property
    def threads(self) -> int:
        return 256 * self.groups + 128

    def shared(self, layout: Fragment) -> int:
        """Bytes of group memory, as the template counts them."""
        x_slot, w_slot = self.columns * 2 * CHUNK * self.box, ROWS // 16 * layout.unit_bytes
        half = self.columns * 256 if self.groups > 1 else CHUNK * 128
        barriers = 16 * (self.x_slots + self.w_slots)
        return self.x_slots * x_slot + self.w_slots * w_slot + 2 * half + barriers + 16 + 1024

    def fits(self, layout: Fragment, most: int) -> bool:
        return self.shared(layout) <= most


def crowded(layout: Fragment) -> bool:
    """Whether a tile of 64 columns in two groups would spill: many code words, or with fewer of them wide
    scales that change within a chunk."""
    sides = layout.unit_bytes - layout.code_bytes
    return layout.words > WORDS or (layout.words >= MANY and layout.run < CHUNK and sides > 128)


def rings(columns: int, layout: Fragment, most: int) -> Rings | None:
    """The tile with as many slots as help and fit. None: it does not suit the format."""
    groups = 2 if columns <= 64 else 1
    if columns == 64 and crowded(layout):
        return None
    chunks = layout.columns // CHUNK
    box = chunks if groups > 1 else {128: 2}.get(columns, 1)
    # Enough for 256 columns of k a group and one more; then what the copies of w need to be ahead.
    x_slots = {16: 6, 32: 6, 64: 4, 128: 4, 256: 5}[columns] * (4 // chunks if groups > 1 else 1)
    w_slots = {16: 6, 32: 6, 64: 4, 128: 3, 256: 2}[columns]
    batch = 2 if columns == 64 or layout.words >= MANY else 4
    least = 2 * groups, 2
    while x_slots >= least[0]:
        for slots in range(w_slots, least[1] - 1, -groups):
            found = Rings(columns, groups, box, x_slots, slots, batch)
            if found.fits(layout, most):
                return found
        x_slots -= groups
    return None


def far(fmt: Format, kind: Kind, exponent: int) -> tuple[int, int]:
    """Far and Bound of cutlass/qmm_sm90_lane.cuh. Where decoded values are below 2, scales alone can be too
    large. Where they are larger, scales can be too small: in f16, which has fewer exponents than they."""
    most = max(abs(v) for v in fmt.element.values() if isfinite(v))
    if frexp(most)[1] <= exponent + 1:
        return int(exponent > 0), kind.bias - exponent
    return (-1 if kind.name == "f16" else 0), 1 - kind.bias - exponent


def usual(layout: Fragment, most: int) -> list[Rings]:
    """A tile of each width that suits the format, narrowest first, within `most` bytes of group memory; none
    at all where its side fields leave no room for a wide one."""
    found = [rings(columns, layout, most) for columns in COLUMNS]
    tiles = [tile for tile in found if tile]
    return tiles if tiles and tiles[-1].columns >= WIDE else []


def points(tile: Rings) -> Iterator[Rings]:
    """A tile of `usual`, and its like with other batches and shorter rings: no slot is in two groups' hands,
    and each ring has two at least."""
    step, least = tile.groups, 2 * tile.groups
    fewer = max(least, tile.x_slots * 2 // 3 // step * step)
    for batch in (tile.batch, 6 - tile.batch):
        for x_slots in dict.fromkeys((tile.x_slots, fewer)):
            for w_slots in dict.fromkeys((tile.w_slots, max(2, tile.w_slots - step))):
                yield replace(tile, x_slots=x_slots, w_slots=w_slots, batch=batch)


def instances(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """The tiles, narrowest first: the first whose conditions hold is launched. None at all for a format whose
    side fields leave no room for a wide one."""
    make, tiles = _maker(fmt, dtype, target)
    for tile in tiles:
        yield make(f"n{tile.columns}", tile, () if tile is tiles[-1] else (_suited(tile),))


def further(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """For tuning: every point, for any number of rows of x."""
    make, tiles = _maker(fmt, dtype, target)
    for tile in tiles:
        for p in points(tile):
            yield make(f"n{p.columns}_x{p.x_slots}_w{p.w_slots}_b{p.batch}", p, ())


def _maker(
    fmt: Format, dtype: str, target: Target
) -> tuple[Callable[[str, Rings, tuple[Formula, ...]], Instance], list[Rings]]:
    """What makes an entry of a suffix, a tile and conditions; and the usual tiles."""
    layout = fragment(fmt)
    tiles = usual(layout, target.shared_max)
    weight, preamble = shared_text(fmt, dtype, target, tiles)

    def make(suffix: str, tile: Rings, when: tuple[Formula, ...]) -> Instance:
        return Instance(
            suffix,
            ("qmm_sm90.cuh",),
            entry(tile, layout, weight, ("m", "n", "k")),
            arguments(layout, (), ("m", "n", "k")),
            tile.threads,
            ("sms", 1, 1),
            (*SUITS, *when),
            shared=tile.shared(layout),
            maps=maps(tile, dtype, "m"),
            workspace=_workspace(tile, layout),
            zeroed=True,
            pdl=True,
            gate="hgmma+utmaldg",
            preamble=preamble,
        )

    return make, tiles


def shared_text(
    fmt: Format, dtype: str, target: Target, tiles: Iterable[Rings]
) -> tuple[str, tuple[str, ...]]:
    """The decoder's type, and the texts that it and the tiles need."""
    weights = decoder(fmt, dtype, target)
    kind = weights.kind
    numbers = *far(fmt, kind, taken(weights)), kind.bias, str(powers(weights)).lower()
    weight = f"warpgroup::Folded<{weights.name}_lanes, {', '.join(map(str, numbers))}>"
    widths = (width for tile in tiles for width in tile.widths)
    lanes = struct(f"{weights.name}_lanes", f"{weights.name}_rows", members(weights))
    return weight, (functor_of(weights), two_rows(weights), lanes, wgmmas(widths, dtype))


def members(weights: Weights) -> Iterator[str]:
    """What a lane reads beside scales, and how."""
    zeros, last, apart = [*zero_bits(weights)], offset_last(weights), added_apart(weights)
    flags = {
        "zeros_in_type": bool(zeros), "offset_last": last, "added_apart": apart,
        "added_in_type": added_in_type(weights),
    }  # fmt: skip
    yield from (f"static constexpr bool {name} = {str(value).lower()};" for name, value in flags.items())
    yield f"static constexpr int less = {LESS if last or apart else 0};"
    yield from zeros
    if last or apart:
        yield from _subnormal(weights)
    else:
        yield "static WOOTZ_FN constexpr uint32_t smaller(int) { return 0; }"
    if looked_up(weights):
        yield "template <int Step>"
        yield "static WOOTZ_FN void decode(const uint32_t* words, const uint8_t*, int, uint32_t (&a)[4]) {"
        yield f"    fragment::pick16_word(a, words[Step], {', '.join(_kept(weights.entries))});"
        yield "}"


def _subnormal(weights: Weights) -> Iterator[str]:
    """Codes as subnormal numbers, what their factor is multiplied by (0: by nothing), and what is added: the
    offset, to be multiplied by a scale, or the f32 number."""
    lines, at = subnormals(weights)
    kind, exponent, (_, offset) = weights.kind, taken(weights), integer_of(weights.fmt.element)
    smaller = ", ".join(kind.pair(0.5 ** (t - min(at))) if t > min(at) else "0" for t in at)
    yield f"static constexpr int exponent = {exponent};"
    yield "static WOOTZ_FN constexpr uint32_t smaller(int pair) {"
    yield f"    constexpr uint32_t powers[] = {{{smaller}}};"
    yield f"    return powers[pair % {PERIOD}];"
    yield "}"
    yield from lines
    if weights.value_zero:
        yield "static WOOTZ_FN float added(const uint8_t* sides, float level, int g, int j, int half) {"
        yield f"    return {weights.name}::zero(sides, g, j, half) - {offset}.0f * level;"
        yield "}"
    else:
        yield f"static constexpr uint32_t offset = {kind.pair(-offset * 2.0 ** -(exponent + LESS))};"


def _suits(weights: Weights) -> bool:
    """Whether codes may be subnormal numbers: of a type with so many exponents, and scaled by run."""
    element, kind = weights.fmt.element, weights.kind
    narrow = element.kind == "int" and element.bits <= kind.mantissa and kind.name == "bf16"
    return narrow and bool(weights.fmt.scales) and weights.layout.run >= STEP and not powers(weights)


def offset_last(weights: Weights) -> bool:
    """Whether an integer's offset is taken away as it is scaled, by one operation that rounds once: codes are
    subnormal numbers, and the offset times a scale is one of the type. Measured: it is slower for short runs,
    and fewer bits than 4."""
    _, offset = integer_of(weights.fmt.element)
    pays = weights.layout.run >= CHUNK and weights.layout.bits >= 4
    return weights.fmt.zero is None and pays and _suits(weights) and not offset & (offset - 1)


def added_apart(weights: Weights) -> bool:
    """Whether zero points are added after scaling in the type: both are in two numbers of it."""
    return weights.value_zero and _suits(weights) and not added_in_type(weights)


def taken(weights: Weights) -> int:
    """The exponent of the power of two that scales take beside what they are."""
    if not (offset_last(weights) or added_apart(weights)):
        return weights.plan.exponent
    _, at = subnormals(weights)
    return weights.kind.bias + weights.kind.mantissa - 1 - min(at) - LESS


def _kept(entries: Sequence[int]) -> Iterator[str]:
    """A table's words. Of the two words that an instruction chooses from one may be a part of it."""
    for i, word in enumerate(bytes_apart(entries)):
        yield word if i % 2 else f"warpgroup::kept({word})"


def decoder(fmt: Format, dtype: str, target: Target) -> Weights:
    """The one whose numbers lack their power of two, where scales can take that, too."""
    plain = Weights(fmt, KINDS[dtype], target, f"Weight_{dtype}")
    bare = Weights(fmt, KINDS[dtype], target, f"Bare_{dtype}", bare=True)
    alone = fmt.zero is not None or plain.fold_only or not fmt.scales
    unlike = plain.plan.exponent != bare.plan.exponent <= plain.kind.bias
    return plain if alone or not unlike else bare


def powers(weights: Weights) -> bool:
    """Whether all scales are one field of E8M0 codes, two runs and more a unit, and the dtype is theirs; they
    have no room beside many code words."""
    scales, layout = weights.fmt.scales, weights.layout
    alone = len(scales) == 1 and scales[0].element.kind == "exponent" and len(layout.sides) == 1
    fits = layout.words < MANY or layout.runs <= 4
    return alone and fits and not layout.tensors and layout.runs % 2 == 0 and weights.kind.name == "bf16"


def _suited(tile: Rings) -> Formula:
    """Whether the tile is the best of those as wide or wider: one of 128 columns also where blocks are enough
    for twice as many tiles."""
    fits: Formula = ["le", "m", tile.columns]
    if tile.columns != WIDE:
        return fits
    tiles: Formula = ["mul", ["ceildiv", "n", ROWS], ["ceildiv", "m", WIDE]]
    return ["or", fits, ["and", ["le", "m", 2 * WIDE], ["le", tiles, "sms"]]]


def maps(tile: Rings, dtype: str, rows: Formula) -> tuple[TensorMap, ...]:
    """x by boxes of several chunks of k, where they are whole; and chunk by chunk, up to a ragged end."""
    pitch: Formula = ["mul", "k", 2]
    whole: Formula = ["max", 1, ["div", "k", CHUNK]]
    boxes = TensorMap(
        "boxes", "x", dtype, (CHUNK, rows, whole), (pitch, 2 * CHUNK), (CHUNK, tile.columns, tile.box)
    )
    return boxes, TensorMap("chunks", "x", dtype, ("k", rows), (pitch,), (CHUNK, tile.part))


def _workspace(tile: Rings, layout: Fragment) -> Formula:
    """What the parts of tiles left over need, if they are cut."""
    tiles: Formula = ["mul", ["ceildiv", "n", ROWS], ["ceildiv", "m", tile.columns]]
    rest: Formula = ["mod", tiles, "sms"]
    cut: Formula = ["and", ["gt", rest, 0], ["le", ["mul", rest, 2], "sms"]]
    return ["mul", cut, parts(tile, layout)]


def parts(tile: Rings, layout: Fragment) -> Formula:
    """Two counters and a part of sums a block, if k is long enough for two."""
    deep: Formula = ["ge", ["ceildiv", "k", layout.columns], 4]
    counters: Formula = ["mul", ["ceildiv", ["mul", "sms", 8], 128], 128]
    return ["mul", deep, ["add", counters, ["mul", "sms", ROWS * tile.columns * 4]]]


def arguments(layout: Fragment, arrays: tuple[str, ...], sizes: tuple[str, ...]) -> tuple[Arg, ...]:
    """Of an entry. arrays: inputs beside x and w."""
    fields = ("w.units", *(f"w.{name}" for name in layout.tensors))
    return (
        Arg("boxes", "map", "map"),
        Arg("chunks", "map", "map"),
        *(Arg(name, "ptr", "in") for name in (*fields, *arrays)),
        Arg("y", "ptr", "out"),
        Arg("workspace", "ptr", "workspace"),
        *(Arg(axis, "u32", "shape") for axis in sizes),
    )


def entry(
    tile: Rings, layout: Fragment, weight: str, sizes: Sequence[str], arrays: Sequence[str] = (),
    bank: str = "", source: str = "",
) -> str:  # fmt: skip
    """The entry point. arrays: indices that the launch before may write, so that no load of them may move;
    bank: declares $SYMBOL_bank, the type of a problem of many matrices, whose groups are `source`."""
    fields = "".join(f", const void* __restrict__ w_{name}" for name in layout.tensors)
    fields += "".join(f", const int32_t* {name}" for name in arrays)
    levels = ", ".join(f"w_{name}" for name in layout.tensors)
    rows = "0" if bank else "m"
    problem = f"{{&boxes, &chunks, w_units, {{{levels}}}, y, workspace, {rows}, n, k}}"
    types = "$SYMBOL_weight, $SYMBOL_tile" + (", $SYMBOL_bank" if bank else "")
    return f"""
using $SYMBOL_weight = {weight};
using $SYMBOL_tile = {tile.struct};
using $SYMBOL_layout = warpgroup::Layout<$SYMBOL_weight, $SYMBOL_tile>;
static_assert($SYMBOL_layout::bytes == {tile.shared(layout)}, "");
{bank}extern "C" __global__ void __launch_bounds__({tile.threads}, 1)
    $SYMBOL(const __grid_constant__ warpgroup::TensorMap boxes,
            const __grid_constant__ warpgroup::TensorMap chunks,
            const uint8_t* __restrict__ w_units{fields}, uint16_t* __restrict__ y,
            uint8_t* __restrict__ workspace, {", ".join(f"uint32_t {axis}" for axis in sizes)})
{{
    warpgroup::qmm<{types}>({f"{{{problem}, {source}}}" if bank else problem});
}}
"""
