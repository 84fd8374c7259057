"""A block's matrix product: operands staged in group memory, multiplied by tiles that keep the sums."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES, MatrixShape, Ref
from ..manifest.target import Target

STAGE = 64
"""Depth of a stage that a block wishes for, in elements."""


@dataclass(frozen=True)
class Blocking:
    """How a block divides its part of the output. groups: SIMD groups (along rows, along columns); tiles:
    those of one group; depth: elements of a stage, a multiple of the shape's; dtype: what is staged."""

    shape: MatrixShape
    groups: tuple[int, int]
    tiles: tuple[int, int]
    depth: int
    dtype: str

    @property
    def rows(self) -> int:
        return self.groups[0] * self.tiles[0] * self.shape.rows

    @property
    def columns(self) -> int:
        return self.groups[1] * self.tiles[1] * self.shape.columns

    @property
    def pad(self) -> int:
        """Elements between staged rows that keep lanes on different banks; a lone thread has none."""
        return 16 // DTYPES[self.dtype] if self.shape.across else 0

    @property
    def left_pitch(self) -> int:
        return self.depth + self.pad

    @property
    def right_pitch(self) -> int:
        return (self.depth if self.shape.across else self.columns) + self.pad

    @property
    def right_size(self) -> int:
        return (self.columns if self.shape.across else self.depth) * self.right_pitch

    @property
    def out_rows(self) -> int:
        """Rows of the output that are handed over at a time."""
        return self.groups[0] * self.shape.rows

    @property
    def shared_bytes(self) -> int:
        staged = self.rows * self.left_pitch + self.right_size
        return staged * DTYPES[self.dtype] + 4 * self.out_rows * self.columns

    def place(self, column: Val, depth: Val) -> Val:
        """Where (depth, column) of the right operand is staged."""
        pitch = self.right_pitch
        return column * pitch + depth if self.shape.across else depth * pitch + column


def blocking(shape: MatrixShape, target: Target, depth: int, dtype: str, rows: int) -> Blocking:
    """The largest blocking of at most `rows` rows that fits group memory."""
    wide = target.simd > 1
    depth = -(-depth // shape.depth) * shape.depth
    for columns in (64, 32, 16):
        across = 2 if rows >= 32 else 4
        groups = (4 // across, across) if wide else (1, 1)
        tiles = (
            max(1, rows // (groups[0] * shape.rows)),
            max(1, columns // (groups[1] * shape.columns)),
        )
        found = Blocking(shape, groups, tiles, depth, dtype)
        if found.shared_bytes <= target.shared_bytes:
            break
    return found


class Product:
    """The state of one block's product. Every method is called by all threads of the block."""

    def __init__(self, b: Builder, tile: Blocking, rows: Val) -> None:
        """`rows`: how many of the block's rows there are; a lone thread takes no more."""
        self.b, self.tile = b, tile
        self.left = b.shared("left", tile.dtype, tile.rows * tile.left_pitch)
        self.right = b.shared("right", tile.dtype, tile.right_size)
        self.sums = b.tiles("sums", "sum", "f32", tile.tiles[0] * tile.tiles[1], tile.shape)
        group = b.thread() // b.simd
        self.group = (group // tile.groups[1], group % tile.groups[1])
        self.unroll = b.simd > 1
        self.down: int | Val = tile.tiles[0]
        if not self.unroll:
            self.down = b.minimum(b.ceildiv(rows, tile.shape.rows), tile.tiles[0])
        with b.loop(0, tile.tiles[0] * tile.tiles[1], unroll=self.unroll) as i:
            b.tile_fill(self.sums, i, 0.0)

    def clear_end(self, depth: int) -> None:
        """Zeros where tiles reach past what is staged."""
        b, tile, end = self.b, self.tile, self.tile.depth - depth
        if not end:
            return
        with b.loop(b.thread(), tile.rows * end, b.function.threads) as i:
            b.store(self.left, i // end * tile.left_pitch + (depth + i % end), 0)
        with b.loop(b.thread(), tile.columns * end, b.function.threads) as i:
            b.store(self.right, tile.place(i // end, depth + i % end), 0)

    @property
    def rows(self) -> int | Val:
        """Rows that have to be staged."""
        return self.down * (self.tile.groups[0] * self.tile.shape.rows)

    def multiply(self) -> None:
        """sums += left * right, over what is staged."""
        b, tile, shape = self.b, self.tile, self.tile.shape
        lefts = b.tiles("lefts", "left", tile.dtype, tile.tiles[0], shape)
        rights = b.tiles("rights", "right", tile.dtype, 1, shape)
        row = self.group[0] * (tile.tiles[0] * shape.rows)
        column = self.group[1] * (tile.tiles[1] * shape.columns)
        with b.loop(0, tile.depth, shape.depth) as k:
            with b.loop(0, self.down, unroll=self.unroll) as i:
                at = (row + i * shape.rows) * tile.left_pitch + k
                b.tile_load(lefts, i, self.left, at, tile.left_pitch)
            with b.loop(0, tile.tiles[1], unroll=self.unroll) as j:
                at = tile.place(column + j * shape.columns, k)
                b.tile_load(rights, 0, self.right, at, tile.right_pitch, transposed=shape.across)
                with b.loop(0, self.down, unroll=self.unroll) as i:
                    b.tile_multiply(self.sums, i * tile.tiles[1] + j, lefts, i, rights, 0)

    def store(self, y: Ref, row0: Val, column0: Val, m: Val, n: Val, dtype: str) -> None:
        """y[row0 + r, column0 + c] = sums, for what lies within m x n; some rows of tiles at a time."""
        b, tile, shape = self.b, self.tile, self.tile.shape
        out = b.shared("out", "f32", tile.out_rows * tile.columns)
        column = self.group[1] * (tile.tiles[1] * shape.columns)
        with b.loop(0, self.down, unroll=self.unroll) as i:
            with b.loop(0, tile.tiles[1], unroll=self.unroll) as j:
                at = self.group[0] * shape.rows * tile.columns + column + j * shape.columns
                b.tile_store(out, at, tile.columns, self.sums, i * tile.tiles[1] + j)
            b.barrier()
            with b.loop(b.thread(), tile.out_rows * tile.columns, b.function.threads) as e:
                r, c = e // tile.columns, column0 + e % tile.columns
                part = r // shape.rows * tile.tiles[0] + i
                row = row0 + part * shape.rows + r % shape.rows
                with b.when((row < m) & (c < n)):
                    line = b.at(y, row.cast("u64") * n.cast("u64"))
                    b.store(line, c, b.load(out, e).cast(dtype))
            b.barrier()
