"""Kernels that write dequantised rows: y[i, k] = row source(i) of w.

A thread decodes chunks of a row. Where rows are whole pieces of 16 bytes, eight neighbouring lanes store
lines of 128 bytes: a lane has the codes of one piece, or, where these are no whole words, of several, which
lanes then exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd

from ..formats.axes import Format
from ..ir.collective import LINE, Tuple, exchange, neighbour
from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES, Ref
from ..ir.packed import CHUNK, COLUMNS, Packed, Steps, steps
from ..ir.vectors import store_ragged, threads_of, to_words
from ..manifest.target import Target
from ..variants.family import Formula, Variant

PIECE = 16
"""Bytes of a piece."""
NUMBERS = 32
"""Numbers that a thread decodes, at least: their codes are on the way at once."""


@dataclass(frozen=True)
class Rows:
    """y, [count, k]. source(i): (a row of w, whether it is meant: y has zeros where not; None: always)."""

    y: Ref
    count: Val
    k: Val
    source: Callable[[Val], tuple[Val, Val | None]]


def variants(
    fmt: Format,
    dtype: str,
    target: Target,
    options: dict[str, str],
    count: str,
    declare: Callable[[Builder], Rows],
) -> Iterator[Variant]:
    """declare: the arguments after those of w, pitches aside; count: the name of the number of rows."""
    threads, lines, walk = threads_of(target.simd, 128), Lines.of(fmt, dtype, target), steps(fmt)

    def build(write: Callable[[Builder, Packed, Rows, Val], None], walk: Steps, b: Builder) -> None:
        w = Packed(b, fmt, target, walk)
        rows = declare(b)
        w.declare_pitches(rows.k)
        write(b, w, rows, b.block() * threads + b.thread())

    def variant(suffix: str, each: Formula, build: Callable[[Builder], None], *when: Formula) -> Variant:
        items: Formula = ["mul", count, each]
        grid: Formula = ["ceildiv", items, threads]
        return Variant(suffix, threads, (grid, 1, 1), build, (COLUMNS, ["lt", items, 2**31], *when), options)

    if lines:
        whole: Formula = ["eq", ["mod", "k", lines.each], 0]
        yield variant("lines", lines.threads("k"), partial(build, lines.write, lines.walk), whole)
    yield variant("", ["ceildiv", "k", walk.chunk], partial(build, write_chunk, walk))


def write_chunk(b: Builder, w: Packed, rows: Rows, item: Val) -> None:
    """Chunk number `item`, with any end."""
    walk = w.walk
    with b.when(item < rows.count * w.chunks()):
        row, chunk = item // w.chunks(), item % w.chunks()
        source, there = rows.source(row)
        line = b.at(rows.y, row.cast("u64") * rows.k.cast("u64"))
        words = b.local("words", "u32", walk.chunk_words)
        spare = b.local("values", "f32", walk.vector)
        w.load_chunk(source, chunk, words, 0)

        def store(first: Val, at: Val, values: Sequence[Val]) -> None:
            store_ragged(b, line, first, rows.k, line.dtype, kept(b, values, there), spare)

        each_vector(b, w, source, chunk, words, 0, store)


def kept(b: Builder, values: Sequence[Val], there: Val | None) -> Sequence[Val]:
    return values if there is None else [b.select(there, v, 0.0) for v in values]


def each_vector(
    b: Builder,
    w: Packed,
    row: Val,
    chunk: Val,
    words: Ref,
    start: int,
    use: Callable[[Val, Val, Sequence[Val]], None],
) -> None:
    """use(column, place in the chunk, numbers) for every vector of a chunk whose words are words[start:]."""
    walk = w.walk
    with b.loop(0, walk.chunk // walk.step, unroll=True) as step:
        view = w.view(words, step * walk.step_words + start, walk.step_words)
        for at in range(0, walk.step, walk.vector):
            place = chunk * walk.chunk + step * walk.step + at
            decoded = w.decode(view, at, walk.vector)
            if at % walk.segment == 0:
                scale, zero = w.scale(row, place, view, at), w.zero(row, place, view, at)
            use(place, step * walk.step + at, [w.apply(v, scale, zero) for v in decoded])


@dataclass(frozen=True)
class Lines:
    """How SIMD groups share rows of whole pieces. each: numbers of a piece; pieces: that lanes exchange at
    once; lanes: of a group; rounds: chunks of a lane, which are as many chunks apart as a group has lanes."""

    walk: Steps
    each: int
    pieces: int
    lanes: int
    rounds: int

    @classmethod
    def of(cls, fmt: Format, dtype: str, target: Target) -> Lines | None:
        """None where lanes do not run together, vectors are no whole pieces, or chunks are long."""
        each = PIECE // DTYPES[dtype]
        walk = steps(fmt, each)
        if target.simd < LINE or walk.vector % each or walk.chunk > CHUNK:
            return None
        pieces = gcd(walk.chunk // each, LINE)
        return cls(walk, each, pieces, target.simd, max(1, NUMBERS // walk.chunk))

    @property
    def span(self) -> int:
        """Numbers of a group."""
        return self.lanes * self.rounds * self.walk.chunk

    def threads(self, k: Formula) -> Formula:
        """Of a row."""
        return ["mul", ["ceildiv", k, self.span], self.lanes]

    def write(self, b: Builder, w: Packed, rows: Rows, item: Val) -> None:
        """The part of y that is thread number `item`'s."""
        walk, lanes, lane, k = self.walk, self.lanes, item % self.lanes, rows.k
        spans, last = b.ceildiv(k, self.span), w.chunks() - 1
        row, place = item // lanes // spans, item // lanes % spans * (lanes * self.rounds)
        source, there = rows.source(b.minimum(row, rows.count - 1))
        end = b.select(row < rows.count, k, 0)
        words = b.local("words", "u32", self.rounds * walk.chunk_words)
        chunks = [b.minimum(place + i * lanes + lane, last) for i in range(self.rounds)]
        for i, chunk in enumerate(chunks):
            w.load_chunk(source, chunk, words, i * walk.chunk_words)
        near, own = neighbour(lane, self.pieces)
        mine = (place + near) * walk.chunk + own * self.each
        line = b.at(rows.y, row.cast("u64") * k.cast("u64") + mine.cast("u64"))
        for i, chunk in enumerate(chunks):
            made = self._pieces(b, w, source, chunk, words, i * walk.chunk_words, there, line.dtype)
            for part in range(0, len(made), self.pieces):
                for j, piece in enumerate(exchange(b, made[part : part + self.pieces], lane)):
                    apart = (i * lanes + j * LINE // self.pieces) * walk.chunk + part * self.each
                    with b.when(mine + apart < end):
                        b.store_words(line, b.const(apart, "u32"), piece)

    def _pieces(
        self,
        b: Builder,
        w: Packed,
        row: Val,
        chunk: Val,
        words: Ref,
        start: int,
        there: Val | None,
        dtype: str,
    ) -> list[Tuple]:
        """A chunk's numbers."""
        size = PIECE // 4
        made = b.local("made", "u32", w.walk.chunk // self.each * size)

        def keep(first: Val, at: Val, values: Sequence[Val]) -> None:
            for j, word in enumerate(to_words(kept(b, values, there), dtype)):
                b.store(made, at // self.each * size + j, word)

        each_vector(b, w, row, chunk, words, start, keep)
        loaded = [b.load(made, i) for i in range(made.size)]
        return [tuple(loaded[i : i + size]) for i in range(0, made.size, size)]
