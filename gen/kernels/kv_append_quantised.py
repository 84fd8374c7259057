"""kv_append_quantised: kv_append_paged into quantised caches, rows [pages * hk * page, d] of pages, heads and
tokens in this order, as attention_quantised reads them. Each row is quantised as wootz.quantize does it, bit
for bit.

Tokens without a place, negative positions and lengths: as for kv_append_paged. NaN, and float32 numbers that
are subnormal: as for quantize. Formats have no scale of the whole tensor or of several rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import require
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Scalar, Variant
from . import _quantise, attention_quantised
from ._attention import ROWS
from ._kv import LENGTHS, LIMITS, NEW, PAGED, POSITIONS, TABLE, Pages, Token
from ._pieces import Line, Output, sizes
from .quantize import piece


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    reason = attention_quantised.accepts(fmt, dtype, target, options)
    return reason or _quantise.refused(require(fmt, "kv_append_quantised"))


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "kv_append_quantised")
    threads, size, chunk = threads_of(target.simd, 128), sizes(fmt), fmt.layout.chunk_elements

    def build(b: Builder) -> None:
        sources = [b.buffer(name, dtype) for name in ("k", "v")]
        positions, table = b.buffer("positions", "i32"), b.buffer("block_table", "i32")
        caches = [
            Output(b, fmt, {f.name: b.buffer(f"{name}.{f.name}", f.dtype, "out") for f in fmt.layout.fields})
            for name in ("k_cache", "v_cache")
        ]
        lengths = b.buffer("lengths", "i32", "out")
        batches, s, hk, d, rows, blocks = (b.scalar(name) for name in ("b", "s", "hk", "d", "rows", "blocks"))
        page = b.scalar("page", "u32", "scalar")
        pages = Pages(b, table, rows // (hk * page), hk, page, blocks)
        parts = b.ceildiv(caches[0].padded(d), size.piece)
        item = b.block() * threads + b.thread()
        token = Token(b, item // parts, s, hk)
        with b.when(token.batch < batches):
            start = item % parts * size.piece
            to, there = token.place(positions, lengths, blocks * page, pages.place, start.eq(0))
            with b.when(there):
                for source, cache in zip(sources, caches):
                    row = b.at(source, token.row.cast("u64") * d.cast("u64"))
                    piece(b, fmt, target, Line(b, fmt, row, d, size.wide), cache, size, to, start, None)

    parts: Formula = ["ceildiv", ["mul", ["ceildiv", "d", chunk], chunk], size.piece]
    items: Formula = ["mul", ["mul", ["mul", "b", "s"], "hk"], parts]
    when: tuple[Formula, ...] = (
        ["gt", "page", 0], ["lt", items, ROWS], ["lt", "rows", ROWS], ["lt", ["mul", "b", "blocks"], ROWS],
        ["le", ["mul", "blocks", "page"], 2**30], ["lt", ["mul", "hk", "page"], ROWS],
    )  # fmt: skip
    yield Variant("", threads, (["ceildiv", items, threads], 1, 1), build, when, options)


FAMILY = Family(
    (
        Operand("k", "array", NEW),
        Operand("v", "array", NEW),
        POSITIONS,
        TABLE,
        Operand("k_cache", "quantised", ("rows", "d"), updated=True),
        Operand("v_cache", "quantised", ("rows", "d"), updated=True),
    ),
    LENGTHS,
    variants,
    {**LIMITS, "blocks": PAGED["blocks"]},
    scalars=(Scalar("page", "u32", 16),),
    accepts=accepts,
)
