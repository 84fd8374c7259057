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
from ..lower.functor import KINDS, Weights, functor
from ..lower.pairs import table_text
from ..manifest.target import Target
from ..variants.family import Arg, Formula, Instance

TOKENS = 8
"""Rows of x that one instruction takes."""

RESERVED = 1024
"""Bytes of group memory that each block takes beside its own."""

WIDE = 6
"""Bits of a code from which memory alone is the limit: more warps wait for it, with deeper rings."""

LARGE = 1 << 27
"""Weights of a matrix that takes long beside what comes before and after it."""

LIFTED = 64
"""Lost powers of two from which x is multiplied by one, for products to be normal numbers."""

ROOM = -100
"""Decoded numbers are below 2^ROOM then: sums of products with x, however large, stay in f32's range."""


TABLE = 256 * 128
"""Bytes of the table of pairs, once for each lane of a warp."""


@dataclass(frozen=True)
class Tile:
    """One variant. tokens: rows of x at most, 1 or 8; warps: of a block, along k; slots: of a warp's ring;
    units: of w in a slot; blocks: of a multiprocessor, if group memory allows; table: codes are looked up."""

    tokens: int
    warps: int
    slots: int
    units: int
    blocks: int
    table: bool = False

    @property
    def name(self) -> str:
        """Unlike any other's."""
        return f"v{self.tokens}_w{self.warps}_s{self.slots}_u{self.units}_b{self.blocks}{'_t' * self.table}"

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def fixed(self, layout: Fragment) -> int:
        """Bytes of group memory but for x, as the template counts them."""
        waiting, sums = (8, ROWS) if self.tokens == 1 else (4, ROWS * TOKENS)
        rings = self.warps * self.slots * self.units * layout.unit_bytes
        sums *= 4 * waiting * self.warps
        return rings + (self.warps * self.slots + 1) // 2 * 16 + sums + TABLE * self.table

    def fits(self, layout: Fragment, most: int) -> bool:
        """Whether the smallest x fits as well."""
        return self.fixed(layout) + self.tokens * (2 * layout.columns + 16) <= most

    def needed(self, layout: Fragment) -> Formula:
        """Bytes of group memory."""
        pitch: Formula = ["add", ["mul", ["ceildiv", "k", layout.columns], 2 * layout.columns], 16]
        rows: Formula = pitch if self.tokens == 1 else ["mul", "m", pitch]
        return ["add", self.fixed(layout), rows]

    def shared(self, layout: Fragment, most: int) -> Formula:
        """The same, and at least so many that `blocks` fit on a multiprocessor and no more: where another one
        does, they are spread unevenly, and some multiprocessors have half as much again to do."""
        return ["max", self.needed(layout), (most + RESERVED) // (self.blocks + 1) - RESERVED + 16]

    def grid(self, layout: Fragment, most: int) -> Formula:
        """Blocks: no more than there are tiles, and than are resident together. most: bytes of group memory
        of a block; a multiprocessor has RESERVED more."""
        blocks: Formula = "sms"
        if self.blocks > 1:
            room = (most + RESERVED) // self.blocks - RESERVED
            fits: Formula = ["le", self.needed(layout), room]
            blocks = ["mul", "sms", ["add", 1, ["mul", self.blocks - 1, fits]]]
        return ["min", ["ceildiv", "n", ROWS], blocks]

    def when(self, layout: Fragment, most: int) -> tuple[Formula, ...]:
        """Rows of x are whole pieces of 16 bytes, and all that one block needs is there."""
        rows: Formula = ["eq", "m", 1] if self.tokens == 1 else ["and", ["ge", "m", 1], ["le", "m", TOKENS]]
        return (rows, ["eq", ["mod", "k", 8], 0], ["le", self.needed(layout), most])


def usual(layout: Fragment, table: bool) -> dict[str, tuple[Tile, tuple[Formula, ...]]]:
    """The tiles by suffix, with further conditions: for one row of x and a large matrix, for one row, and for
    several."""
    many = Tile(TOKENS, 16, 2, 1, 1, table)
    if layout.bits >= WIDE:
        one = Tile(1, 16, 3, 1, 1)
    elif table:
        one = Tile(1, 16, 2, 1, 1, table)
    else:
        one = Tile(1, 8, 2, 1, 2)
    found: dict[str, tuple[Tile, tuple[Formula, ...]]] = {"v1": (one, ()), "v8": (many, ())}
    if layout.bits <= 4 and not table:
        # Larger copies for what takes long; less group memory, so that the next launch begins early, else.
        large: Formula = ["ge", ["mul", "n", "k"], LARGE]
        return {"v1_large": (replace(one, units=2), (large,)), **found}
    return found


def points(layout: Fragment, table: bool) -> Iterator[Tile]:
    """Further tiles, for tuning."""
    if layout.bits >= WIDE:
        yield from (Tile(1, 8, 3, 1, 2), Tile(1, 16, 2, 1, 1), Tile(1, 16, 2, 2, 1))
    elif table:
        yield from (Tile(1, 8, 2, 1, 2, table), Tile(1, 16, 3, 1, 1, table), Tile(1, 8, 2, 1, 2))
    else:
        yield from (Tile(1, 8, 2, 2, 2), Tile(1, 8, 3, 1, 2), Tile(1, 16, 2, 1, 1), Tile(1, 16, 2, 2, 1))
    yield Tile(TOKENS, 8, 2, 1, 2, table)


def looked_up(weights: Weights) -> bool:
    """Whether codes are to be looked up two at a time: in registers that takes more instructions."""
    element, layout = weights.fmt.element, weights.layout
    plain = layout.bits == 4 and layout.plain and weights.code_zero is None
    return element.kind == "codebook" and plain and not weights.fold_only


def decoder(fmt: Format, dtype: str, target: Target) -> tuple[Weights, bool]:
    """The decoder, and whether x has to be lifted for it: numbers lack their power of two where that saves a
    multiplication and does no harm."""
    plain = Weights(fmt, KINDS[dtype], target, f"Weight_{dtype}")
    bare = Weights(fmt, KINDS[dtype], target, f"Bare_{dtype}", bare=True)
    exponent = bare.plan.exponent
    if fmt.zero is not None or plain.fold_only or exponent < LIFTED or exponent == plain.plan.exponent:
        return plain, False
    most = max(abs(v) for v in fmt.element.values() if isfinite(v))
    return (bare, True) if ldexp(most, -exponent) < 2.0**ROOM else (plain, False)


def linear(weights: Weights) -> bool:
    """Whether zero points after scaling can wait for the sums, times the sum of x."""
    made = weights.plan  # of decoders that lack a power of two the zero point would lack it as well
    waits = weights.layout.run >= STEP and made.exact and made.exponent == 0
    return weights.value_zero and bool(weights.fmt.scales) and waits


def instances(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """For one row of x, and for several. None where the rings of a format leave no room for any x."""
    layout, table = fragment(fmt), looked_up(decoder(fmt, dtype, target)[0])
    for suffix, (tile, when) in usual(layout, table).items():
        if tile.fits(layout, target.shared_max):
            yield _entry(suffix, tile, when, fmt, dtype, target)


def further(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """Entries for tuning."""
    layout, table = fragment(fmt), looked_up(decoder(fmt, dtype, target)[0])
    for tile in points(layout, table):
        if tile.fits(layout, target.shared_max):
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
            functor(fmt, dtype, target, weights.name, weights.bare),
            *([_numbers(weights)] if looked_up(weights) else []),
        ),
    )


def _numbers(weights: Weights) -> str:
    """A decoder that has the bits of each code's number."""
    name, exponent = f"{weights.name}_pairs", weights.plan.exponent
    bits = [weights.kind.bits(ldexp(value, -exponent)) for value in weights.fmt.element.values()]
    return (
        table_text(f"{name}_numbers", "uint16_t", [f"0x{v:04x}" for v in bits])
        + f"struct {name} : {weights.name} {{\n"
        + f"    static WOOTZ_FN uint32_t number(uint32_t code) {{ return {name}_numbers[code]; }}\n}};\n"
    )


def _arguments(layout: Fragment) -> tuple[Arg, ...]:
    arrays = [Arg(name, "ptr", "in") for name in ("x", "w.units", *(f"w.{t}" for t in layout.tensors))]
    return (*arrays, Arg("y", "ptr", "out"), *(Arg(axis, "u32", "shape") for axis in ("m", "n", "k")))


def _text(tile: Tile, layout: Fragment, weights: Weights, lift: bool) -> str:
    """The entry point."""
    name = f"{weights.name}_pairs" if tile.table else weights.name
    scaling = "Weights" if weights.fold_only and not linear(weights) else "Sums"
    numbers = ", ".join(map(str, (tile.tokens, tile.warps, tile.slots, tile.units)))
    flags = ", ".join(str(flag).lower() for flag in (linear(weights), lift, tile.table))
    fields = "".join(f", const void* __restrict__ w_{name}" for name in layout.tensors)
    levels = [f"{weights.name}::tensor_level<{i}>(w_{name})" for i, name in enumerate(layout.tensors)]
    return f"""
using $SYMBOL_tile = gemv::Tile<{name}, {numbers}, gemv::Scaling::{scaling}, {flags}>;
static_assert($SYMBOL_tile::x_at == {tile.fixed(layout)}, "");
extern "C" __global__ void __launch_bounds__({tile.threads}, {tile.blocks})
    $SYMBOL(const uint16_t* x, const uint8_t* __restrict__ w_units{fields}, uint16_t* y,
            uint32_t m, uint32_t n, uint32_t k)
{{
    extern __shared__ __align__(128) uint8_t memory[];
    const float levels[{max(1, len(levels))}] = {{{", ".join(levels) or "1.0f"}}};
    gemv::run<$SYMBOL_tile>({{x, w_units, levels, y, m, n, k}}, memory);
}}
"""
