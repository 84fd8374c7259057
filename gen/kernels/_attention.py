"""Attention by an online softmax: what the kernels of that kind share.

Queries of all heads that have one head of keys in common are the rows of a tile: a SIMD group holds a few of
them, in registers, and walks the keys that any of them sees. Its lanes are split into teams: a team has one
key at a time, each lane `count` of its numbers. Powers are of two, the scale and log2(e) are in the queries.
Teams find their own maxima and sums, and put them together at the end. On the CPU a team is one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import gcd, inf
from typing import Protocol

from ..collective import Tuple, add, lane_reduce
from ..dsl import Builder, Val
from ..family import Formula, Operand, Scalar, Variant
from ..ir import Ref
from ..target import Target
from ._rows import larger, load, store

MOST = 256
"""Largest d."""
LOG2_E = 1.4426950408889634
FAR = 2**31 - 1
"""A window that leaves nothing out."""
ROWS = 2**31
"""Rows of d numbers that an array has fewer of."""
LIMITS = {
    **dict.fromkeys(("s", "t", "blocks"), (0, 2**30)),
    **dict.fromkeys(("h", "hk"), (1, 2**16)),
    "b": (0, 2**31 - 1),
    "d": (1, MOST),
}
QUERIES = ("b", "h", "s", "d")
SINKS = Operand("sinks", "array", ("h",), dtype="f32", optional=True)
SCALARS = (Scalar("scale", "f32", 0), Scalar("causal", "u32", 0, ("no", "yes")), Scalar("window", "u32", 0))
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

    @property
    def threads(self) -> int:
        return 1 if self.lanes == 1 else self.groups * 32


def shares(target: Target, count: int) -> list[Share]:
    """For rows of whole vectors, from those for short heads on."""
    if target.simd == 1:
        return [Share("", 1, count, 4, 4, 1)]
    rows, keys = (max(1, min(4, n // count)) for n in (64, 32))
    sizes = [lanes for lanes in (4, 8, 16, 32) if MOST // 2 <= lanes * count < 2 * MOST]
    return [Share(f"d{n * count}", n, count, rows, keys, 4) for n in sizes]


def with_any(shares: Sequence[Share]) -> list[Share]:
    """And one for rows that are not."""
    return [*shares, replace(shares[-1], suffix="any", whole=False)]


def over_shares(
    shares: Sequence[Share],
    heads: Formula,
    when: Sequence[Formula],
    options: dict[str, str],
    build: Callable[[Builder, Share], None],
) -> Iterator[Variant]:
    """A variant for each way to share the work out. heads: of keys."""
    queries: Formula = ["mul", ["div", "h", heads], "s"]
    always = (["eq", ["mod", "h", heads], 0], ["lt", ["mul", "b", ["mul", "h", "s"]], ROWS], *when)
    for share in shares:
        threads = share.threads
        tiles: Formula = ["ceildiv", queries, share.rows * share.groups]
        grid = (["mul", ["mul", "b", heads], tiles], 1, 1)
        fits: list[Formula] = [["le", "d", share.width * share.lanes]] if share.lanes > 1 else []
        whole: list[Formula] = [["eq", ["mod", "d", share.vector], 0]] if share.whole else []
        yield Variant(share.suffix, threads, grid, partial(_swap, build, share), (*always, *whole, *fits), options)


def _swap(build: Callable[[Builder, Share], None], share: Share, b: Builder) -> None:
    build(b, share)


@dataclass(frozen=True)
class Problem:
    """The arguments that all such kernels have. kv_heads: heads of keys."""

    q: Ref
    sinks: Ref
    y: Ref
    h: Val
    kv_heads: Val
    s: Val
    d: Val
    scale: Val
    causal: Val
    window: Val
    has_sinks: Val

    @classmethod
    def of(cls, b: Builder, q: Ref, sinks: Ref, y: Ref, h: Val, kv_heads: Val, s: Val, d: Val) -> Problem:
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
    def of_block(cls, b: Builder, p: Problem, share: Share) -> Tile:
        rows = p.h // p.kv_heads * p.s
        per_block = share.rows * share.groups
        tiles = b.ceildiv(rows, per_block)
        pair, tile = b.block() // tiles, tiles - 1 - b.block() % tiles  # those with the most keys come first
        group = b.thread() // b.simd
        first = tile * per_block + group * share.rows
        return cls(b, p, share, pair // p.kv_heads, pair % p.kv_heads, rows, first)

    def row(self, r: Val | int) -> Val:
        """Row r, kept inside the matrix: rows past the end repeat the last and are not stored."""
        return self.b.minimum(self.first + r, self.rows - 1)

    @property
    def _start(self) -> Val:
        """The first of all rows among the queries."""
        return (self.batch * self.p.h + self.kv * (self.p.h // self.p.kv_heads)) * self.p.s

    def line(self, ref: Ref, r: Val) -> Ref:
        """Row r of q or y."""
        return self.b.at(ref, (self._start + self.row(r)).cast("u64") * self.p.d.cast("u64"))

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


@dataclass
class Walk:
    """A team's way through the keys. Local arrays: query and sums [rows][width]; tops, totals (the largest
    score so far, the sum of powers) and, of what is seen, froms and ends [rows]."""

    tile: Tile
    keys: Keys

    def __post_init__(self) -> None:
        b, share = self.tile.b, self.tile.share
        self.b, self.p, self.share = b, self.tile.p, share
        self.team, self.place = b.thread() % b.simd // share.lanes, b.thread() % share.lanes
        self.teams = b.simd // share.lanes
        self.query, self.sums = (b.local(n, "f32", share.rows * share.width) for n in ("query", "sums"))
        self.tops, self.totals = (b.local(n, "f32", share.rows) for n in ("tops", "totals"))
        self.froms, self.ends = (b.local(n, "u32", share.rows) for n in ("froms", "ends"))

    # ---- loops
    def each_row(self, body: Callable[[Val], None]) -> None:
        """Over the tile's rows: all where registers hold them, else those there are."""
        static = self.share.lanes > 1
        live = self.b.minimum(self.tile.rows - self.tile.first, self.share.rows)
        with self.b.loop(0, self.share.rows if static else live, unroll=static) as r:
            body(r)

    def each_part(self, body: Callable[[Val, Val], None]) -> None:
        """body(first, slot): over the parts of a row that this lane has."""
        if self.share.lanes > 1:
            body(self.place * self.share.count, self.b.const(0, "u32"))
            return
        with self.b.loop(0, self.p.d, self.share.count) as first:
            body(first, first)

    # ---- the walk
    def run(self) -> None:
        b, share = self.b, self.share
        seen = [self.tile.seen(r, self.keys.length) for r in range(share.rows)]
        for r, (start, end) in enumerate(seen):
            b.store(self.froms, r, start)
            b.store(self.ends, r, end)
        step = self.teams * share.keys
        first = reduce(b.minimum, [start for start, _ in seen])
        end = reduce(b.maximum, [end for _, end in seen])
        self.each_row(self._open)
        with b.loop(first - first % step, end, step) as base:
            self._step(base, first, end)
        self.each_row(self._join)

    def _open(self, r: Val) -> None:
        """A query, times the scale; nothing found so far."""
        b, p, share = self.b, self.p, self.share
        scale = b.select(p.scale.eq(0.0), b.const(1.0, "f32") / b.op("sqrt", p.d.cast("f32")), p.scale)
        b.store(self.tops, r, -inf)
        b.store(self.totals, r, 0.0)
        line = self.tile.line(p.q, r)

        def part(first: Val, slot: Val) -> None:
            at = r * share.width + slot
            self._clear(self.query, at, share.count)
            self._clear(self.sums, at, share.count)
            read(b, share, line, first, p.d, self.query, at)
            self._change(self.query, at, lambda v: v * (scale * LOG2_E))

        self.each_part(part)

    def _clear(self, ref: Ref, at: Val, count: int) -> None:
        with self.b.loop(0, count, unroll=True) as i:
            self.b.store(ref, at + i, 0.0)

    def _change(self, ref: Ref, at: Val, function: Callable[[Val], Val]) -> None:
        with self.b.loop(0, self.share.count, unroll=True) as i:
            self.b.store(ref, at + i, function(self.b.load(ref, at + i)))

    def _step(self, base: Val, first: Val, end: Val) -> None:
        """Adds `keys` keys of every team."""
        b, share = self.b, self.share
        key, value = (b.local(n, "f32", share.keys * share.width) for n in ("key", "value"))
        scores = b.local("scores", "f32", share.rows * share.keys)
        rows, there = b.local("rows", "u32", share.keys), b.local("there", "bool", share.keys)
        find = self.keys.places(base)
        with b.loop(0, share.keys, unroll=True) as u:
            j = base + (u * self.teams + self.team)
            row, found = find(j)
            b.store(rows, u, row)
            b.store(there, u, found & (j >= first) & (j < end))
        for name, into in (("k", key), ("v", value)):
            with b.loop(0, share.keys, unroll=True) as u:
                self._read(name, b.load(rows, u), b.load(there, u), into, u * share.width)

        def row_of(r: Val) -> None:
            with b.loop(0, share.keys, unroll=True) as u:
                j = base + (u * self.teams + self.team)
                seen = b.load(there, u) & (j >= b.load(self.froms, r)) & (j < b.load(self.ends, r))
                (score,) = lane_reduce(b, [self._product(r, key, u)], add, share.lanes)
                b.store(scores, r * share.keys + u, b.select(seen, score, b.const(-inf, "f32")))
            self._add(r, scores, value)

        self.each_row(row_of)

    def _read(self, name: str, row: Val, there: Val, into: Ref, at: Val) -> None:
        """This lane's numbers of one key; zeros where there is none."""

        def part(first: Val, slot: Val) -> None:
            self._clear(into, at + slot, self.share.count)
            with self.b.when(there & (first < self.p.d)):
                self.keys.read(name, row, first, into, at + slot)

        self.each_part(part)

    def _product(self, r: Val, key: Ref, u: Val) -> Val:
        """This lane's part of a score; a lone thread adds up columns, for vector instructions."""
        b, share = self.b, self.share
        columns = 1 if share.lanes > 1 else gcd(share.count, 8)
        parts = b.local("parts", "f32", columns)
        self._clear(parts, b.const(0, "u32"), columns)

        def part(first: Val, slot: Val) -> None:
            with b.loop(0, share.count, columns, unroll=True) as i:
                for c in range(columns):
                    q = b.load(self.query, r * share.width + slot + i + c)
                    k = b.load(key, u * share.width + slot + i + c)
                    b.store(parts, c, b.mad(q, k, b.load(parts, c)))

        self.each_part(part)
        found = [b.load(parts, c) for c in range(columns)]
        while len(found) > 1:
            found = [x + y for x, y in zip(found[::2], found[1::2])]
        return found[0]

    def _add(self, r: Val, scores: Ref, value: Ref) -> None:
        """The powers of a row's scores, and the values that they weigh."""
        b, share = self.b, self.share
        old = b.load(self.tops, r)
        top = reduce(highest, [b.load(scores, r * share.keys + u) for u in range(share.keys)], old)
        fade = power(b, old, top)
        b.store(self.tops, r, top)
        b.store(self.totals, r, b.load(self.totals, r) * fade)
        self.each_part(lambda _, slot: self._change(self.sums, r * share.width + slot, lambda v: v * fade))
        with b.loop(0, share.keys, unroll=True) as u:
            weight = power(b, b.load(scores, r * share.keys + u), top)
            b.store(self.totals, r, b.load(self.totals, r) + weight)
            with b.when(weight.ne(0.0)):  # what weighs nothing adds nothing, whatever its numbers are
                self.each_part(lambda _, slot: self._weigh(weight, value, u, r, slot))

    def _weigh(self, weight: Val, value: Ref, u: Val, r: Val, slot: Val) -> None:
        b, width = self.b, self.share.width
        with b.loop(0, self.share.count, unroll=True) as i:
            number, at = b.load(value, u * width + slot + i), r * width + slot + i
            b.store(self.sums, at, b.mad(weight, number, b.load(self.sums, at)))

    def _join(self, r: Val) -> None:
        """What all teams have found, in each."""
        if self.teams == 1:
            return
        b, at = self.b, r * self.share.width
        mine = [b.load(self.sums, at + i) for i in range(self.share.count)]
        found = (b.load(self.tops, r), b.load(self.totals, r), *mine)
        top, total, *sums = lane_reduce(b, found, together, least=self.share.lanes)
        b.store(self.tops, r, top)
        b.store(self.totals, r, total)
        for i, value in enumerate(sums):
            b.store(self.sums, at + i, value)

    def write(self) -> None:
        """Writes the rows; a sink takes its share of the weight."""
        self.each_row(self._write)

    def _write(self, r: Val) -> None:
        b, p, share = self.b, self.p, self.share
        sink = b.var("sink", -inf)
        with b.when(p.has_sinks.ne(0)):
            sink.set(b.load(p.sinks, self.tile.head(r)) * LOG2_E)
        found, its = b.load(self.tops, r), sink.get()
        top = highest(found, its)
        mine = power(b, found, top)
        total = b.load(self.totals, r) * mine + power(b, its, top)
        factor = b.select(total.eq(0.0), b.const(0.0, "f32"), mine / total)
        line, real = self.tile.line(p.y, r), self.tile.first + r < self.tile.rows

        def part(first: Val, slot: Val) -> None:
            with b.loop(0, share.count, share.vector, unroll=True) as i:
                with b.when(self.team.eq(0) & real & (first + i < p.d)):
                    at = r * share.width + slot + i
                    sums = [b.load(self.sums, at + j) * factor for j in range(share.vector)]
                    store(b, line, first + i, sums)

        self.each_part(part)


def read(b: Builder, share: Share, line: Ref, first: Val, end: Val, into: Ref, at: Val) -> None:
    """into[at + i] = line[first + i], for the share's count, up to `end`; what is past it stays."""
    with b.loop(0, share.count, share.vector, unroll=True) as i, b.when(first + i < end):
        for j, value in enumerate(load(b, line, first + i, share.vector)):
            b.store(into, at + i + j, value)


def highest(x: Val, y: Val) -> Val:
    """The larger number; of NaN and a number either one."""
    return larger((x,), (y,))[0]


def power(b: Builder, score: Val, top: Val) -> Val:
    """2^(score - top), 0 of -inf."""
    return b.op("exp2", score - b.select(top.eq(-inf), b.const(0.0, "f32"), top))


def together(a: Tuple, b: Tuple) -> Tuple:
    """(the largest score, the sum of powers, weighed sums ...) of two parts."""
    top = highest(a[0], b[0])
    left, right = (power(top.builder, each, top) for each in (a[0], b[0]))
    return (top, *(x * left + y * right for x, y in zip(a[1:], b[1:])))
