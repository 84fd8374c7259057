"""Blocks in a row that neighbouring lanes share: each has a run of numbers in registers, the range is put
together by shuffles, and a run's codes are stored at once. Rows are whole vectors of 16 bytes.

What `_quick` does not vouch for, numbers that are not finite among it, is done anew, as other rows are.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES
from ..ir.vectors import from_words
from ..manifest.target import Target
from ..variants.family import Formula
from . import _quick
from ._codes import Codes
from ._entries import entries
from ._numbers import INFINITY, MAGNITUDE
from ._pieces import Line, Output, Sizes
from ._quick import Quick
from ._ranges import Range

RUNS = (32, 16, 8)
WIDE = 128
"""Bits of the codes of a run, at most, where there is such a run."""


@dataclass(frozen=True)
class Share:
    """run: numbers of a lane; lanes: that share a block; each: numbers of an access."""

    run: int
    lanes: int
    each: int

    @classmethod
    def of(cls, fmt: Format, dtype: str, target: Target) -> Share | None:
        """None where it is not so."""
        layout, block, each = fmt.layout, fmt.block.cols, 16 // DTYPES[dtype]
        if target.simd == 1 or not _quick.accepts(fmt) or fmt.scales[0].rule == "signed_absmax":
            return None
        if layout.inline or any(f.bits < 8 for f in layout.fields[1:]):
            return None
        runs = [
            run
            for run in RUNS
            if not (run % layout.period or block % run or layout.chunk_elements % run or run % each)
            and block // run in (1, 2, 4, 8, 16, 32)[: target.simd.bit_length()]
        ]
        wide = [run for run in runs if run * fmt.element.bits <= WIDE]
        run = next(iter(wide or runs[::-1]), 0)
        return cls(run, block // run, each) if run else None

    def threads(self, padded: Formula) -> Formula:
        """Of a row of so many codes."""
        return ["mul", ["ceildiv", padded, self.run * self.lanes], self.lanes]

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
    ) -> None:
        """A lane's part of a row: run number `place`. end: of the row's numbers, 0 for a lane without one."""
        first, whole = place * self.run, y.padded(line.k)
        words = self._load(b, line, first, end)
        values = from_words(b, words, line.x.dtype, self.run)
        found, finite = self._range(b, fmt, line, first, words)
        made = entries(b, fmt, target, found, above)
        out, blocks = y.codes(row, line.k), b.ceildiv(line.k, size.block)
        with b.when((place % self.lanes).eq(0) & (first < end)):
            for field in y.sides():
                y.store(y.line(field, row, blocks)[0], first // size.block, getattr(made, field.name))
        codes, right = Quick(b, fmt, made, found.peak()).codes(values)
        most = b.select(end.eq(0), 0, whole)
        with b.when(right & finite) as quick:
            y.store_codes(out, first, most, codes, [made], self.run)
        with b.otherwise(quick), b.when(first < most):
            of = [Codes(b, fmt, made)]
            with b.loop(0, self.run, size.step) as at:
                y.store_codes(out, first + at, whole, line.codes(first + at, size.step, of), [made])

    def _load(self, b: Builder, line: Line, first: Val, end: Val) -> list[Val]:
        """The words of the run's numbers, 0 past the end."""
        held = b.local("held", "u32", self.run // self.each * 4)
        for at in range(0, held.size, 4):
            place = first + at // 4 * self.each
            for i in range(4):
                b.store(held, at + i, 0)
            with b.when(place < end):
                vector = b.load_words(line.x, place, 4)
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
            with b.loop(0, self.run, line.wide) as at:
                line.range_of(first + at, found)
        found.share(self.lanes)
        return found, top < INFINITY
