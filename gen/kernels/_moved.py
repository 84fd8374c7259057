"""Arrays whose elements are moved as bits: rows that go somewhere else, and tiles that are turned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES, Ref
from ..manifest.target import Target
from ..variants.family import Formula, Variant

BITS = {"f16": "u16", "bf16": "u16", "f32": "u32", "i8": "u8"}
"""What an element is loaded and stored as, by the cell's type: NaN keeps its payload."""
ROW_LIMITS = dict.fromkeys(("t", "n", "k"), (0, 2**31 - 1))
THREADS = 256
HELD = 4
"""Accesses whose words a thread holds: as many loads are in flight before the first store."""


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    return None if dtype in BITS else f"it moves {', '.join(BITS)}; got {dtype}"


def whole(dtype: str) -> int:
    """Elements of 16 bytes."""
    return 16 // DTYPES[BITS[dtype]]


# ------------------------------------------------------------ runs
@dataclass
class Run:
    """`number` accesses of `count` elements each, loaded before the first is stored; zeros where one is not
    loaded."""

    b: Builder
    bits: str
    count: int
    number: int = HELD

    def __post_init__(self) -> None:
        words = self.number * (4 if self.count > 1 else 1)
        self.held = self.b.local("held", "u32" if self.count > 1 else self.bits, words)

    def clear(self, i: int) -> None:
        for j in self._places(i):
            self.b.store(self.held, j, 0)

    def load(self, i: int, ref: Ref, at: Val) -> None:
        if self.count == 1:
            self.b.store(self.held, i, self.b.load(ref, at))
            return
        vector = self.b.load_words(ref, at, 4)
        for lane, j in enumerate(self._places(i)):
            self.b.store(self.held, j, vector.word(lane))

    def words(self, i: int) -> list[Val]:
        """Of one access: its words, or its one element."""
        return [self.b.load(self.held, j) for j in self._places(i)]

    def _places(self, i: int) -> range:
        return range(4 * i, 4 * i + 4) if self.count > 1 else range(i, i + 1)


def store(b: Builder, ref: Ref, at: Val, words: list[Val]) -> None:
    """One element, or 16 bytes."""
    if len(words) == 1:
        b.store(ref, at, words[0])
    else:
        b.store_words(ref, at, words)


# ------------------------------------------------------------ rows
Source = Callable[[Val], tuple[Ref, Val]]
"""Where the access of a row is that begins at one of its elements."""


@dataclass(frozen=True)
class Rows:
    """How `number` rows of `length` elements are shared out: `lanes` threads have a piece of a row, of
    `times` runs. most: the longest row, where it is not any."""

    suffix: str
    threads: int
    lanes: int
    count: int
    times: int = 1
    most: int = 0
    number: Formula = "t"
    length: Formula = "k"

    @property
    def step(self) -> int:
        """Elements from one access of a thread to its next."""
        return self.lanes * self.count

    @property
    def piece(self) -> int:
        return self.step * HELD * self.times

    @property
    def blocks(self) -> Formula:
        """At least one: an array in place is there where no row goes to it."""
        groups: Formula = ["ceildiv", self.number, self.threads // self.lanes]
        return ["max", 1, ["mul", groups, ["ceildiv", self.length, self.piece]]]

    @property
    def when(self) -> tuple[Formula, ...]:
        aligned: tuple[Formula, ...] = (["eq", ["mod", self.length, self.count], 0],)
        short: tuple[Formula, ...] = (["le", self.length, self.most],) if self.most else ()
        return (*(aligned if self.count > 1 else ()), *short, ["lt", self.blocks, 2**31])

    def variant(
        self, build: Callable[[Rows, Builder], None], options: dict[str, str], *when: Formula
    ) -> Variant:
        grid: tuple[Formula, Formula, Formula] = (self.blocks, 1, 1)
        return Variant(self.suffix, self.threads, grid, partial(build, self), (*self.when, *when), options)

    def place(self, b: Builder, length: Val) -> tuple[Val, Val]:
        """The row of this thread, and its first element there."""
        pieces = b.ceildiv(length, self.piece)
        row = b.block() // pieces * (self.threads // self.lanes) + b.thread() // self.lanes
        return row, b.block() % pieces * self.piece + b.thread() % self.lanes * self.count

    def move(
        self, b: Builder, source: Source, line: Ref, first: Val, length: Val, known: Val | None, zeros: bool
    ) -> None:
        """The piece of a row from `first`, to `line`; of a row that is not known zeros, or else nothing."""
        with b.loop(0, self.times) as i:
            places = [first + i * (self.step * HELD) + j * self.step for j in range(HELD)]
            inside = [place < length for place in places]
            there = inside if known is None else [known & each for each in inside]
            run = Run(b, line.dtype, self.count)
            for j, place in enumerate(places):
                run.clear(j)
                with b.when(there[j]):
                    run.load(j, *source(place))
            for j, place in enumerate(places):
                with b.when(inside[j] if zeros else there[j]):
                    store(b, line, place, run.words(j))


def shares(dtype: str, target: Target, number: Formula = "t", length: Formula = "k") -> Iterator[Rows]:
    count, own = whole(dtype), (number, length)
    if target.simd == 1:
        yield Rows("", 1, 1, count, 128, 0, *own)
        yield Rows("any", 1, 1, 1, 1024, 0, *own)
        return
    for suffix, lanes in (("short", 8), ("middle", 64)):
        yield Rows(suffix, THREADS, lanes, count, 1, lanes * count * HELD, *own)
    yield Rows("", THREADS, THREADS, count, 1, 0, *own)
    yield Rows("any_short", THREADS, 64, 1, 1, 64 * HELD, *own)
    yield Rows("any", THREADS, THREADS, 1, 1, 0, *own)


def by_index(dtype: str, target: Target, options: dict[str, str], to: bool) -> Iterator[Variant]:
    """Row t of y is row indices[t] of x, zeros where x has none; with `to`, row indices[t] of y is row t of
    x, where y has it. n: rows of the array that the indices are of."""

    def build(share: Rows, b: Builder) -> None:
        x, indices = b.buffer("x", BITS[dtype]), b.buffer("indices", "i32")
        y = b.buffer("y", BITS[dtype], "out")
        t, k, n = b.scalar("t"), b.scalar("k"), b.scalar("n")
        row, first = share.place(b, k)
        with b.when(row < t):
            index = b.load(indices, row).cast("u32")
            known = index < n  # not so of negative ones
            other = b.select(known, index, 0)
            rows = zip((x, y), (row, other) if to else (other, row))
            lines = [b.at(ref, at.cast("u64") * k.cast("u64")) for ref, at in rows]
            share.move(b, lambda place: (lines[0], place), lines[1], first, k, known, not to)

    return (share.variant(build, options) for share in shares(dtype, target))


# ------------------------------------------------------------ tiles
@dataclass(frozen=True)
class Turn:
    """Matrices x[m, n] to y[n, m], by blocks that have a square tile each in group memory, `count` elements
    an access. A row of the tile is one word longer than 32 (or one element): what lanes reach at once lies in
    other banks."""

    dtype: str
    threads: int
    count: int

    @property
    def side(self) -> int:
        return 8 * self.count if self.count > 1 else 32

    @property
    def line(self) -> int:
        return self.side + (self._together if self.count > 1 else 1)

    @property
    def _together(self) -> int:
        """Elements of a word."""
        return 4 // DTYPES[BITS[self.dtype]]

    def blocks(self, m: Formula, n: Formula) -> Formula:
        """Of one matrix."""
        return ["mul", ["ceildiv", m, self.side], ["ceildiv", n, self.side]]

    def build(self, b: Builder, x: Ref, start: Val, y: Ref, m: Val, n: Val, pitch: Val, number: Val) -> None:
        """Tile `number` of the matrix at x + start, its rows `pitch` elements apart (both u64), to y."""
        across = b.ceildiv(n, self.side)
        top, left = number // across * self.side, number % across * self.side
        tile = b.shared("tile", BITS[self.dtype], self.side * self.line)
        per_row = self.side // self.count
        with self._items(b) as items:
            run = Run(b, BITS[self.dtype], self.count, len(items))
            places = [(item // per_row, item % per_row * self.count) for item in items]
            for i, (row, first) in enumerate(places):
                run.clear(i)
                with b.when((top + row < m) & (left + first < n)):
                    run.load(i, x, start + (top + row).cast("u64") * pitch + (left + first).cast("u64"))
            for i, (row, first) in enumerate(places):
                self._put(b, tile, row * self.line + first, run.words(i))
        b.barrier()
        with self._items(b) as items:
            for row, first in map(self._turned, items):
                with b.when((left + row < n) & (top + first < m)):
                    at = (left + row).cast("u64") * m.cast("u64") + (top + first).cast("u64")
                    column = [b.load(tile, (first + i) * self.line + row) for i in range(self.count)]
                    store(b, y, at, self._joined(column))

    @contextmanager
    def _items(self, b: Builder) -> Iterator[list[Val]]:
        """The accesses of this thread, a few at a time."""
        trips = self.side * self.side // self.count // self.threads
        held = min(trips, HELD)
        with b.loop(0, trips // held) as i:
            yield [b.thread() + (i * held + j) * self.threads for j in range(held)]

    def _turned(self, item: Val) -> tuple[Val, Val]:
        """The row of y, and the first of its elements: lanes that are side by side have as many accesses of
        one row as leaves each bank to one of them."""
        if self.count == 1:
            return item // self.side, item % self.side
        run = 8 // self._together
        lanes, rest = item % 32, item // 32
        row = rest // self._together * (32 // run) + lanes // run
        return row, (rest % self._together * run + lanes % run) * self.count

    def _put(self, b: Builder, tile: Ref, at: Val, words: list[Val]) -> None:
        if self.count == 1:
            b.store(tile, at, words[0])
            return
        for i, word in enumerate(words):
            b.store_words(tile, at + i * self._together, [word])

    def _joined(self, column: list[Val]) -> list[Val]:
        """Elements as words."""
        if self.count == 1 or self._together == 1:
            return column
        words: list[Val] = []
        for first in range(0, len(column), self._together):
            word = column[first].cast("u32")
            for i in range(1, self._together):
                word = word | (column[first + i].cast("u32") << (8 * DTYPES[BITS[self.dtype]] * i))
            words.append(word)
        return words
