"""Arrays whose elements are moved as bits: rows that go somewhere else, and tiles that are turned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..axes import Format
from ..dsl import Builder, Val
from ..family import Formula, Variant
from ..ir import DTYPES, Ref
from ..target import Target

BITS = {"f16": "u16", "bf16": "u16", "f32": "u32", "i8": "u8"}
"""What an element is loaded and stored as, by the cell's type: NaN keeps its payload."""
ROW_LIMITS = {name: (0, 2**31 - 1) for name in ("t", "n", "k")}
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
    dtype: str
    count: int
    number: int = HELD

    def __post_init__(self) -> None:
        words = self.number * (4 if self.count > 1 else 1)
        self.held = self.b.local("held", "u32" if self.count > 1 else BITS[self.dtype], words)

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
@dataclass(frozen=True)
class Rows:
    """How t rows of k elements are shared out: `lanes` threads have a piece of a row, of `times` runs."""

    suffix: str
    threads: int
    lanes: int
    count: int
    times: int = 1
    most: int = 0  # the longest row, if not any

    @property
    def piece(self) -> int:
        return self.lanes * self.count * HELD * self.times

    @property
    def blocks(self) -> Formula:
        """At least one: an array in place is there where no row goes to it."""
        return ["max", 1, ["mul", ["ceildiv", "t", self.threads // self.lanes], ["ceildiv", "k", self.piece]]]

    @property
    def when(self) -> tuple[Formula, ...]:
        aligned: tuple[Formula, ...] = (["eq", ["mod", "k", self.count], 0],) if self.count > 1 else ()
        short: tuple[Formula, ...] = (["le", "k", self.most],) if self.most else ()
        return (*aligned, *short, ["lt", self.blocks, 2**31])


def shares(dtype: str, target: Target) -> Iterator[Rows]:
    count = whole(dtype)
    if target.simd == 1:
        yield Rows("", 1, 1, count, 128)
        yield Rows("any", 1, 1, 1, 1024)
        return
    for suffix, lanes in (("short", 8), ("middle", 64)):
        yield Rows(suffix, THREADS, lanes, count, most=lanes * count * HELD)
    yield Rows("", THREADS, THREADS, count)
    yield Rows("any", THREADS, 64, 1)


def move_rows(dtype: str, share: Rows, options: dict[str, str], to: bool) -> Variant:
    """Row t of y is row indices[t] of x, zeros where x has none; with `to`, row indices[t] of y is row t of
    x, where y has it. n: rows of the array that the indices are of."""

    def build(b: Builder) -> None:
        x, indices = b.buffer("x", BITS[dtype]), b.buffer("indices", "i32")
        y = b.buffer("y", BITS[dtype], "out")
        t, k, n = b.scalar("t"), b.scalar("k"), b.scalar("n")
        pieces = b.ceildiv(k, share.piece)
        row = b.block() // pieces * (share.threads // share.lanes) + b.thread() // share.lanes
        start = b.block() % pieces * share.piece + b.thread() % share.lanes * share.count
        with b.when(row < t):
            index = b.load(indices, row).cast("u32")
            known = index < n  # not so of negative ones
            other = b.select(known, index, 0)
            source, target = (row, other) if to else (other, row)
            lines = [b.at(ref, at.cast("u64") * k.cast("u64")) for ref, at in ((x, source), (y, target))]
            with b.loop(0, share.times) as i:
                first = start + i * (share.lanes * share.count * HELD)
                _move(b, Run(b, dtype, share.count), lines, first, k, known, share.lanes * share.count, to)

    return Variant(share.suffix, share.threads, (share.blocks, 1, 1), build, share.when, options)


def _move(
    b: Builder, run: Run, lines: list[Ref], first: Val, k: Val, known: Val, step: int, to: bool
) -> None:
    """A run of a row, from lines[0] to lines[1]; of one that is not known zeros, or with `to` nothing."""
    places = [first + i * step for i in range(HELD)]
    for i, place in enumerate(places):
        run.clear(i)
        with b.when(known & (place < k)):
            run.load(i, lines[0], place)
    for i, place in enumerate(places):
        with b.when(known & (place < k) if to else place < k):
            store(b, lines[1], place, run.words(i))


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

    def build(self, b: Builder, x: Ref, y: Ref, m: Val, n: Val, pitch: Val, number: Val) -> None:
        """Tile `number` of the matrix that begins at x, its rows `pitch` (u64) elements apart."""
        across = b.ceildiv(n, self.side)
        top, left = number // across * self.side, number % across * self.side
        tile = b.shared("tile", BITS[self.dtype], self.side * self.line)
        per_row = self.side // self.count
        with self._items(b) as items:
            run = Run(b, self.dtype, self.count, len(items))
            places = [(item // per_row, item % per_row * self.count) for item in items]
            for i, (row, first) in enumerate(places):
                run.clear(i)
                with b.when((top + row < m) & (left + first < n)):
                    run.load(i, x, (top + row).cast("u64") * pitch + (left + first).cast("u64"))
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
