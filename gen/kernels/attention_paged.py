"""attention_paged: attention whose keys and values lie in pages [pages, hk, page, d]: token j of batch entry
b in page block_table[b, j / page], for the first lengths[b] tokens (kept within 0 and blocks * page).

Scalars, sinks, NaN and queries without keys: as for attention. Keys in pages that the cache does not have are
not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._attention import (
    HEADS,
    LIMITS,
    QUERIES,
    ROWS,
    SCALARS,
    SINKS,
    Dense,
    Found,
    Problem,
    Share,
    Tile,
    shares,
    with_any,
)
from ._kv import LENGTHS, PAGED, TABLE, TABLES, Pages
from ._parts import Room, attend, output, over_shares
from .kv_append_paged import CACHE


@dataclass(frozen=True)
class Paged(Dense):
    """Keys and values of one head in pages."""

    pages: Pages
    tile: Tile
    length: Val

    def places(self, base: Val) -> Callable[[Val], Found]:
        """A step that is whole lies in one page."""
        if not self.share.whole:
            return lambda j: self.pages.place(self.tile.batch, self.tile.kv, j)
        first, there = self.pages.place(self.tile.batch, self.tile.kv, base)
        return lambda j: (first + (j - base), there)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def build(b: Builder, share: Share, in_parts: bool) -> None:
        q, k, v = (b.buffer(name, dtype) for name in ("q", "k", "v"))
        table, lengths, sinks = (
            b.buffer("block_table", "i32"),
            b.buffer("lengths", "i32"),
            b.buffer("sinks", "f32"),
        )
        y, space = output(b, dtype, in_parts)
        batches, h, hk, s, d = (b.scalar(name) for name in ("b", "h", "hk", "s", "d"))
        pages = Pages(b, table, b.scalar("pages"), hk, b.scalar("page"), b.scalar("blocks"))

        def keys(tile: Tile) -> Paged:
            return Paged(b, share, {"k": k, "v": v}, d, pages, tile, pages.tokens(lengths, tile.batch))

        p = Problem.of(b, q, sinks, y, h, hk, s, d)
        attend(b, p, share, pages.blocks * pages.page, space, batches, keys)

    rows = ["lt", ["mul", ["mul", "pages", "hk"], "page"], ROWS]
    room, every = Room((("blocks", "shape"), ("page", "shape"))), with_any(shares(target, 8))
    yield from over_shares(every, target, "hk", room, (rows, *TABLES), options, dtype, build, "page")


FAMILY = Family(
    (
        Operand("q", "array", QUERIES),
        Operand("k", "array", CACHE),
        Operand("v", "array", CACHE),
        TABLE,
        LENGTHS,
        SINKS,
    ),
    Operand("y", "array", QUERIES),
    variants,
    {**LIMITS, **HEADS, **PAGED},
    scalars=SCALARS,
)
