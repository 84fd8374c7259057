"""kv_append_paged: rows of new tokens, k and v [b, s, hk, d], into pages [pages, hk, page, d]; token j of
batch entry b lies in page block_table[b, j / page]. lengths[b] is what each entry then holds: min(positions +
s, blocks * page).

Tokens behind the table, and those whose page is none of the cache's, are left out. A negative position leaves
a batch entry out: nothing is written for it, and its length is 0. Which of two tokens with one place stays
there is not settled.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._attention import ROWS
from ._kv import LENGTHS, LIMITS, NEW, PAGED, POSITIONS, TABLE, TABLES, Pages, Place, append

CACHE = ("pages", "hk", "page", "d")


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def arguments(b: Builder, hk: Val) -> tuple[Val, Place]:
        table = b.buffer("block_table", "i32")
        pages, page, blocks = (b.scalar(name) for name in ("pages", "page", "blocks"))
        return blocks * page, Pages(b, table, pages, hk, page, blocks).place

    rows = ["lt", ["mul", ["mul", "pages", "hk"], "page"], ROWS]
    return append(dtype, target, options, arguments, (rows, *TABLES))


FAMILY = Family(
    (
        Operand("k", "array", NEW),
        Operand("v", "array", NEW),
        POSITIONS,
        TABLE,
        Operand("k_cache", "array", CACHE, updated=True),
        Operand("v_cache", "array", CACHE, updated=True),
    ),
    LENGTHS,
    variants,
    {**LIMITS, **PAGED},
)
