"""Blocks in a row that neighbouring lanes share: each has a run of numbers in registers, the range is put
together by shuffles, and a run's codes are stored at once. Rows are whole vectors of 16 bytes; those of whole
blocks are one.

Where `_quick` does not apply, or a number is not finite, codes are made as those of other rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from ..formats.axes import Format
from ..ir.collective import LINE, exchange, neighbour
from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES, Ref
from ..ir.vectors import from_words
from ..manifest.target import Target
from ..variants.family import Formula
from . import _quick
from ._codes import Codes
from ._entries import entries
from ._numbers import INFINITY, MAGNITUDE, as_number
from ._pieces import Line, Output, Sizes
from ._quick import Quick
from ._quick_pairs import Pairs
from ._ranges import Range

RUNS = (32, 16, 8)
PIECE = 128
"""Bits of codes of an access. Lanes that have more exchange them, so that neighbours store what follows."""


@dataclass(frozen=True)
class Share:
    """run: numbers of a lane; lanes: that share a block; each: numbers of an access; pieces: accesses for the
    codes of a run."""

    run: int
    lanes: int
    each: int
    pieces: int

    @classmethod
    def of(cls, fmt: Format, dtype: str, target: Target) -> Share | None:
        """None where it is not so."""
        layout, block, each = fmt.layout, fmt.block.cols, 16 // DTYPES[dtype]
        if target.simd < LINE or not _quick.accepts(fmt) or fmt.scales[0].rule == "signed_absmax":
            return None
        if layout.inline or any(f.bits < 8 for f in layout.fields[1:]):
            return None
        lanes = [1 << i for i in range(target.simd.bit_length())]
        for run in RUNS:
            bits = run * fmt.element.bits
            pieces = bits // PIECE if bits % PIECE == 0 else 1
            whole = not (run // pieces % layout.period or layout.chunk_elements % (run // pieces))
            if whole and pieces <= 2 and block % run == 0 and block // run in lanes and run % each == 0:
                return cls(run, block // run, each, pieces)
        return None

    @property
    def group(self) -> int:
        """Neighbouring lanes that have to do with each other."""
        return max(self.lanes, LINE if self.pieces > 1 else 1)

    def threads(self, padded: Formula) -> Formula:
        """Of a row of so many codes."""
        return ["mul", ["ceildiv", padded, self.run * self.group], self.group]

    def count(self, padded: Val) -> Val:
        """The same."""
        return padded.builder.ceildiv(padded, self.run * self.group) * self.group

    def write(
        self,
        b: Builder,
        fmt: Format,
        target: Target,
        line: Line,
        y: Output,
        size: Sizes,
        row: Val,
        place: Val,
        end: Val,
        above: Val | None,
        full: bool = False,
    ) -> None:
        """A lane's part of a row: run number `place`. end: of the row's numbers, 0 for a lane without one;
        full: it is the end of a run."""
        first, whole = place * self.run, y.padded(line.k)
        words = self._load(b, line, first, end, full)
        found, finite = self._range(b, fmt, line, first, words)
        made = entries(b, fmt, target, found, above)
        out, blocks = y.codes(row, line.k), b.ceildiv(line.k, size.block)
        with b.when((place % self.lanes).eq(0) & (first < end)):
            for field in y.sides():
                y.store(y.line(field, row, blocks)[0], first // size.block, getattr(made, field.name))
        quick = Quick(b, fmt, target, made, found.peak(), above, line.x.dtype)
        places = y.places(self.run)
        pairs = Pairs.of(quick, places)
        packed = pairs.words(words) if pairs else quick.words(words, places)
        most = b.select(end.eq(0), 0, whole)
        done = quick.applies() & finite & (first < most)
        self._store(b, y, out, place, most, packed, done)
        with b.when(~done & (first < most)):
            of, step = [Codes(b, fmt, made)], lcm(fmt.layout.period, line.wide)
            with b.loop(0, self.run, step) as at:
                y.store_codes(out, first + at, whole, line.codes(first + at, step, of), [made])

    def _store(
        self, b: Builder, y: Output, out: Ref, place: Val, end: Val, words: Sequence[Val], done: Val
    ) -> None:
        """A run's words, where they are `done`."""
        if self.pieces == 1:
            with b.when(done):
                y.store_words(out, y.byte(place * self.run), words)
            return
        size, flag = len(words) // self.pieces, as_number(b, done)
        held = [(*words[i : i + size], flag) for i in range(0, len(words), size)]
        near, own = neighbour(place, self.pieces)
        for i, (*found, there) in enumerate(exchange(b, held, place)):
            first = (near + i * LINE // self.pieces) * self.run + own * (self.run // self.pieces)
            with b.when(there.ne(0) & (first < end)):
                y.store_words(out, y.byte(first), found)

    def _load(self, b: Builder, line: Line, first: Val, end: Val, full: bool) -> list[Val]:
        """The words of the run's numbers, 0 past the end."""
        held, start = b.local("held", "u32", self.run // self.each * 4), b.at(line.x, first)
        for i in range(held.size):
            b.store(held, i, 0)
        step = held.size if full else 4
        for part in range(0, held.size, step):
            with b.when(first + part // 4 * self.each < end):
                for at in range(part, part + step, 4):
                    vector = b.load_words(start, b.const(at // 4 * self.each, "u32"), 4)
                    for i in range(4):
                        b.store(held, at + i, vector.word(i))
        return [b.load(held, i) for i in range(held.size)]

    def _range(self, b: Builder, fmt: Format, line: Line, first: Val, words: list[Val]) -> tuple[Range, Val]:
        """(that of the block, in all of its lanes, whether this lane's numbers are finite)."""
        found, halves = Range(b, fmt), line.x.dtype != "f32"
        tops = [word & (0x7FFF7FFF if halves else MAGNITUDE) for word in words]
        while len(tops) > 1:
            tops = [(b.max_halves if halves else b.maximum)(x, y) for x, y in zip(tops[::2], tops[1::2])]
        ends = [v.bitcast("u32") for v in from_words(b, tops, line.x.dtype, 2 if halves else 1)]
        top = b.maximum(ends[0], ends[-1])
        found.largest.set(top)
        with b.when(top >= INFINITY):
            found.largest.set(0)
            with b.loop(0, b.minimum(line.k - first, self.run), line.wide) as at:
                line.range_of(first + at, found)
        found.share(self.lanes)
        return found, top < INFINITY
