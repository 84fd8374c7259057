"""qmm: y[m, n] = sum over k of x[m, k] * w[n, k], w quantised, for any number of rows of activations.

A block stages a tile of activations and one of decoded weights in group memory, in the type that the target's
matrix tiles take: weights, with scale and zero point, are rounded once to the activations' type where that is
16 bits, and are infinite past its range. Sums are f32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..formats.axes import Format
from ..ir import matrix
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import COLUMNS, Packed, Steps, require, steps
from ..ir.vectors import copy_ragged, store_vector, threads_of, vector_words
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant
from ._matrix import STAGE, Blocking, Product, blocking

ROWS = 64, 128
"""Rows of activations of a block: where SIMD groups share it, and of a lone thread."""


@dataclass(frozen=True)
class Stage:
    """What is staged at once along k: some chunks, or one of `pieces` parts of a chunk; `depth` elements."""

    walk: Steps
    chunks: int
    pieces: int

    @property
    def depth(self) -> int:
        return self.chunks * self.walk.chunk // self.pieces

    def vectors(self, b: Builder, piece: int) -> Iterator[tuple[Val, int]]:
        """(step, element) of each vector of a piece of a chunk, inside a loop over steps where there are
        several."""
        walk, size = self.walk, self.walk.chunk // self.pieces
        first, last = piece * size // walk.step, -(-(piece + 1) * size // walk.step)
        start = piece * size % walk.step
        with b.loop(first, last, unroll=True) as step:
            for at in range(start, start + min(size, walk.step), walk.vector):
                yield step, at


def stage_of(walk: Steps) -> Stage:
    """As deep as is wished for, where the format's chunks allow it."""
    if walk.chunk <= STAGE:
        return Stage(walk, STAGE // walk.chunk, 1)
    sizes = [walk.step * j for j in range(1, walk.chunk // walk.step + 1) if walk.chunk // walk.step % j == 0]
    parts = [s for s in range(walk.vector, walk.step, walk.vector) if walk.step % s == 0]
    size = max(s for s in (walk.vector, *parts, *sizes) if s <= STAGE)
    return Stage(walk, 1, walk.chunk // size)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "qmm")
    shape, stage = matrix.shape_of(target), stage_of(steps(fmt))
    taken = shape and matrix.operand(shape, dtype)
    if not shape or not taken:
        raise ValueError(f"qmm: {matrix.refusal(target, dtype)}")
    tile = blocking(shape, target, stage.depth, taken, ROWS[target.simd == 1])
    down: Formula = ["ceildiv", "m", tile.rows]
    grid = (["ceildiv", "n", tile.columns], down, 1)
    threads = threads_of(target.simd, target.simd * math.prod(tile.groups))
    when = (COLUMNS, ["lt", down, 2**16])
    yield Variant("", threads, grid, kernel(fmt, dtype, target, tile, stage), when, options)


def kernel(
    fmt: Format, dtype: str, target: Target, tile: Blocking, stage: Stage
) -> Callable[[Builder], None]:
    def build(b: Builder) -> None:
        w = Packed(b, fmt, target, stage.walk)
        x = b.buffer("x", dtype)
        y = b.buffer("y", dtype, "out")
        m, n, k = b.scalar("m"), b.scalar("n"), b.scalar("k")
        w.declare_pitches(k)
        row0, column0 = b.block(1) * tile.rows, b.block() * tile.columns
        product = Product(b, tile, m - row0)
        product.clear_end(stage.depth)
        with b.loop(0, w.chunks(), stage.chunks) as first:
            for piece in range(stage.pieces):
                stage_weights(b, w, stage, product, n, column0, first, piece)
                stage_activations(b, x, product, row0, m, k, first * stage.walk.chunk, stage.depth, piece)
                b.barrier()
                product.multiply()
                b.barrier()
        product.store(y, row0, column0, m, n, dtype)

    return build


def stage_weights(
    b: Builder, w: Packed, stage: Stage, product: Product, n: Val, column0: Val, first: Val, piece: int
) -> None:
    """Decodes a chunk, or its piece, an item; rows and chunks past the end repeat the last, and meet zeros or
    are not stored."""
    tile, walk, right = product.tile, stage.walk, product.right
    words = b.local("words", "u32", walk.chunk_words)
    whole = tile.shape.across and vector_words(tile.dtype, walk.vector)
    apart = 1 if tile.shape.across else tile.right_pitch
    with b.loop(b.thread(), tile.columns * stage.chunks, b.function.threads) as item:
        c, part = item // stage.chunks, item % stage.chunks
        row, chunk = b.minimum(column0 + c, n - 1), b.minimum(first + part, w.chunks() - 1)
        w.load_chunk(row, chunk, words, 0)
        for step, at in stage.vectors(b, piece):
            view = w.view(words, step * walk.step_words, walk.step_words)
            inside = step * walk.step + at
            k = chunk * walk.chunk + inside
            scale, zero = w.scale(row, k, view, at), w.zero(row, k, view, at)
            values = [w.apply(v, scale, zero) for v in w.decode(view, at, walk.vector)]
            place = tile.place(c, part * walk.chunk + (inside - piece * stage.depth))
            if whole:
                store_vector(b, right, place, tile.dtype, values)
                continue
            for i, value in enumerate(values):
                b.store(right, place + i * apart, value.cast(tile.dtype))


def stage_activations(
    b: Builder, x: Ref, product: Product, row0: Val, m: Val, k: Val, first: Val, depth: int, piece: int
) -> None:
    """Rows past the end repeat the last; columns past the end are zero."""
    tile, count = product.tile, math.gcd(depth, 8)
    spare = None if tile.dtype == x.dtype else b.local("spare", "f32", count)
    with b.loop(b.thread(), product.rows * (depth // count), b.function.threads) as item:
        r, at = item // (depth // count), item % (depth // count) * count
        line = b.at(x, b.minimum(row0 + r, m - 1).cast("u64") * k.cast("u64"))
        start = first + piece * depth + at
        copy_ragged(b, line, start, k, product.left, r * tile.left_pitch + at, count, spare)


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    return matrix.refusal(target, dtype)


FAMILY = Family(
    (Operand("x", "array", ("m", "k")), Operand("w", "quantised", ("n", "k"))),
    Operand("y", "array", ("m", "n")),
    variants,
    accepts=accepts,
)
