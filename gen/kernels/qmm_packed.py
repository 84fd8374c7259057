"""qmm_packed: y[m, n] = sum over k of x[m, k] * w[n, k], w in the packed layout, for any number of rows of x.

Made from device templates: `GENERATIONS` says which one a target's features ask for. Sums are f32. Where a
format's decoder allows it, weights enter the product as they are and scales multiply the sum of each run;
else weights, with scale and zero point, are rounded once to the type of x (past its range, to infinity).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from ..formats.axes import Format
from ..formats.fragment import Fragment, fragment
from ..ir.packed import require
from ..lower.functor import KINDS, Weights, functor
from ..manifest.target import Target
from ..variants.family import Arg, Family, Instance, Operand
from . import _qgemv_sm90, _qmm_sm90

ACTIVATIONS = {"f16": "HalfActivation", "bf16": "BfloatActivation"}
"""Dtype -> the template's struct."""

WORDS = (8, 20)
"""Words of codes in a lane from which tiles leave registers to one block less, those of many sums to one
alone; and to two less."""

ALIGNED = ["eq", ["mod", "k", 8], 0]
"""Rows of x begin at multiples of 16 bytes."""


@dataclass(frozen=True)
class Tile:
    """One variant of the warp template (cutlass/qmm_sm80.cuh). A block has rows x depth x tokens warps, each
    with `row_tiles` of 16 rows of w and `token_tiles` of 8 rows of x; a unit along k goes to one depth. most:
    rows of x that it is for, 0 = any; chunk: columns of a stage; narrow: rows of x may lie anywhere; direct:
    scales are not staged; element: bytes of x's; paired: every other tile of rows is of a second matrix;
    alone: a block needs all registers."""

    name: str
    most: int
    rows: int
    depth: int
    tokens: int
    row_tiles: int
    token_tiles: int
    chunk: int
    stages: int = 2
    fold: bool = False
    narrow: bool = False
    direct: bool = False
    element: int = 2
    paired: bool = False
    alone: bool = False

    @property
    def threads(self) -> int:
        return 32 * self.rows * self.depth * self.tokens

    @property
    def block(self) -> tuple[int, int]:
        """Rows of w (of each) and of x that a block takes."""
        return 16 * self.rows * self.row_tiles // (1 + self.paired), 8 * self.tokens * self.token_tiles

    def resident(self, layout: Fragment) -> int:
        """Blocks of a multiprocessor that registers are to be left for: 128 a thread, or more of them."""
        many = self.token_tiles * self.row_tiles > (2 if self.element == 1 else 4)
        less, least = (layout.words >= limit for limit in WORDS)
        if self.alone or (many and (self.element == 1 or self.paired or less)):
            return 1
        return max(1, 512 // self.threads - less - least)

    def shared(self, layout: Fragment) -> int:
        """Bytes of group memory, as the template counts them."""
        rows, tokens = self.block
        chunks = layout.columns // self.chunk
        slots = (self.stages - 2 + chunks) // chunks + 1
        sides = 0 if self.direct else layout.unit_bytes - layout.code_bytes
        staged = self.stages * self.element * tokens * self.depth * self.chunk
        tiles = self.rows * self.row_tiles
        staged += slots * self.depth * tiles * sides
        sums = (self.depth - 1) * 16 * tiles * tokens * 4
        return max(staged, sums, 2 * tokens * (rows + 8))

    def struct(self, weight: str, activation: str, output: str) -> str:
        """The template's type."""
        warps, tiles = (self.rows, self.depth, self.tokens), (self.row_tiles, self.token_tiles)
        sizes = (*warps, *tiles, self.chunk, self.stages)
        flags = (str(flag).lower() for flag in (self.fold, self.narrow, self.direct, self.paired))
        return f"QmmTile<{', '.join([weight, activation, output, *map(str, sizes), *flags])}>"

    def text(
        self, layout: Fragment, struct: str, weight: str, x: str = "uint16_t", more: str = "",
        token_scales: str = "nullptr",
    ) -> str:  # fmt: skip
        """The entry point: it gathers the levels that are one per tensor, and runs its block. x: the type of
        its elements; more: parameters after x."""
        fields = "".join(f", const void* __restrict__ w_{name}" for name in layout.tensors)
        levels = [f"{weight}::tensor_level<{i}>(w_{name})" for i, name in enumerate(layout.tensors)]
        return f"""
using $SYMBOL_tile = {struct};
static_assert($SYMBOL_tile::shared_bytes == {self.shared(layout)}, "");
extern "C" __global__ void __launch_bounds__({self.threads}, {self.resident(layout)})
    $SYMBOL(const {x}* __restrict__ x{more}, const uint8_t* __restrict__ w_units{fields},
            uint16_t* __restrict__ y, uint32_t m, uint32_t n, uint32_t k)
{{
    __shared__ __align__(128) uint8_t memory[{self.shared(layout)}];
    const float levels[{max(1, len(levels))}] = {{{", ".join(levels) or "1.0f"}}};
    const QmmArguments arguments{{x, w_units, levels, {token_scales}, y, m, n, k, nullptr, nullptr, 0}};
    Qmm<$SYMBOL_tile>(arguments, memory, blockIdx.x, blockIdx.y).run();
}}
"""


TILES = (
    Tile("m8", 8, 1, 4, 1, 1, 1, 256),
    Tile("m16", 16, 2, 4, 1, 1, 2, 128),
    Tile("m64", 64, 4, 1, 2, 1, 4, 128),
    Tile("wide", 0, 4, 1, 2, 1, 8, 64),
    Tile("odd", 0, 4, 1, 2, 1, 4, 128, narrow=True),
)
"""The first whose conditions hold is launched."""


def fitted(tile: Tile, layout: Fragment, fold: bool, most: int) -> Tile:
    """The tile as a format takes it, within `most` bytes of group memory."""
    chunk = min(tile.chunk, layout.columns)
    depth = tile.depth * tile.chunk // chunk if tile.depth > 1 else 1
    found = replace(tile, chunk=chunk, depth=depth, fold=fold)
    return found if found.shared(layout) <= most else replace(found, direct=True)


def warp_variants(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """Entries of the template for mma.sync."""
    layout, weights = fragment(fmt), Weights(fmt, KINDS[dtype], target, f"Weight_{dtype}")
    decoder = functor(fmt, dtype, target, weights.name)
    for tile in TILES:
        here = fitted(tile, layout, weights.fold_only, target.shared_bytes)
        rows, tokens = here.block
        when = ([] if here.narrow else [ALIGNED]) + ([["le", "m", here.most]] if here.most else [])
        yield Instance(
            here.name,
            ("qmm_sm80.cuh",),
            here.text(layout, here.struct(weights.name, *[ACTIVATIONS[dtype]] * 2), weights.name),
            _arguments(layout),
            here.threads,
            (["ceildiv", "n", rows], ["ceildiv", "m", tokens], 1),
            (*when, ["lt", ["ceildiv", "m", tokens], 2**16]),
            gate="hmma",
            preamble=(decoder,),
            static_shared=here.shared(layout),
        )


def warpgroup_variants(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """Entries for few rows of x; of the template for wgmma; and of the other for rows of x that TMA cannot
    read; all of the other for formats that do not suit the one for wgmma."""
    yield from _qgemv_sm90.instances(fmt, dtype, target)
    mine = tuple(_qmm_sm90.instances(fmt, dtype, target))
    yield from mine
    yield from (i for i in warp_variants(fmt, dtype, target) if not mine or i.suffix == "odd")


def warpgroup_tiles(fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """Further ones, for tuning: with other rings, and of the template for mma.sync."""
    yield from _qgemv_sm90.further(fmt, dtype, target)
    mine = tuple(_qmm_sm90.further(fmt, dtype, target))
    yield from mine
    yield from (i for i in warp_variants(fmt, dtype, target) if mine and i.suffix != "odd")


def _arguments(layout: Fragment) -> tuple[Arg, ...]:
    arrays = [Arg(name, "ptr", "in") for name in ("x", "w.units", *(f"w.{t}" for t in layout.tensors))]
    return (*arrays, Arg("y", "ptr", "out"), *(Arg(axis, "u32", "shape") for axis in ("m", "n", "k")))


@dataclass(frozen=True)
class Generation:
    """A template, and the features of targets that it is for. tiles: further variants, for tuning."""

    needs: frozenset[str]
    variants: Callable[[Format, str, Target], Iterable[Instance]]
    tiles: Callable[[Format, str, Target], Iterable[Instance]] = lambda fmt, dtype, target: ()


GENERATIONS = (
    Generation(frozenset({"wgmma", "tma"}), warpgroup_variants, warpgroup_tiles),
    Generation(frozenset({"mma", "cp_async"}), warp_variants),
)
"""The first that a target has all features for is taken."""


def generation(target: Target) -> Generation | None:
    return next((g for g in GENERATIONS if g.needs <= target.features), None)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Instance]:
    fmt, found = require(fmt, "qmm_packed"), generation(target)
    if found is None:
        raise ValueError(f"qmm_packed: {accepts(fmt, dtype, target, options)}")
    for instance in found.variants(fmt, dtype, target):
        yield replace(instance, options=options)


def tiles(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Instance]:
    found = generation(target)
    for instance in found.tiles(require(fmt, "qmm_packed"), dtype, target) if found else ():
        yield replace(instance, options=options)


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    if generation(target) is None:
        return (
            f"no template of qmm_packed fits target {target.name}: its features are {sorted(target.features)}"
        )
    if dtype not in ACTIVATIONS:
        return f"qmm_packed takes activations of {' or '.join(ACTIVATIONS)}, not {dtype}"
    return None


FAMILY = Family(
    (Operand("x", "array", ("m", "k")), Operand("w", "packed", ("n", "k"))),
    Operand("y", "array", ("m", "n")),
    variants,
    accepts=accepts,
    tiles=tiles,
)
