"""Rows of a state that changes token by token: a row never leaves the lanes that have it, and what meets it
comes to them in the same columns. Rows need nothing of each other, so that no lane waits for another block.

A lane has `held` numbers of a row at most, in runs of `count` neighbours; columns past the row's end are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..ir.collective import add, lane_reduce
from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES, Ref
from ..ir.vectors import from_words, load_scalar, load_vector, store_vector
from ..variants.family import Formula


@dataclass(frozen=True)
class Share:
    """How rows are shared out. threads: of a block; lanes: that have a row together; held, count: as above;
    whole: rows are runs of `count`, read at once; rows: that the same lanes have, one after another."""

    suffix: str
    threads: int
    lanes: int
    held: int
    count: int
    whole: bool
    rows: int = 1

    @property
    def groups(self) -> int:
        """Rows at a time."""
        return self.threads // self.lanes

    @property
    def slab(self) -> int:
        """Rows of a block."""
        return self.groups * self.rows

    def when(self, axis: str) -> tuple[Formula, ...]:
        whole: tuple[Formula, ...] = (["eq", ["mod", axis, self.count], 0],) if self.whole else ()
        return (["le", axis, self.lanes * self.held], *whole)


@dataclass(frozen=True)
class Columns:
    """The columns that a lane has of a row of n, and what it does with them."""

    b: Builder
    share: Share
    n: Val

    @property
    def place(self) -> Val:
        """This lane's among those of the row."""
        lanes = self.share.lanes
        return self.b.thread() % lanes if lanes > 1 else self.b.const(0, "u32")

    @property
    def group(self) -> Val:
        """The row's place among those that the block has at a time."""
        return self.b.thread() // self.share.lanes

    @contextmanager
    def each(self) -> Iterator[tuple[Val, Val]]:
        """(slot, column) of the first number of each run."""
        b, share = self.b, self.share
        fixed = share.lanes > 1  # in registers; a lone thread has memory, and no more trips than it needs
        stop = share.held if fixed else b.ceildiv(self.n, share.count) * share.count
        with b.loop(0, stop, share.count, unroll=fixed) as slot:
            yield slot, slot * share.lanes + self.place * share.count

    def numbers(self, name: str, rows: int = 1) -> Ref:
        """Room for f32 numbers of rows."""
        return self.b.local(name, "f32", rows * self.share.held)

    def line(self, name: str, dtype: str) -> Line:
        """Room for a row as it lies in memory."""
        size = self.share.held * DTYPES[dtype] // 4 if self.share.whole else self.share.held
        return Line(self, dtype, self.b.local(name, "u32" if self.share.whole else "f32", size))

    def sum(self, products: Callable[[Val], list[tuple[Val, Val]]]) -> Val:
        """The sum of the products of a run's slot, over this lane's columns."""
        b = self.b
        parts = [b.var("part", 0.0) for _ in range(self.share.count)]
        with self.each() as (slot, _):
            for part, (x, y) in zip(parts, products(slot)):
                part.set(b.mad(x, y, part.get()))
        found = [part.get() for part in parts]
        while len(found) > 1:
            found = [x + y for x, y in zip(found[::2], found[1::2])]
        return found[0]

    def over_lanes(self, *values: Val) -> tuple[Val, ...]:
        """The sums of values over the lanes of the row."""
        return lane_reduce(self.b, values, add, self.share.lanes)

    def load(self, numbers: Ref, slot: Val) -> list[Val]:
        """A run of f32 numbers."""
        return [self.b.load(numbers, slot + i) for i in range(self.share.count)]

    def store(self, numbers: Ref, slot: Val, values: list[Val]) -> None:
        for i, value in enumerate(values):
            self.b.store(numbers, slot + i, value)

    def read(self, row: Ref, numbers: Ref, first: Val, mine: Val) -> None:
        """f32 numbers from slot `first` on from a row in memory, if it is `mine`, else 0: no lane reads
        what another one writes."""
        b, count = self.b, self.share.count
        with self.each() as (slot, column):
            self.store(numbers, first + slot, [b.const(0.0, "f32")] * count)
            if self.share.whole:
                with b.when(mine & (column < self.n)):
                    self.store(numbers, first + slot, load_vector(b, row, column, row.dtype, count))
            else:
                for i in range(count):
                    with b.when(mine & (column + i < self.n)):
                        b.store(numbers, first + slot + i, load_scalar(b, row, column + i))

    def write(self, row: Ref, numbers: Ref, first: Val) -> None:
        """f32 numbers from slot `first` on to a row in memory, rounded to its type."""
        b = self.b
        with self.each() as (slot, column):
            values = self.load(numbers, first + slot)
            if self.share.whole:
                with b.when(column < self.n):
                    store_vector(b, row, column, row.dtype, values)
            else:
                for i, value in enumerate(values):
                    with b.when(column + i < self.n):
                        b.store(row, column + i, value.cast(row.dtype))


@dataclass(frozen=True)
class Line:
    """A row in registers as it lies in memory: what reads it waits for it, not what fetches it."""

    columns: Columns
    dtype: str
    memory: Ref

    def fetch(self, row: Ref) -> Line:
        with self.columns.each() as (slot, column):
            if self.columns.share.whole:
                self._run(row, slot, column)
            else:
                self._numbers(row, slot, column)
        return self

    def _run(self, row: Ref, slot: Val, column: Val) -> None:
        b, at, width, size = self.columns.b, self._at(slot), min(self._words, 4), DTYPES[self.dtype]
        inside = column < self.columns.n
        column = b.minimum(
            column, self.columns.n - self.columns.share.count
        )  # no branch, and nothing outside
        for first in range(0, self._words, width):
            vector = b.load_words(row, column + first * 4 // size, width)
            for i in range(width):
                b.store(self.memory, at + (first + i), b.select(inside, vector.word(i), 0))

    def _numbers(self, row: Ref, slot: Val, column: Val) -> None:
        b, n = self.columns.b, self.columns.n
        for i in range(self.columns.share.count):
            value = load_scalar(b, row, b.minimum(column + i, n - 1))
            b.store(self.memory, slot + i, b.select(column + i < n, value, 0.0))

    @property
    def _words(self) -> int:
        """u32 words of a run."""
        return self.columns.share.count * DTYPES[self.dtype] // 4

    def copy(self, other: Line) -> None:
        with self.columns.b.loop(0, self.memory.size, unroll=True) as i:
            self.columns.b.store(self.memory, i, self.columns.b.load(other.memory, i))

    def values(self, slot: Val) -> list[Val]:
        """A run of f32 numbers."""
        columns, b = self.columns, self.columns.b
        if not columns.share.whole:
            return columns.load(self.memory, slot)
        words = [b.load(self.memory, self._at(slot) + i) for i in range(self._words)]
        return from_words(b, words, self.dtype, columns.share.count)

    def _at(self, slot: Val) -> Val:
        return slot if DTYPES[self.dtype] == 4 else slot // 2
