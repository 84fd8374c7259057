"""Entries of gemm_fp8_block on warpgroup MMA (cutlass/gemm_fp8_sm90.cuh): blocks are persistent, one a
multiprocessor, and take tiles of 256 or 128 rows of a by 128 rows of b in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..lower.wgmma import TYPES, wgmma_shared
from ..variants.family import Arg, Formula, Instance, TensorMap

BLOCK = 128
COLUMNS = 128

SUITS: tuple[Formula, ...] = (
    ["and", ["ge", "k", 1], ["eq", ["mod", "k", 16], 0]],
    ["eq", ["mod", "n", 8], 0],
    ["lt", ["max", ["max", "m", "n"], "k"], 2**31 - 512],
)
"""Shapes that tensor maps can read: some k, rows of whole 16 bytes, and coordinates of 31 bits."""


@dataclass(frozen=True)
class Tile:
    """As cutlass/gemm_fp8_sm90.cuh has it. slots: of the ring; together: rows of tiles whose columns are
    neighbours in time."""

    rows: int
    slots: int
    together: int

    @property
    def suffix(self) -> str:
        return f"m{self.rows}_g{self.together}"

    @property
    def struct(self) -> str:
        """The template's type."""
        return f"warpgroup::BlockTile<{self.rows}, {self.slots}, {self.together}>"

    @property
    def shared(self) -> int:
        """Bytes of group memory, as the template counts them."""
        slot = (self.rows + COLUMNS) * BLOCK + self.rows * 4
        return self.slots * slot + 2 * 64 * 128 + 16 * self.slots + 1024


THREADS = 384
USUAL = Tile(256, 4, 8)
OTHERS = (Tile(256, 4, 4), Tile(256, 4, 16), Tile(128, 6, 8), Tile(128, 6, 16))


def instances(out: str) -> Iterator[Instance]:
    """The usual tile, where there are enough of them for all multiprocessors; y of 16 bits."""
    if out in TYPES:
        tiles: Formula = ["mul", ["ceildiv", "m", USUAL.rows], ["ceildiv", "n", COLUMNS]]
        yield instance(out, USUAL, (["ge", tiles, "sms"],))


def further(out: str) -> Iterator[Instance]:
    """For tuning: the others, for any number of rows."""
    yield from (instance(out, tile) for tile in OTHERS if out in TYPES)


def instance(out: str, tile: Tile, when: tuple[Formula, ...] = ()) -> Instance:
    return Instance(
        tile.suffix,
        ("gemm_fp8_sm90.cuh",),
        _text(out, tile),
        ARGUMENTS,
        THREADS,
        ("sms", 1, 1),
        (*SUITS, *when),
        {"out": out},
        shared=tile.shared,
        maps=maps(tile),
        pdl=True,
        gate="qgmma+utmaldg",
        preamble=(wgmma_shared(COLUMNS),),
    )


ARGUMENTS = (
    Arg("rows", "map", "map"),
    Arg("columns", "map", "map"),
    Arg("scales", "map", "map"),
    Arg("scale_b", "ptr", "in"),
    Arg("y", "ptr", "out"),
    *(Arg(axis, "u32", "shape") for axis in ("m", "n", "k")),
)


def maps(tile: Tile) -> tuple[TensorMap, ...]:
    """Blocks of 128 along k: a tile's rows of a and of b, and the scales of the former."""
    whole: Formula = ["mul", ["ceildiv", "m", 4], 4]
    blocks: Formula = ["ceildiv", "k", BLOCK]
    return (
        TensorMap("rows", "a", "e4m3", ("k", "m"), ("k",), (BLOCK, tile.rows)),
        TensorMap("columns", "b", "e4m3", ("k", "n"), ("k",), (BLOCK, COLUMNS)),
        TensorMap(
            "scales", "scale_a", "f32", (whole, blocks), (["mul", whole, 4],), (tile.rows, 1), swizzle=0
        ),
    )


def _text(out: str, tile: Tile) -> str:
    """The entry point."""
    return f"""
static_assert({tile.struct}::bytes == {tile.shared}, "");
extern "C" __global__ void __launch_bounds__({THREADS}, 1)
    $SYMBOL(const __grid_constant__ warpgroup::TensorMap rows,
            const __grid_constant__ warpgroup::TensorMap columns,
            const __grid_constant__ warpgroup::TensorMap scales, const float* scale_b,
            uint16_t* __restrict__ y, uint32_t m, uint32_t n, uint32_t k)
{{
    warpgroup::gemm_blocks<{tile.struct}, fragment::{TYPES[out]}>(
        {{&rows, &columns, &scales, scale_b, y, m, n, k}});
}}
"""
