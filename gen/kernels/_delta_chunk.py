"""The gated delta rule by chunks: the d of CHUNK tokens from one triangular system, then y and the state from
them (the WY representation of products of Householder-like factors; arXiv 2406.06484 and 2412.06464).

With G(i) the product of the g of a chunk's tokens up to i, and G(i, j) that of those after j up to i:
    d(i) = beta(i) (v(i) - G(i) S k(i)) - sum over j < i of A(i, j) d(j)
    y(i) = G(i) S q(i) + sum over j <= i of B(i, j) d(j)
    S = G(last) S + sum over j of G(last, j) d(j) k(j)^T
where A(i, j) = beta(i) G(i, j) k(i) . k(j) and B(i, j) = G(i, j) q(i) . k(j).
G(i, j) are products of g, never quotients or differences of logarithms: a g of 0 is no special case.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ._columns import Line
from ._delta import TILE, Head

CHUNK = 16
BATCH = 4
"""Tokens whose sums over lanes are made side by side."""


def chunks(o: Head) -> None:
    b, rows = o.b, o.columns.share.rows
    whole = _Chunks(o)
    with b.loop(0, rows) as r:
        o.read_state(whole.state, r)
    with b.loop(0, o.t, TILE) as start:
        b.barrier()
        o.gates_of_tile(start, (whole.decay, whole.rate))
        with b.loop(0, b.minimum(o.t - start, TILE), CHUNK) as first:
            b.barrier()
            whole.products(start + first, first)
            b.barrier()
            with b.loop(0, rows) as r:
                whole.row(start + first, first, r)
    with b.loop(0, rows) as r:
        o.write_state(whole.state, r)


class _Chunks:
    """A block's chunks. A and B lie column by column; past the sequence g is 1 and beta 0, so that nothing
    changes. start: the chunk's first token; gate: its place among the gates."""

    def __init__(self, o: Head) -> None:
        b, columns = o.b, o.columns
        self.o, self.b, self.columns, self.fixed = o, b, columns, columns.share.lanes > 1
        self.state = columns.numbers("state_numbers", columns.share.rows)
        self.decay, self.rate = (b.shared(name, "f32", TILE) for name in ("decay", "rate"))
        self.lower, self.causal = (b.shared(name, "f32", CHUNK * CHUNK) for name in ("lower", "causal"))
        self.rest = b.shared("rest", "f32", CHUNK)
        self.k, self.q = (columns.line(f"{name}_line", o.arrays[name].dtype) for name in "kq")
        self.other = columns.line("other_line", o.arrays["k"].dtype)

    def _token(self, start: Val, i: Val) -> Val:
        return self.b.minimum(start + i, self.o.t - 1)

    def _key(self, name: str, line: Line, start: Val, i: Val) -> Line:
        return line.fetch(self.o.keys(name, self._token(start, i)))

    def products(self, start: Val, gate: Val) -> None:
        """A, B and what each token's part of the state has left at the end of the chunk."""
        b, columns = self.b, self.columns
        groups = min(columns.share.groups, CHUNK)
        with b.loop(0, CHUNK, groups) as base:
            j = base + columns.group % groups
            self._key("k", self.other, start, j)
            left = b.var("left", 1.0)
            with b.loop(0, CHUNK, BATCH) as first:
                sums = self._sums(start, first, self._by_other)
                for i, (kk, qk) in enumerate(zip(sums[::2], sums[1::2])):
                    at = first + i
                    left.set(b.select(at > j, left.get() * b.load(self.decay, gate + at), 1.0))
                    with b.when(columns.place.eq(0)):
                        a = b.load(self.rate, gate + at) * left.get() * kk
                        b.store(self.lower, j * CHUNK + at, b.select(at > j, a, 0.0))
                        b.store(self.causal, j * CHUNK + at, b.select(at >= j, left.get() * qk, 0.0))
            with b.when(columns.place.eq(0)):
                b.store(self.rest, j, left.get())

    def row(self, start: Val, gate: Val, r: Val) -> None:
        """One row of the state through the chunk."""
        b = self.b
        d, y, whole = b.local("d", "f32", CHUNK), b.local("y_sums", "f32", CHUNK), b.var("whole", 1.0)
        with b.loop(0, CHUNK, unroll=self.fixed) as at:
            b.store(d, at, 0.0)
            b.store(y, at, 0.0)
        with b.loop(0, CHUNK, BATCH) as first:
            sums = self._sums(start, first, lambda line: self._by_state(line, r))
            for i, (sk, sq) in enumerate(zip(sums[::2], sums[1::2])):
                whole.set(whole.get() * b.load(self.decay, gate + (first + i)))
                v = self.o.value(self._token(start, first + i), r).cast("f32")
                put(self.b, d, first, i, b.load(self.rate, gate + (first + i)) * (v - whole.get() * sk))
                put(self.b, y, first, i, whole.get() * sq)
        for j in range(CHUNK):  # the triangular system, a column after the other
            dj = b.load(d, j)
            with b.loop(j + 1, CHUNK, unroll=self.fixed) as at:
                b.store(d, at, b.load(d, at) - b.load(self.lower, at + j * CHUNK) * dj)
            with b.loop(j, CHUNK, unroll=self.fixed) as at:
                b.store(y, at, b.mad(b.load(self.causal, at + j * CHUNK), dj, b.load(y, at)))
        self._finish(start, r, (d, y), whole.get())

    def _sums(self, start: Val, first: Val, product: Callable[[Line], Val]) -> tuple[Val, ...]:
        """Products with the keys and queries of BATCH tokens, over all lanes of the row."""
        found = []
        for i in range(BATCH):
            found += [product(self._key(name, line, start, first + i)) for name, line in self._lines]
        return self.columns.over_lanes(*found)

    @property
    def _lines(self) -> tuple[tuple[str, Line], ...]:
        return ("k", self.k), ("q", self.q)

    def _by_other(self, line: Line) -> Val:
        return self.columns.sum(lambda s: list(zip(line.values(s), self.other.values(s))))

    def _by_state(self, line: Line, r: Val) -> Val:
        columns, first = self.columns, r * self.columns.share.held
        return columns.sum(lambda s: list(zip(columns.load(self.state, first + s), line.values(s))))

    def _finish(self, start: Val, r: Val, found: tuple[Ref, Ref], whole: Val) -> None:
        """y, and the state at the end of the chunk."""
        b, columns, (d, y) = self.b, self.columns, found
        row = r * columns.share.held
        with columns.each() as (slot, _):
            columns.store(self.state, row + slot, [s * whole for s in columns.load(self.state, row + slot)])
        with b.loop(0, CHUNK, BATCH) as first:
            for i in range(BATCH):
                with b.when(start + (first + i) < self.o.t):
                    self.o.write(start + (first + i), r, take(b, y, first, i))
                k = self._key("k", self.k, start, first + i)
                part = b.load(self.rest, first + i) * take(b, d, first, i)
                with columns.each() as (slot, _):
                    old = columns.load(self.state, row + slot)
                    new = [b.mad(part, key, s) for s, key in zip(old, k.values(slot))]
                    columns.store(self.state, row + slot, new)


# Numbers first + i, first in steps of BATCH: places of registers are constants.
def put(b: Builder, numbers: Ref, first: Val, i: int, value: Val) -> None:
    for at in range(0, CHUNK, BATCH):
        b.store(numbers, at + i, b.select(first.eq(at), value, b.load(numbers, at + i)))


def take(b: Builder, numbers: Ref, first: Val, i: int) -> Val:
    found = b.load(numbers, i)
    for at in range(BATCH, CHUNK, BATCH):
        found = b.select(first.eq(at), b.load(numbers, at + i), found)
    return found
