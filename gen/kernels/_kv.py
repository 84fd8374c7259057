"""Caches of keys and values: where a token's row lies, and the kernels that append rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES, Ref
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Formula, Operand, Variant
from ._attention import ROWS, Found

NEW = ("b", "s", "hk", "d")
LENGTHS = Operand("lengths", "array", ("b",), dtype="i32")
POSITIONS = Operand("positions", "array", ("b",), dtype="i32")
TABLE = Operand("block_table", "array", ("b", "blocks"), dtype="i32")
TABLES: tuple[Formula, ...] = (
    ["lt", ["mul", "b", "blocks"], ROWS],
    ["le", ["mul", "blocks", "page"], 2**30],
)
"""When places in a block table, and tokens of a batch entry, fit u32 arithmetic."""
LIMITS = {
    "b": (0, 2**31 - 1),
    "s": (1, 2**30),
    "hk": (1, 2**16),
    "d": (1, 2**16),
}
PAGED = {"page": (1, 2**30), "blocks": (0, 2**30)}


@dataclass(frozen=True)
class Pages:
    """A cache [pages, heads, page, ...] and its block table [b, blocks]. A token behind the table, or whose
    page is none of the cache's, has no place."""

    b: Builder
    table: Ref
    pages: Val
    heads: Val
    page: Val
    blocks: Val

    def tokens(self, lengths: Ref, batch: Val) -> Val:
        """How many tokens a batch entry has, kept within its table."""
        return self.b.minimum(
            self.b.maximum(self.b.load(lengths, batch), 0).cast("u32"), self.blocks * self.page
        )

    def place(self, batch: Val, head: Val, token: Val) -> Found:
        """There is a table: the token count of some batch entry is not 0, or `blocks` is not."""
        b = self.b
        block = token // self.page
        number = b.load(self.table, batch * self.blocks + b.minimum(block, self.blocks - 1)).cast("u32")
        there = (block < self.blocks) & (number < self.pages)
        number = b.select(there, number, b.const(0, "u32"))
        return (number * self.heads + head) * self.page + token % self.page, there


Place = Callable[[Val, Val, Val], Found]
Arguments = Callable[[Builder, Val], "tuple[Val, Place]"]
"""(builder, heads): declares what is a kernel's own; the number of tokens that a batch entry has room for,
and place(batch entry, head, token): the row of the caches."""


@dataclass(frozen=True)
class Token:
    """A new token's row of one head, of k and v [b, s, hk, d]."""

    b: Builder
    row: Val
    s: Val
    hk: Val

    @property
    def batch(self) -> Val:
        return self.row // self.hk // self.s

    def place(self, positions: Ref, lengths: Ref, room: Val, place: Place, first: Val) -> Found:
        """Where it goes. first: whether this thread is the row's first one; that of an entry's first row
        writes what the entry holds."""
        b, position = self.b, self.b.load(positions, self.batch)
        start = b.maximum(position, 0).cast("u32")
        with b.when(self.row.eq(self.batch * self.s * self.hk) & first):
            held = b.select(position < 0, b.const(0, "u32"), b.minimum(start + self.s, room))
            b.store(lengths, self.batch, held.cast("i32"))
        token = start + self.row // self.hk % self.s
        row, there = b.var("place", 0, "u32"), b.var("there", 0, "u32")
        with b.when((position >= 0) & (token < room)):
            to, found = place(self.batch, self.row % self.hk, token)
            row.set(to)
            there.set(b.select(found, b.const(1, "u32"), b.const(0, "u32")))
        return row.get(), there.get().ne(0)


def append(
    dtype: str, target: Target, options: dict[str, str], arguments: Arguments, when: Sequence[Formula]
) -> Iterator[Variant]:
    """Variants that copy k and v [b, s, hk, d] to the caches; a thread moves one vector of each."""
    threads, whole = threads_of(target.simd, 256), 16 // DTYPES[dtype]
    for suffix, count in (("", whole), ("any", 1)):
        items: Formula = ["mul", ["mul", ["mul", "b", "s"], "hk"], ["div", "d", count]]
        aligned: tuple[Formula, ...] = (["eq", ["mod", "d", count], 0],) if count > 1 else ()

        def build(b: Builder, count: int = count) -> None:
            sources = [b.buffer(name, dtype) for name in ("k", "v")]
            caches = [b.buffer(f"{name}_cache", dtype, "out") for name in ("k", "v")]
            positions, lengths = b.buffer("positions", "i32"), b.buffer("lengths", "i32", "out")
            batches, s, hk, d = (b.scalar(name) for name in ("b", "s", "hk", "d"))
            room, place = arguments(b, hk)
            parts = d // count
            item = b.block() * threads + b.thread()
            token, first = Token(b, item // parts, s, hk), item % parts * count
            with b.when(token.batch < batches):
                to, there = token.place(positions, lengths, room, place, first.eq(0))
                with b.when(there):
                    for source, cache in zip(sources, caches):
                        line = b.at(source, token.row.cast("u64") * d.cast("u64"))
                        copy(b, line, b.at(cache, to.cast("u64") * d.cast("u64")), first, count)

        grid = (["ceildiv", items, threads], 1, 1)
        yield Variant(suffix, threads, grid, build, (*aligned, ["lt", items, ROWS], *when), options)


def copy(b: Builder, source: Ref, to: Ref, first: Val, count: int) -> None:
    """One number, or an aligned vector of 16 bytes, as it is."""
    if count == 1:
        b.store(to, first, b.load(source, first))
        return
    vector = b.load_words(source, first, 4)
    b.store_words(to, first, [vector.word(i) for i in range(4)])
