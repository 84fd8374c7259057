"""attention_quantised: attention_paged whose caches are quantised: rows [pages * kv_heads * page, d] of
pages, heads and tokens in this order, decoded to float32. What is left of the rows behind whole pages is not
read.

Scalars, sinks, NaN and queries without keys: as for attention. Keys in pages that the cache does not have are
not seen. Formats have no scale of the whole tensor or of several rows: rows are quantised one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import Packed, Steps, require, steps
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Scalar, Variant
from ._attention import (
    LIMITS,
    QUERIES,
    ROWS,
    SCALARS,
    SINKS,
    Found,
    Problem,
    Share,
    Tile,
    shares,
)
from ._kv import LENGTHS, PAGED, TABLE, Pages
from ._parts import Room, attend, output, over_shares

MOST_CHUNK = 64
"""Numbers of a head that a lane can hold."""
TILE: Formula = ["max", 1, ["mul", "kv_heads", "page"]]
"""Rows of a page."""


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    if fmt is None:
        return "it takes quantised caches: name a format"
    if dtype not in ("f16", "bf16", "f32"):
        return f"it takes f16, bf16, f32; got {dtype}"
    blocks = [scale.block for scale in fmt.scales] or [fmt.block]
    if not all(block.along_k or not fmt.scales for block in blocks):
        return "rows of a cache are quantised one by one; it takes formats whose scales lie along a row"
    if steps(fmt, 32).chunk > MOST_CHUNK:
        return f"its units fill loads every {steps(fmt, 32).chunk} numbers; it takes up to {MOST_CHUNK}"
    return None


@dataclass(frozen=True)
class Coded:
    """Keys and values of one head in quantised pages."""

    b: Builder
    walk: Steps
    fields: dict[str, Packed]
    pages: Pages
    tile: Tile
    length: Val

    def places(self, base: Val) -> Callable[[Val], Found]:
        """A step lies in one page."""
        first, there = self.pages.place(self.tile.batch, self.tile.kv, base)
        return lambda j: (first + (j - base), there)

    def read(self, name: str, row: Val, first: Val, into: Ref, at: Val) -> None:
        """A chunk; what its codes past d stand for meets zeros of the query, and is not written."""
        b, w, walk = self.b, self.fields[name], self.walk
        chunk, words = first // walk.chunk, b.local("words", "u32", walk.chunk_words)
        w.load_chunk(row, chunk, words, 0)
        with b.loop(0, walk.chunk // walk.step, unroll=True) as step:
            view = w.view(words, step * walk.step_words, walk.step_words)
            for start in range(0, walk.step, walk.vector):
                k = first + step * walk.step + start
                scale, zero = w.scale(row, k, view, start), w.zero(row, k, view, start)
                for i, value in enumerate(w.decode(view, start, walk.vector)):
                    b.store(into, at + (step * walk.step + (start + i)), w.apply(value, scale, zero))


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "attention_quantised")
    walk = steps(fmt, 32)

    def build(b: Builder, share: Share, in_parts: bool) -> None:
        q = b.buffer("q", dtype)
        fields = {name: Packed(b, fmt, target, walk, name) for name in ("k", "v")}
        table, lengths, sinks = (
            b.buffer("block_table", "i32"),
            b.buffer("lengths", "i32"),
            b.buffer("sinks", "f32"),
        )
        y, space = output(b, dtype, in_parts)
        batches, h, s, d, rows, blocks = (b.scalar(name) for name in ("b", "h", "s", "d", "rows", "blocks"))
        heads, page = (b.scalar(name, "u32", "scalar") for name in ("kv_heads", "page"))
        for each in fields.values():
            each.declare_pitches(d)
        pages = Pages(b, table, rows // (heads * page), heads, page, blocks)

        def keys(tile: Tile) -> Coded:
            return Coded(b, walk, fields, pages, tile, pages.tokens(lengths, tile.batch))

        attend(b, Problem.of(b, q, sinks, y, h, heads, s, d), share, blocks * page, space, batches, keys)

    heads: Formula = ["max", 1, "kv_heads"]
    when: tuple[Formula, ...] = (
        ["gt", "kv_heads", 0], ["gt", "page", 0], ["lt", "rows", ROWS], ["lt", ["mul", "b", "blocks"], ROWS],
        ["le", ["mul", "blocks", "page"], 2**30], ["lt", TILE, ROWS],
    )  # fmt: skip
    room = Room((("blocks", "shape"), ("page", "scalar")))
    every = shares(target, walk.chunk)
    yield from over_shares(every, target, heads, room, when, options, dtype, build, "page")


FAMILY = Family(
    (
        Operand("q", "array", QUERIES),
        Operand("k", "quantised", ("rows", "d")),
        Operand("v", "quantised", ("rows", "d")),
        TABLE,
        LENGTHS,
        SINKS,
    ),
    Operand("y", "array", QUERIES),
    variants,
    {**LIMITS, "blocks": PAGED["blocks"]},
    scalars=(*SCALARS, Scalar("kv_heads", "u32", 1), Scalar("page", "u32", 16)),
    accepts=accepts,
)
