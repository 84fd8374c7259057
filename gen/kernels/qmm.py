"""qmm: y[m, n] = sum over k of x[m, k] * w[n, k], w quantised, for any number of rows of activations.

A block stages a tile of activations and one of decoded weights in group memory, in the type that the target's
matrix tiles take: weights, with scale and zero point, are rounded once to the activations' type where that is
16 bits. Sums are f32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from .. import matrix
from ..axes import Format
from ..dsl import Builder, Val
from ..family import Family, Formula, Operand, Variant
from ..packed import COLUMNS, Packed, Steps, require, steps
from ..target import Target
from ..vectors import copy_ragged, store_vector, threads_of, vector_words
from ._matrix import STAGE, Blocking, Product, blocking

ROWS = 64, 128
"""Rows of activations of a block: where SIMD groups share it, and of a lone thread."""


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "qmm")
    shape, walk = matrix.shape_of(target), steps(fmt)
    taken = shape and matrix.operand(shape, dtype)
    if not shape or not taken:
        raise ValueError(f"qmm: {matrix.refusal(target, dtype)}")
    chunks = max(1, STAGE // walk.chunk)
    tile = blocking(shape, target, chunks * walk.chunk, taken, ROWS[target.simd == 1])
    down: Formula = ["ceildiv", "m", tile.rows]
    grid = (["ceildiv", "n", tile.columns], down, 1)
    threads = threads_of(target.simd, target.simd * math.prod(tile.groups))
    when = (COLUMNS, ["lt", down, 2**16])
    yield Variant("", threads, grid, kernel(fmt, dtype, target, tile, walk, chunks), when, options)


def kernel(
    fmt: Format, dtype: str, target: Target, tile: Blocking, walk: Steps, chunks: int
) -> Callable[[Builder], None]:
    """The body; a stage is `chunks` chunks deep."""

    def build(b: Builder) -> None:
        w = Packed(b, fmt, target, walk)
        x = b.buffer("x", dtype)
        y = b.buffer("y", dtype, "out")
        m, n, k = b.scalar("m"), b.scalar("n"), b.scalar("k")
        w.declare_pitches(k)
        row0, column0 = b.block(1) * tile.rows, b.block() * tile.columns
        product, depth = Product(b, tile, m - row0), chunks * walk.chunk
        clear_end(b, product, depth)
        with b.loop(0, w.chunks(), chunks) as first:
            stage_weights(b, w, walk, product, n, column0, first, chunks)
            count, threads = math.gcd(depth, 8), b.function.threads
            spare = None if tile.dtype == dtype else b.local("spare", "f32", count)
            with b.loop(b.thread(), product.rows * (depth // count), threads) as item:
                r, at = item // (depth // count), item % (depth // count) * count
                line = b.at(x, b.minimum(row0 + r, m - 1).cast("u64") * k.cast("u64"))
                into = r * tile.left_pitch + at
                copy_ragged(b, line, first * walk.chunk + at, k, product.left, into, count, spare)
            b.barrier()
            product.multiply()
            b.barrier()
        product.store(y, row0, column0, m, n, dtype)

    return build


def clear_end(b: Builder, product: Product, depth: int) -> None:
    """Zeros where tiles reach past the chunks of a stage."""
    tile, end = product.tile, product.tile.depth - depth
    if not end:
        return
    with b.loop(b.thread(), tile.rows * end, b.function.threads) as i:
        b.store(product.left, i // end * tile.left_pitch + (depth + i % end), 0)
    with b.loop(b.thread(), tile.columns * end, b.function.threads) as i:
        b.store(product.right, tile.place(i // end, depth + i % end), 0)


def stage_weights(
    b: Builder, w: Packed, walk: Steps, product: Product, n: Val, column0: Val, first: Val, chunks: int
) -> None:
    """Decodes a chunk an item; rows and chunks past the end repeat the last, and meet zeros or are not
    stored."""
    tile, right = product.tile, product.right
    words = b.local("words", "u32", walk.chunk_words)
    whole = tile.shape.across and vector_words(tile.dtype, walk.vector)
    with b.loop(b.thread(), tile.columns * chunks, b.function.threads) as item:
        c, part = item // chunks, item % chunks
        row, chunk = b.minimum(column0 + c, n - 1), b.minimum(first + part, w.chunks() - 1)
        w.load_chunk(row, chunk, words, 0)
        with b.loop(0, walk.chunk // walk.step, unroll=True) as step:
            view = w.view(words, step * walk.step_words, walk.step_words)
            for at in range(0, walk.step, walk.vector):
                inside = step * walk.step + at
                scale = w.scale(row, chunk * walk.chunk + inside, view, at)
                zero = w.zero(row, chunk * walk.chunk + inside, view, at)
                values = [w.apply(v, scale, zero) for v in w.decode(view, at, walk.vector)]
                place = tile.place(c, part * walk.chunk + inside)
                if whole:
                    store_vector(b, right, place, tile.dtype, values)
                    continue
                for i, value in enumerate(values):
                    b.store(
                        right,
                        place + i * (1 if tile.shape.across else tile.right_pitch),
                        value.cast(tile.dtype),
                    )


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    return matrix.refusal(target, dtype)


FAMILY = Family(
    (Operand("x", "array", ("m", "k")), Operand("w", "quantised", ("n", "k"))),
    Operand("y", "array", ("m", "n")),
    variants,
    accepts=accepts,
)
