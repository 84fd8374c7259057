"""prepack: a matrix in its format's natural layout -> the packed one (gen/formats/fragment.py), byte for
byte what wootz.prepack makes.

A block makes one unit: 16 rows of codes to group memory, 0 past the ends; then words from there,
a thread four steps of a lane at a time; then the sides.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce

from ..formats.axes import Format
from ..formats.fragment import LANES, PERIOD, ROWS, Fragment, Side, fragment
from ..ir.decode import Run, extract, runs
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import COLUMNS, Packed, require, steps
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant


@dataclass(frozen=True)
class Unit:
    """The work of one block. tile, unit: which unit; threads take items in turn."""

    b: Builder
    w: Packed
    layout: Fragment
    y: Ref
    n: Val
    k: Val
    tile: Val
    unit: Val
    threads: int

    @cached_property
    def codes(self) -> Ref:
        return self.b.shared("codes", "u16", ROWS * self.layout.columns)

    def run(self) -> None:
        b = self.b
        with b.loop(b.thread(), ROWS * self.layout.columns, self.threads) as at:
            b.store(self.codes, at, 0)
        b.barrier()
        self._load()
        b.barrier()
        self._words()
        for side in self.layout.sides:
            self._side(side)

    def _load(self) -> None:
        """Codes of the rows and columns that there are, to group memory."""
        b, walk, columns = self.b, self.w.walk, self.layout.columns
        start = self.unit * columns
        end = b.minimum(start + columns, self.k)
        first, last = start // walk.chunk, b.ceildiv(end, walk.chunk)
        rows = b.minimum(self.n - self.tile * ROWS, ROWS)
        words = b.local("words", "u32", walk.chunk_words)
        with b.loop(b.thread(), (last - first) * rows, self.threads) as item:
            row, chunk = item % rows, first + item // rows
            self.w.load_chunk(self.tile * ROWS + row, chunk, words, 0)
            with b.loop(0, walk.chunk // walk.step, unroll=True) as step:
                view = self.w.view(words, step * walk.step_words, walk.step_words)
                for i, places in enumerate(self.w.code_bits(0, walk.step)):
                    column = chunk * walk.chunk + step * walk.step + i
                    with b.when((column < end) & (column >= start)):
                        at = row * columns + (column - start)
                        b.store(self.codes, at, extract(b, view, places).cast("u16"))

    def _words(self) -> None:
        """The words of a lane for PERIOD pairs at a time."""
        b, f = self.b, self.layout
        with b.loop(b.thread(), LANES * f.words // f.bits, self.threads) as item:
            lane, period = item % LANES, item // LANES
            corner = lane // 4 * f.columns + lane % 4 * 2 + period * (4 * PERIOD)
            words: list[Val | None] = [None] * f.bits
            for pair, places in enumerate(f.positions):
                step, r = divmod(pair, 4)
                place = corner + ((r & 1) * 8 * f.columns + 16 * step + 8 * (r >> 1))
                for half in (0, 1):
                    code = b.load(self.codes, place + half).cast("u32")
                    for part in runs([p // 16 * 32 + p % 16 + 16 * half for p in places]):
                        piece = _part(code, part, f.bits) << part.shift
                        before = words[part.word]
                        words[part.word] = piece if before is None else before | piece
            for i, word in enumerate(words):
                assert word is not None
                index = period * f.bits + i
                b.store_words(self.y, ((index // 4 * LANES + lane) * 4 + index % 4) * 4, [word])

    def _side(self, side: Side) -> None:
        """The entries of the block of each row and run, as they are stored, a word at a time."""
        b, f, each = self.b, self.layout, 4 // side.bytes
        with b.loop(b.thread(), ROWS * f.runs // each, self.threads) as item:
            word: Val | None = None
            for i in range(each):
                entry = item * each + i
                half, run, g = entry % 2, entry // 2 % f.runs, entry // (2 * f.runs)
                row = b.minimum(self.tile * ROWS + half * 8 + g, self.n - 1)
                column = b.minimum(self.unit * f.columns + run * f.run, self.k - 1)
                piece = _stored(b, self.w, side, row, column) << (8 * side.bytes * i)
                word = piece if word is None else word | piece
            assert word is not None
            b.store_words(self.y, item * 4 + side.offset, [word])


def _part(code: Val, part: Run, bits: int) -> Val:
    """Bits of a code, moved to its low end."""
    piece = code >> part.low
    return piece & ((1 << part.length) - 1) if part.low + part.length < bits else piece


def _stored(b: Builder, w: Packed, side: Side, row: Val, column: Val) -> Val:
    """The bits of a scale or zero point in the natural layout, in a u32's low end."""
    layout, (rows, columns) = w.fmt.layout, side.block
    codes = b.at(w.fields["codes"], row.cast("u64") * w.pitches["codes"].cast("u64"))
    for inline in layout.inline:
        if inline.field == side.name:
            unit, place = column // layout.unit, column % layout.unit // columns
            return _bits(
                b, codes, unit * (layout.unit_bytes * 8) + (place * inline.bits + inline.bit), inline.bits
            )
    line = w.fields[side.name]
    if rows:
        line = b.at(line, (row // rows).cast("u64") * w.pitches[side.name].cast("u64"))
    index = column // columns if columns else b.const(0, "u32")
    bits = side.element.bits
    if bits < 16:
        return _bits(b, line, index * bits, bits)
    value = b.load(line, index)
    return value.bitcast("u32") if bits == 32 else value.bitcast("u16").cast("u32")


def _bits(b: Builder, line: Ref, bit: Val, bits: int) -> Val:
    """`bits` bits from bit `bit` of bytes; whole bytes begin at one."""
    if bits % 8 == 0:
        found = [b.load(line, (bit >> 3) + i).cast("u32") << (8 * i) for i in range(bits // 8)]
        return reduce(operator.or_, found)
    low, high = bit >> 3, (bit + (bits - 1)) >> 3  # one byte, or two
    code = b.load(line, low).cast("u32") | (b.load(line, high).cast("u32") << 8)
    return (code >> (bit & 7)) & ((1 << bits) - 1)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "prepack")
    layout, walk, threads = fragment(fmt), steps(fmt), threads_of(target.simd, 128)

    def build(b: Builder) -> None:
        w = Packed(b, fmt, target, walk)
        y = b.buffer("y.units", "u8", "out")
        n, k = b.scalar("n"), b.scalar("k")
        w.declare_pitches(k)
        across = b.ceildiv(k, layout.columns)
        here = b.at(y, b.block().cast("u64") * layout.unit_bytes)
        Unit(b, w, layout, here, n, k, b.block() // across, b.block() % across, threads).run()

    units: Formula = ["mul", ["ceildiv", "n", ROWS], ["ceildiv", "k", layout.columns]]
    yield Variant("", threads, (units, 1, 1), build, (COLUMNS, ["lt", units, 2**31]), options)


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    return None if dtype == "i8" else f"prepack moves bits of no type, and goes by i8 alone; got {dtype}"


FAMILY = Family(
    (Operand("w", "quantised", ("n", "k")),), Operand("y", "packed", ("n", "k")), variants, accepts=accepts
)
