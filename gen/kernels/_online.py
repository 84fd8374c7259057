"""The online softmax of attention: one SIMD group's way through the keys.

Teams of lanes find maxima and sums of their own and put them together at the end. Powers are of two: the
scale and log2(e) are in the queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import gcd, inf

from ..ir.collective import across, add, lane_reduce
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ._attention import LOG2_E, Keys, Tile, read
from ._rows import larger, store

EARLY = 64
"""Numbers of keys that a lane has at a time, fewer than which leave registers for values read beside them."""


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
    def run(self, part: Val | None = None, parts: Val | None = None) -> None:
        """All keys, or one of equal parts of them."""
        b, share = self.b, self.share
        seen = [self.tile.seen(r, self.keys.length) for r in range(share.rows)]
        for r, (start, end) in enumerate(seen):
            b.store(self.froms, r, start)
            b.store(self.ends, r, end)
        step = share.step(b.simd)
        first = reduce(b.minimum, [start for start, _ in seen])
        end = reduce(b.maximum, [end for _, end in seen])
        self.each_row(self._open)
        start, stop = first - first % step, end
        if part and parts:
            size = (b.maximum(end, start) - start + (step - 1)) // step
            size = (size + (parts - 1)) // parts * step
            start = start + part * size
            stop = b.minimum(end, start + size)
        with b.loop(start, stop, step) as base:
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
        key = b.local("key", "f32", share.keys * share.width)
        early = share.keys * share.count < EARLY
        value = b.local("value", "f32", share.keys * share.width) if early else key
        scores = b.local("scores", "f32", share.rows * share.keys)
        lines, there = b.local("lines", "u32", share.keys), b.local("there", "bool", share.keys)
        find = self.keys.places(base)
        with b.loop(0, share.keys, unroll=True) as u:
            j = base + (u * self.teams + self.team)
            row, found = find(j)
            b.store(lines, u, row)
            b.store(there, u, found & (j >= first) & (j < end))

        def bring(name: str, into: Ref) -> None:
            with b.loop(0, share.keys, unroll=True) as u:
                self._read(name, b.load(lines, u), b.load(there, u), into, u * share.width)

        def score_row(r: Val) -> None:
            with b.loop(0, share.keys, unroll=True) as u:
                j = base + (u * self.teams + self.team)
                seen = b.load(there, u) & (j >= b.load(self.froms, r)) & (j < b.load(self.ends, r))
                (score,) = lane_reduce(b, [self._product(r, key, u)], add, share.lanes)
                b.store(scores, r * share.keys + u, b.select(seen, score, b.const(-inf, "f32")))

        bring("k", key)
        if early:
            bring("v", value)
        self.each_row(score_row)
        if not early:
            bring("v", value)
        self.each_row(lambda r: self._add(r, scores, value))

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
        b, mask = self.b, self.b.simd // 2
        while mask >= self.share.lanes:
            top, total = b.load(self.tops, r), b.load(self.totals, r)
            other = across(b, top, mask)
            both = highest(top, other)
            mine, theirs = power(b, top, both), power(b, other, both)
            b.store(self.tops, r, both)
            b.store(self.totals, r, total * mine + across(b, total, mask) * theirs)
            with b.loop(0, self.share.count, unroll=True) as i:
                at = r * self.share.width + i
                found = b.load(self.sums, at)
                b.store(self.sums, at, found * mine + across(b, found, mask) * theirs)
            mask //= 2

    def write(self) -> None:
        """Writes the rows."""
        self.each_row(self._write)

    def _write(self, r: Val) -> None:
        b, p, share = self.b, self.p, self.share
        assert p.y is not None, "variants in parts leave what they find in the workspace"
        top, total = b.load(self.tops, r), b.load(self.totals, r)
        factor = weight_of(b, top, total, p.sinks, self.tile.head(r), p.has_sinks)
        line, writes = self.tile.line(p.y, r), self.team.eq(0) & (self.tile.first + r < self.tile.rows)

        def part(first: Val, slot: Val) -> None:
            with b.loop(0, share.count, share.vector, unroll=True) as i, b.when(writes & (first + i < p.d)):
                at = r * share.width + slot + i
                store(b, line, first + i, [b.load(self.sums, at + j) * factor for j in range(share.vector)])

        self.each_part(part)


def highest(x: Val, y: Val) -> Val:
    """The larger number; of NaN and a number either one."""
    return larger((x,), (y,))[0]


def power(b: Builder, score: Val, top: Val) -> Val:
    """2^(score - top), 0 of -inf."""
    return b.op("exp2", score - b.select(top.eq(-inf), b.const(0.0, "f32"), top))


def weight_of(b: Builder, found: Val, total: Val, sinks: Ref, head: Val, has_sinks: Val) -> Val:
    """What weighed sums are to be multiplied by: 1 / the sum of powers; a sink takes its share."""
    sink = b.var("sink", -inf)
    with b.when(has_sinks.ne(0)):
        sink.set(b.load(sinks, head) * LOG2_E)
    top = highest(found, sink.get())
    mine = power(b, found, top)
    whole = total * mine + power(b, sink.get(), top)
    return b.select(whole.eq(0.0), b.const(0.0, "f32"), mine / whole)
