"""The warp-level GEMM of cutlass/gemm_mma.cuh: its tiles, the one to take at a size, an instance's text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ..manifest.target import Target
from ..variants.family import Arg, Formula, Instance
from ..variants.tiles import Cost, Lattice, Point

HEADERS = ("gemm_mma.cuh", "gemm_values.cuh")

ELEMENTS = {"f16": "MmaHalf", "bf16": "MmaBfloat", "i8": "MmaByte", "e4m3": "MmaE4m3"}
"""dtype of a and b -> the struct that knows its instruction."""

VALUES = {"f16": "HalfValue", "bf16": "BfloatValue", "f32": "FloatValue", "i32": "IntValue"}
"""dtype of bias, c or y -> the struct that knows how it lies in memory."""

BYTES = {"f16": 2, "bf16": 2, "i8": 1, "e4m3": 1}

GATES = {"f16": "hmma", "bf16": "hmma", "i8": "imma", "e4m3": "qmma_or_hmma"}
"""dtype of a and b -> row of the table of gate.py."""

_C_TYPES = {"u32": "uint32_t", "f32": "float"}


MOST_COLUMNS = 2**30
"""Columns of a row: its bytes are counted in 32 bits."""


@dataclass(frozen=True)
class Tile:
    """Warps of a block and instructions (16 x 8 results) of a warp, along m and n; depth: bytes of a step
    along k; stages: steps under way in shared memory."""

    warps: tuple[int, int]
    tiles: tuple[int, int]
    depth: int
    stages: int

    @property
    def rows(self) -> int:
        """Rows of a, and of y, of a block."""
        return 16 * self.warps[0] * self.tiles[0]

    @property
    def columns(self) -> int:
        """Rows of b, columns of y, of a block."""
        return 8 * self.warps[1] * self.tiles[1]

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block."""
        return self.stages * (self.rows + self.columns) * self.depth

    @property
    def blocks(self) -> Formula:
        """Tiles that m x n results make."""
        return ["mul", ["ceildiv", "m", self.rows], ["ceildiv", "n", self.columns]]


FEW_ROWS = Tile((1, 4), (1, 4), 128, 4)
SMALL = Tile((2, 2), (2, 8), 64, 4)
LARGE = Tile((2, 4), (4, 8), 64, 4)
MEDIUM = Tile((2, 4), (4, 4), 128, 3)
"""Half the sums of LARGE: registers are left for totals of scaled sums, or to convert 8-bit floats in where a
chip multiplies them as 16-bit ones."""

LOW = Tile((2, 4), (2, 4), 128, 3)
"""The same, for loads that need registers too."""


def lattice() -> Lattice:
    """Every tile that the template can be asked for."""
    axes = {
        "warps m": (2, 1, 4),
        "warps n": (4, 2, 1),
        "tiles m": (4, 2, 1),
        "tiles n": (8, 4, 2),
        "depth": (64, 128),
        "stages": (4, 3, 2),
    }
    return Lattice(axes, _cost)


def _cost(point: Point) -> Cost | str:
    tile = Tile(
        (point["warps m"], point["warps n"]),
        (point["tiles m"], point["tiles n"]),
        point["depth"],
        point["stages"],
    )
    pieces = tile.depth // 16
    if tile.rows * pieces % tile.threads or tile.columns * pieces % tile.threads:
        return f"{tile.threads} threads cannot share {tile.rows} + {tile.columns} rows of {pieces} pieces"
    if 64 * tile.warps[0] * (tile.columns + 8) > tile.shared:
        return "its shared memory is too small for the sums on their way out"
    sums, fragments = 4 * tile.tiles[0] * tile.tiles[1], 4 * tile.tiles[0] + 2 * tile.tiles[1]
    return Cost(tile.threads, sums + 2 * fragments + 40, tile.shared)


def fits(tile: Tile, target: Target) -> bool:
    """Whether a block of `target` can have the tile's shared memory."""
    return tile.shared <= target.shared_max


def choice(target: Target, dtype: str) -> tuple[tuple[str, Tile, tuple[Formula, ...]], ...]:
    """(suffix, tile, conditions) of the tiles for aligned rows, in the order in which they are tried: few
    rows; large where every multiprocessor gets one; small. Just the last one for targets with better
    instructions, which take all but odd numbers of columns."""
    large = MEDIUM if dtype == "e4m3" else LARGE
    options: tuple[tuple[str, Tile, tuple[Formula, ...]], ...] = (
        ("rows16", FEW_ROWS, (["le", "m", FEW_ROWS.rows],)),
        ("large", large, (["ge", large.blocks, "sms"],)),
        ("small", SMALL, ()),
    )
    better = target.has("wgmma") or target.has("tcgen05")
    return tuple(o for o in options if fits(o[1], target) and not (better and o[2]))


def aligned(k: str, dtype: str) -> Formula:
    """Whether rows of k elements begin at multiples of 16 bytes."""
    return ["eq", ["mod", k, 16 // BYTES[dtype]], 0]


@dataclass(frozen=True)
class Parameter:
    """A parameter of the entry. type: a dtype of an array, "bytes" for one read as bytes, or u32, f32."""

    name: str
    type: str
    role: str

    @property
    def arg(self) -> Arg:
        """For the index."""
        return Arg(
            self.name,
            self.type if self.type in _C_TYPES and self.role not in ("in", "out") else "ptr",
            self.role,
        )

    @property
    def text(self) -> str:
        """Its declaration."""
        if self.role not in ("in", "out"):
            return f"{_C_TYPES[self.type]} {self.name}"
        stored = "uint8_t" if self.type == "bytes" else f"{VALUES[self.type]}::Stored"
        return f"{'const ' if self.role == 'in' else ''}{stored}* {self.name}"


def entry(
    tile: Tile,
    dtype: str,
    parameters: tuple[Parameter, ...],
    epilogue: str,
    scaling: str = "GemmUnscaled()",
    narrow: bool = False,
) -> str:
    """The instance's text. epilogue, scaling: C++ expressions over the parameters."""
    numbers: tuple[Union[int, str], ...] = (*tile.warps, *tile.tiles, tile.depth, tile.stages)
    arguments = ", ".join(map(str, numbers))
    declared = ", ".join(p.text for p in parameters)
    return (
        f'extern "C" __global__ void __launch_bounds__({tile.threads}) $SYMBOL({declared})\n{{\n'
        f"    using Tile = GemmTile<{ELEMENTS[dtype]}, {arguments}, {'true' if narrow else 'false'}>;\n"
        f"    WOOTZ_SHARED(shared, Tile::shared_bytes);\n"
        f"    gemm_mma<Tile>(a, b, m, n, k * {BYTES[dtype]}, reinterpret_cast<uint8_t*>(shared), {scaling},\n"
        f"                   {epilogue});\n}}\n"
    )


def instance(
    suffix: str,
    tile: Tile,
    dtype: str,
    text: str,
    parameters: tuple[Parameter, ...],
    when: tuple[Formula, ...],
    options: dict[str, str],
) -> Instance:
    """The entry whose text is `text`."""
    return Instance(
        suffix, HEADERS, text, tuple(p.arg for p in parameters), tile.threads, (tile.blocks, 1, 1),
        (*when, ["lt", tile.blocks, 2**31]), options, shared=tile.shared, gate=f"{GATES[dtype]}+ldsm",
    )  # fmt: skip
