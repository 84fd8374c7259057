"""Entries of qmm_packed for up to 8 rows of x (cutlass/qgemv_sm90.cuh), where those are multiples of 16 bytes
and fit in group memory with the rings that bring w.

Blocks are persistent, as many as a multiprocessor holds; warps of a block share k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite, ldexp

from ..formats.axes import Format
from ..formats.fragment import ROWS, STEP, Fragment, fragment
from ..lower.functor import KINDS, Weights, functor_of, placed
from ..manifest.target import Target
from ..variants.family import Arg, Formula, Instance
from ._two_rows import converts, looked_up, struct, two_rows

TOKENS = 8
"""Rows of x that one instruction takes."""

RESERVED = 1024
"""Bytes of group memory that each block takes beside its own."""

WIDE = 6
"""Bits of a code from which memory alone is the limit: more warps wait for it, with deeper rings."""

SMALL, LARGE = 1 << 25, 1 << 27
"""Weights of a matrix up to which it takes short, and from which it takes long, beside what comes before and
after it."""

EXCESS = 255
"""What integers may have too much for f32 sums to keep what results of their type have of digits: bf16's."""

LIFTED = 64
"""Lost powers of two from which x is multiplied by one, for products to be normal numbers."""

ROOM = -100
"""Decoded numbers are below 2^ROOM then: sums of products with x, however large, stay in f32's range."""


TABLE = 256 * 128
"""Bytes of the table of pairs, once for each lane of a warp."""


def room(blocks: int, most: int) -> int:
    """Bytes of group memory that each of so many blocks of a multiprocessor may have, if one may have `most`:
    a multiprocessor has RESERVED more."""
    return (most + RESERVED) // blocks - RESERVED


@dataclass(frozen=True)
class Tile:
    """One variant. tokens: rows of x at most, 1 or 8; warps: of a block, along k; slots: of a warp's ring;
    units: of w in a slot; blocks: of a multiprocessor, if group memory allows; table: codes are looked up;
    shift: each run's sum of x is kept; launches: whose blocks they are, one after the other."""

    tokens: int
    warps: int
    slots: int
    units: int
    blocks: int
    table: bool = False
    shift: bool = False
    launches: int = 1

    @property
    def name(self) -> str:
        """Unlike any other's among `points`."""
        return f"v{self.tokens}_w{self.warps}_s{self.slots}_u{self.units}_b{self.blocks}{'_t' * self.table}"

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def fixed(self, layout: Fragment) -> int:
        """Bytes of group memory but for x, as the template counts them."""
        waiting = 8 if self.tokens == 1 else 2
        rings = self.warps * self.slots * self.units * layout.unit_bytes
        sums = 4 * self.tokens * ROWS * waiting * self.warps
        return rings + (self.warps * self.slots + 1) // 2 * 16 + sums + TABLE * self.table

    def fits(self, layout: Fragment, most: int) -> bool:
        """Whether the smallest x fits as well."""
        return self.fixed(layout) + self.tokens * (2 * layout.columns + 16) + 4 * layout.runs <= most

    def needed(self, layout: Fragment) -> Formula:
        """Bytes of group memory."""
        units: Formula = ["ceildiv", "k", layout.columns]
        if self.tokens == 1:
            each = 2 * layout.columns + 4 * layout.runs * self.shift
            return ["add", self.fixed(layout) + 16, ["mul", units, each]]
        return ["add", self.fixed(layout), ["mul", "m", ["add", ["mul", units, 2 * layout.columns], 16]]]

    def shared(self, layout: Fragment, most: int) -> Formula:
        """The same, and at least so many that `blocks` fit on a multiprocessor and no more: where another one
        does, they are spread unevenly, and some multiprocessors have half as much again to do."""
        return ["max", self.needed(layout), room(self.blocks + 1, most) + 16]

    def together(self, layout: Fragment, most: int) -> Formula:
        """Whether all the blocks that a multiprocessor is to have fit."""
        return ["le", self.needed(layout), room(self.blocks, most)]

    def grid(self, layout: Fragment, most: int) -> Formula:
        """Blocks: no more than there are tiles, and than are resident together."""
        blocks: Formula = "sms"
        each = self.blocks // self.launches
        if each > 1:
            blocks = ["mul", "sms", ["add", 1, ["mul", each - 1, self.together(layout, most)]]]
        return ["min", ["ceildiv", "n", ROWS], blocks]

    def when(self, layout: Fragment, most: int) -> tuple[Formula, ...]:
        """Rows of x are whole pieces of 16 bytes, as many as the tile is for, and all that one block needs is
        there."""
        rows: Formula = ["and", ["ge", "m", 1], ["le", "m", self.tokens]]
        return (rows, ["eq", ["mod", "k", 8], 0], ["le", self.needed(layout), most])


def usual(weights: Weights, most: int) -> dict[str, tuple[Tile, tuple[Formula, ...]]]:
    """The tiles by suffix, with further conditions: for one row of x, of a matrix that is small, large, has
    many rows, any; for several rows of x, and long ones. most: bytes of group memory of a block."""
    layout, table = weights.layout, looked_up(weights)
    size: Formula = ["mul", "n", "k"]
    tiles: Formula = ["ceildiv", "n", ROWS]
    if layout.bits >= WIDE:
        one = Tile(1, 16, 3, 1, 1)
    elif table:
        one = Tile(1, 16, 2, 1, 1, table)
    else:
        one = Tile(1, 8, 2, 1, 2)
    found: dict[str, tuple[Tile, tuple[Formula, ...]]] = {}
    # A block of each of two launches a multiprocessor. Of 4 bits and k up to 4096 its rings hold two tiles.
    small = Tile(1, 8, 2, 1, 2, table) if table else Tile(1, 8, 4, 1, 2, launches=2)
    few: Formula = ["and", ["le", size, SMALL], ["le", tiles, ["mul", 2, "sms"]]]
    found["v1_small"] = small, (few, small.together(layout, most))
    if layout.bits < WIDE and not table:
        # Sums of x, and one block in place of two, pay where a block has several tiles.
        found["v1_large"] = Tile(1, 16, 2, 2, 1, shift=shifts(weights)), (["ge", size, LARGE],)
        wide = Tile(1, 16, 2, 1, 1, shift=shifts(weights))
        found["v1_wide"] = wide, (["ge", tiles, ["mul", 4, "sms"]],)
    many, long = Tile(TOKENS, 8, 2, 1, 2, table), Tile(TOKENS, 16, 2, 1, 1, table)
    return {**found, "v1": (one, ()), "v8": (many, (many.together(layout, most),)), "v8_long": (long, ())}


def points(weights: Weights) -> Iterator[Tile]:
    """Further tiles, for tuning."""
    layout, table = weights.layout, looked_up(weights)
    if layout.bits >= WIDE:
        yield from (Tile(1, 8, 3, 1, 2), Tile(1, 16, 2, 1, 1), Tile(1, 16, 2, 2, 1))
    elif table:
        yield from (Tile(1, 8, 2, 1, 2, table), Tile(1, 16, 3, 1, 1, table), Tile(1, 8, 2, 1, 2))
    else:
        yield from (Tile(1, 8, 2, 2, 2), Tile(1, 8, 3, 1, 2), Tile(1, 16, 2, 1, 1), Tile(1, 16, 2, 2, 1))
    yield Tile(TOKENS, 16, 2, 2, 1, table)


def decoder(fmt: Format, dtype: str, target: Target, lies: Fragment | None = None) -> tuple[Weights, bool]:
    """The decoder, and whether x has to be lifted for it: numbers lack their power of two where that saves a
    multiplication and does no harm. lies: as of Weights."""
    plain = Weights(fmt, KINDS[dtype], target, f"Weight_{dtype}", lies=lies)
    bare = replace(plain, name=f"Multiplied_{dtype}", bare=True, times="gemv::times")
    exponent = bare.plan.exponent
    if fmt.zero is not None or plain.fold_only or not LIFTED <= exponent <= plain.kind.bias:
        return plain, False
    if exponent == plain.plan.exponent:
        return plain, False
    most = max(abs(v) for v in fmt.element.values() if isfinite(v))
    return (bare, True) if ldexp(most, -exponent) < 2.0**ROOM else (plain, False)


def linear(weights: Weights) -> bool:
    """Whether zero points after scaling can wait for the sums, times the sum of x."""
    made = weights.plan
    waits = weights.layout.run >= STEP and made.exact and abs(made.exponent) < LIFTED
    return weights.value_zero and bool(weights.fmt.scales) and waits


def shifts(weights: Weights) -> bool:
    """Whether integers are multiplied with their excess, and zero points unsubtracted: the sum of x over a
    run takes them away. That is less for one row of x, and more for several."""
    zero = weights.code_zero is None or weights.fused is not None
    waits = weights.layout.run >= STEP and not weights.fold_only and bool(weights.fmt.scales)
    return weights.excess is not None and weights.excess <= EXCESS and zero and waits


def levels(weights: Weights, lift: bool) -> str:
    """How scales are stored, as the template calls it. A level that is one per tensor waits for sums that
    stay in f32's range without it, whatever x is, and that have nothing but its multiples: no zero points."""
    scales, tensors = weights.fmt.scales, weights.layout.tensors
    if len(scales) == 1 and scales[0].element.kind == "exponent" and not tensors:
        return "Powers"
    if not converts(weights):
        return "Any"
    alone = not linear(weights)
    bounded = lift or weights.kind.exponent == KINDS["f16"].exponent
    waits = not tensors or (alone and bounded and len(tensors) == 1 and scales[1].op == "multiply")
    return "Floats" if waits else "Any"


def instances(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """For one row of x, and for several. None where the rings of a format leave no room for any x."""
    weights, most = decoder(fmt, dtype, target)[0], target.shared_max
    for suffix, (tile, when) in usual(weights, most).items():
        if tile.fits(weights.layout, most):
            yield _entry(suffix, tile, when, fmt, dtype, target)


def further(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """Entries for tuning."""
    weights = decoder(fmt, dtype, target)[0]
    for tile in points(weights):
        if tile.fits(weights.layout, target.shared_max):
            yield _entry(tile.name, tile, (), fmt, dtype, target)


def _entry(
    suffix: str, tile: Tile, when: tuple[Formula, ...], fmt: Format, dtype: str, target: Target
) -> Instance:
    layout, (weights, lift) = fragment(fmt), decoder(fmt, dtype, target)
    most = target.shared_max
    return Instance(
        suffix,
        ("qgemv_sm90.cuh",),
        _text(tile, layout, weights, lift),
        _arguments(layout),
        tile.threads,
        (tile.grid(layout, most), 1, 1),
        (*tile.when(layout, most), *when),
        shared=tile.shared(layout, most),
        pdl=True,
        gate="hmma",
        preamble=(
            functor_of(weights),
            two_rows(weights),
            *([_shifted(weights)] if tile.shift else ()),
        ),
    )


def _shifted(weights: Weights) -> str:
    """The same that leaves integers their excess and their zero points, `shift` in all."""
    zero = " + zero(sides, g, j, half)" if weights.code_zero else ""
    lines = (
        *placed(weights),
        "template <int Step>",
        "static WOOTZ_FN void decode(const uint32_t* words, const uint8_t* sides, int lane,",
        "                            uint32_t (&a)[4]) {",
        "    placed<Step>(words, a);",
        "}",
        "static WOOTZ_FN float shift(const uint8_t* sides, int g, int j, int half) {",
        f"    return {weights.excess}.0f{zero};",
        "}",
    )
    return struct(f"{weights.name}_shifted", f"{weights.name}_rows", lines)


def _arguments(layout: Fragment) -> tuple[Arg, ...]:
    arrays = [Arg(name, "ptr", "in") for name in ("x", "w.units", *(f"w.{t}" for t in layout.tensors))]
    return (*arrays, Arg("y", "ptr", "out"), *(Arg(axis, "u32", "shape") for axis in ("m", "n", "k")))


def _text(tile: Tile, layout: Fragment, weights: Weights, lift: bool) -> str:
    """The entry point."""
    scaling = "Weights" if weights.fold_only and not linear(weights) else "Sums"
    numbers = ", ".join(map(str, (tile.tokens, tile.warps, tile.slots, tile.units)))
    name = f"{weights.name}_{'shifted' if tile.shift else 'rows'}"
    stored = f"gemv::Levels::{levels(weights, lift)}"
    flags = ", ".join(str(flag).lower() for flag in (linear(weights), lift, tile.table, tile.shift))
    fields = "".join(f", const void* __restrict__ w_{name}" for name in layout.tensors)
    tensors = [f"{weights.name}::tensor_level<{i}>(w_{name})" for i, name in enumerate(layout.tensors)]
    return f"""
using $SYMBOL_tile = gemv::Tile<{name}, {numbers}, gemv::Scaling::{scaling}, {stored}, {flags}>;
static_assert($SYMBOL_tile::x_at == {tile.fixed(layout)}, "");
extern "C" __global__ void __launch_bounds__({tile.threads}, {tile.blocks})
    $SYMBOL(const uint16_t* x, const uint8_t* __restrict__ w_units{fields}, uint16_t* y,
            uint32_t m, uint32_t n, uint32_t k)
{{
    extern __shared__ __align__(128) uint8_t memory[];
    const float levels[{max(1, len(tensors))}] = {{{", ".join(tensors) or "1.0f"}}};
    gemv::run<$SYMBOL_tile>({{x, w_units, levels, y, m, n, k}}, memory);
}}
"""
