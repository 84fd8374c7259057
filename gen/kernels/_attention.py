"""Attention: what the kernels of that kind share, but for the softmax itself (`_online`).

Queries of all heads that have one head of keys in common are the rows of a tile: a SIMD group holds a few of
them, in registers, and walks the keys that any of them sees. Its lanes are split into teams: a team has one
key at a time, each lane `count` of its numbers. On the CPU a team is one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Protocol

from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..manifest.target import Target
from ..variants.family import Operand, Scalar
from ._rows import load

MOST = 256
"""Largest d."""
LOG2_E = 1.4426950408889634
FAR = 2**31 - 1
"""A window that leaves nothing out."""
ROWS = 2**31
"""Rows of d numbers that an array has fewer of."""
MANY = (0, 2**30)
"""How many queries or keys there may be, so that their sums fit u32 arithmetic."""
LIMITS = {"b": (0, 2**31 - 1), "h": (1, 2**16), "s": MANY, "d": (1, MOST)}
HEADS = {"hk": (1, 2**16)}
QUERIES = ("b", "h", "s", "d")
SINKS = Operand("sinks", "array", ("h",), dtype="f32", optional=True)
SCALARS = (Scalar("scale", "f32", 0), Scalar("causal", "u32", 0), Scalar("window", "u32", 0))
Found = tuple[Val, Val]
"""The row of a key among the rows of d numbers, and whether there is one."""


class Keys(Protocol):
    """Keys and values as a kernel has them."""

    @property
    def length(self) -> Val:
        """Keys of the batch entry."""
        ...

    def places(self, base: Val) -> Callable[[Val], Found]:
        """For the keys of a step that begins at `base`: number of a key -> where it is."""
        ...

    def read(self, name: str, row: Val, first: Val, into: Ref, at: Val) -> None:
        """into[at + i] = the share's count of numbers, from `first` on, of a row of "k" or "v"."""
        ...


@dataclass(frozen=True)
class Share:
    """lanes: a team; count: numbers of a head that a lane has at a time; rows: queries of a SIMD group;
    keys: those that a team takes at a time; groups: SIMD groups of a block; whole: rows of d numbers are
    whole vectors."""

    suffix: str
    lanes: int
    count: int
    rows: int
    keys: int
    groups: int
    whole: bool = True

    @property
    def vector(self) -> int:
        """Numbers of one access."""
        return gcd(self.count, 8) if self.whole else 1

    @property
    def width(self) -> int:
        """Numbers of a head that a lane holds."""
        return self.count if self.lanes > 1 else -(-MOST // self.count) * self.count

    def step(self, simd: int) -> int:
        """Keys that all teams take at a time."""
        return simd // self.lanes * self.keys


def shares(target: Target, count: int) -> list[Share]:
    """For rows of whole vectors, from those for short heads on."""
    if target.simd == 1:
        return [Share("", 1, count, 4, 4, 1)]
    rows, keys = (max(1, min(4, n // count)) for n in (64, 32))
    sizes = [lanes for lanes in (2, 4, 8, 16, 32) if MOST // 2 <= lanes * count < 2 * MOST]
    return [Share(f"d{n * count}", n, count, rows, keys, 4) for n in sizes]


def with_any(shares: Sequence[Share]) -> list[Share]:
    """And one for rows that are not."""
    return [*shares, replace(shares[-1], suffix="any", whole=False)]


@dataclass(frozen=True)
class Problem:
    """The arguments that all such kernels have. kv_heads: heads of keys."""

    q: Ref
    sinks: Ref
    y: Ref | None
    h: Val
    kv_heads: Val
    s: Val
    d: Val
    scale: Val
    causal: Val
    window: Val
    has_sinks: Val

    @classmethod
    def of(
        cls, b: Builder, q: Ref, sinks: Ref, y: Ref | None, h: Val, kv_heads: Val, s: Val, d: Val
    ) -> Problem:
        """With the scalars, which it declares."""
        scale = b.scalar("scale", "f32", "scalar")
        causal, window = (b.scalar(name, "u32", "scalar") for name in ("causal", "window"))
        return cls(q, sinks, y, h, kv_heads, s, d, scale, causal, window, b.scalar("has_sinks"))


@dataclass
class Tile:
    """The queries of one SIMD group from row `first` on, of the `rows` that the head `kv` of batch entry `b`
    has."""

    b: Builder
    p: Problem
    share: Share
    batch: Val
    kv: Val
    rows: Val
    first: Val

    @classmethod
    def of_block(cls, b: Builder, p: Problem, share: Share, block: Val, groups: int) -> Tile:
        """block: its number among those of `groups` SIMD groups that have tiles of their own."""
        rows = p.h // p.kv_heads * p.s
        tiles = b.ceildiv(rows, share.rows * groups)
        pair, tile = block // tiles, tiles - 1 - block % tiles  # those with the most keys come first
        first = tile * (share.rows * groups)
        if groups > 1:
            first = first + b.thread() // b.simd * share.rows
        return cls(b, p, share, pair // p.kv_heads, pair % p.kv_heads, rows, first)

    def row(self, r: Val | int) -> Val:
        """Row r, kept inside the matrix: rows past the end repeat the last and are not stored."""
        return self.b.minimum(self.first + r, self.rows - 1)

    def query(self, r: Val) -> Val:
        """The number of row r among all queries."""
        return (self.batch * self.p.h + self.kv * (self.p.h // self.p.kv_heads)) * self.p.s + self.row(r)

    def line(self, ref: Ref, r: Val) -> Ref:
        """Row r of q or y."""
        return self.b.at(ref, self.query(r).cast("u64") * self.p.d.cast("u64"))

    def head(self, r: Val) -> Val:
        return self.kv * (self.p.h // self.p.kv_heads) + self.row(r) // self.p.s

    def seen(self, r: int, length: Val) -> tuple[Val, Val]:
        """The keys from the first on and before the second one that row r sees."""
        b, p, i = self.b, self.p, self.row(r) % self.p.s
        window = b.select(p.window.eq(0), b.const(FAR, "u32"), b.minimum(p.window, FAR))
        end = b.select(p.causal.eq(0), length, _less(i + length + 1, p.s))
        return _less(i + length + 1, p.s + window), b.minimum(end, _less(i + length + window, p.s))


def _less(a: Val, b: Val) -> Val:
    """a - b, or 0."""
    return a.builder.select(a > b, a - b, a.builder.const(0, "u32"))


def read(b: Builder, share: Share, line: Ref, first: Val, end: Val, into: Ref, at: Val) -> None:
    """into[at + i] = line[first + i], for the share's count, up to `end`; what is past it stays."""
    with b.loop(0, share.count, share.vector, unroll=True) as i, b.when(first + i < end):
        for j, value in enumerate(load(b, line, first + i, share.vector)):
            b.store(into, at + i + j, value)


@dataclass(frozen=True)
class Dense:
    """Keys and values that are plain numbers, in rows of d."""

    b: Builder
    share: Share
    fields: dict[str, Ref]
    d: Val

    def read(self, name: str, row: Val, first: Val, into: Ref, at: Val) -> None:
        line = self.b.at(self.fields[name], row.cast("u64") * self.d.cast("u64"))
        read(self.b, self.share, line, first, self.d, into, at)
