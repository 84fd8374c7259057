"""The gated delta rule by chunks: the d of CHUNK tokens from one triangular system, then y and the state from
them (the WY representation of products of Householder-like factors; arXiv 2406.06484 and 2412.06464).

With G(i) the product of the g of a chunk's tokens up to i, and G(i, j) that of those after j up to i:
    d(i) = beta(i) (v(i) - G(i) S k(i)) - sum over j < i of A(i, j) d(j),  A(i, j) = beta(i) G(i, j) k(i) . k(j)
    y(i) = G(i) S q(i) + sum over j <= i of B(i, j) d(j),                  B(i, j) = G(i, j) q(i) . k(j)
    S = G(last) S + sum over j of G(last, j) d(j) k(j)^T
G(i, j) are products of g, never quotients or differences of logarithms: a g of 0 is no special case.
"""

from __future__ import annotations

from ..dsl import Val
from ..ir import Ref
from ._columns import Line
from ._delta import Head

CHUNK = 16
BATCH = 8
"""Sums over lanes that are made side by side."""


def chunks(o: Head) -> None:
    b, share = o.b, o.columns.share
    whole = _Chunks(o)
    with b.loop(0, share.rows) as r:
        o.read_state(whole.state, r)
    with b.loop(0, o.t, CHUNK) as start:
        b.barrier()
        whole.gates(start)
        b.barrier()
        whole.products(start)
        b.barrier()
        with b.loop(0, share.rows) as r:
            whole.row(start, r)
    with b.loop(0, share.rows) as r:
        o.write_state(whole.state, r)


class _Chunks:
    """A block's chunks. A and B lie column by column; past the sequence g is 1 and beta 0, so that nothing
    changes."""

    def __init__(self, o: Head) -> None:
        b, columns = o.b, o.columns
        self.o, self.b, self.columns, self.fixed = o, b, columns, columns.share.lanes > 1
        self.state = columns.numbers("state_numbers", columns.share.rows)
        self.decay, self.rate, self.rest = (b.shared(n, "f32", CHUNK) for n in ("decay", "rate", "rest"))
        self.a, self.b_ = (b.shared(n, "f32", CHUNK * CHUNK) for n in ("lower", "causal"))
        names = (("k_line", "k"), ("q_line", "q"), ("other_line", "k"))
        self.k, self.q, self.other = (columns.line(n, o.arrays[array].dtype) for n, array in names)

    def _token(self, start: Val, i: Val) -> Val:
        return self.b.minimum(start + i, self.o.t - 1)

    def _keys(self, start: Val, i: Val) -> tuple[Line, Line]:
        token = self._token(start, i)
        return self.k.fetch(self.o.keys("k", token)), self.q.fetch(self.o.keys("q", token))

    def gates(self, start: Val) -> None:
        b = self.b
        with b.loop(b.thread(), CHUNK, b.function.threads) as i:
            inside, (g, beta) = start + i < self.o.t, self.o.gates(self._token(start, i))
            b.store(self.decay, i, b.select(inside, g, 1.0))
            b.store(self.rate, i, b.select(inside, beta, 0.0))

    def products(self, start: Val) -> None:
        """A, B and what each token's part of the state has left at the end of the chunk."""
        b, columns, groups = self.b, self.columns, min(self.columns.share.groups, CHUNK)
        with b.loop(0, CHUNK, groups) as base:
            j = base + columns.group % groups
            other = self.other.fetch(self.o.keys("k", self._token(start, j)))
            left = b.var("left", 1.0)
            with b.loop(0, CHUNK) as i:
                k, q = self._keys(start, i)
                sums = [columns.sum(lambda s, x=x: list(zip(x.values(s), other.values(s)))) for x in (k, q)]  # type: ignore[misc]
                kk, qk = columns.over_lanes(*sums)
                left.set(b.select(i > j, left.get() * b.load(self.decay, i), 1.0))
                with b.when(columns.place.eq(0)):
                    a = b.load(self.rate, i) * left.get() * kk
                    b.store(self.a, j * CHUNK + i, b.select(i > j, a, 0.0))
                    b.store(self.b_, j * CHUNK + i, b.select(i >= j, left.get() * qk, 0.0))
            with b.when(columns.place.eq(0)):
                b.store(self.rest, j, left.get())

    def row(self, start: Val, r: Val) -> None:
        """One row of the state through the chunk."""
        b, o = self.b, self.o
        d, y, whole = b.local("d", "f32", CHUNK), b.local("y_sums", "f32", CHUNK), b.var("whole", 1.0)
        with b.loop(0, CHUNK, unroll=self.fixed) as i:
            whole.set(whole.get() * b.load(self.decay, i))
            for to, line in zip((d, y), self._keys(start, i)):
                b.store(to, i, self._by_state(line, r) * whole.get())
        self._over_lanes(d)
        self._over_lanes(y)
        with b.loop(0, CHUNK, unroll=self.fixed) as i:
            v = o.value(self._token(start, i), r).cast("f32")
            b.store(d, i, b.load(self.rate, i) * (v - b.load(d, i)))
        for j in range(CHUNK):  # the triangular system, a column after the other
            dj = b.load(d, j)
            with b.loop(j + 1, CHUNK, unroll=True) as i:
                b.store(d, i, b.load(d, i) - b.load(self.a, i + j * CHUNK) * dj)
            with b.loop(j, CHUNK, unroll=True) as i:
                b.store(y, i, b.mad(b.load(self.b_, i + j * CHUNK), dj, b.load(y, i)))
        with b.loop(0, CHUNK, unroll=self.fixed) as i, b.when(start + i < o.t):
            o.write(start + i, r, b.load(y, i))
        self._update(start, r, d, whole.get())

    def _by_state(self, line: Line, r: Val) -> Val:
        """This lane's part of the product of a key or a query with the state's row."""
        columns = self.columns
        first = r * columns.share.held
        return columns.sum(lambda s: list(zip(columns.load(self.state, first + s), line.values(s))))

    def _over_lanes(self, numbers: Ref) -> None:
        b = self.b
        if not self.fixed:
            return
        with b.loop(0, CHUNK, BATCH, unroll=True) as first:
            sums = self.columns.over_lanes(*(b.load(numbers, first + i) for i in range(BATCH)))
            for i, value in enumerate(sums):
                b.store(numbers, first + i, value)

    def _update(self, start: Val, r: Val, d: Ref, whole: Val) -> None:
        b, columns = self.b, self.columns
        first = r * columns.share.held
        with columns.each() as (slot, _):
            columns.store(self.state, first + slot, [s * whole for s in columns.load(self.state, first + slot)])
        with b.loop(0, CHUNK, unroll=self.fixed) as j:
            k = self.k.fetch(self.o.keys("k", self._token(start, j)))
            part = b.load(self.rest, j) * b.load(d, j)
            with columns.each() as (slot, _):
                old = columns.load(self.state, first + slot)
                new = [b.mad(part, key, s) for s, key in zip(old, k.values(slot))]
                columns.store(self.state, first + slot, new)
