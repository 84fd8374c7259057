"""How a quantised matrix is written: codes as whole words, scales and zero points beside them or between
them; every byte by one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm

from ..formats.axes import Format
from ..formats.layout import Field
from ..ir.decode import runs
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.vectors import load_ragged, load_vector
from ._codes import Codes
from ._entries import Entries
from ._ranges import Range

STEP = 16
"""Most codes that are put into words at once, where the format lets it be as few."""


@dataclass(frozen=True)
class Sizes:
    """In elements. block: of one scale, along a row (0: the row); step: whose codes are put into words at
    once; piece: of a row, for a thread; wide: numbers that are loaded at once."""

    block: int
    step: int
    piece: int

    @property
    def wide(self) -> int:
        return gcd(gcd(self.block, self.step), 8)


def sizes(fmt: Format) -> Sizes:
    layout, period, block = fmt.layout, fmt.layout.period, fmt.block.cols
    if not fmt.scales:
        block = layout.chunk_elements
    inside = not layout.inline and block % period == 0
    fits = [s for s in range(period, STEP + 1, period) if not (block % s or layout.chunk_elements % s)]
    step = max(fits, default=period) if inside else lcm(block, period)
    each = [8 // gcd(f.bits, 8) for f in layout.fields[1:]]  # entries of whole bytes
    return Sizes(block, step, lcm(step, block * lcm(*each)))


@dataclass(frozen=True)
class Output:
    """The fields of y."""

    b: Builder
    fmt: Format
    fields: dict[str, Ref]

    @classmethod
    def of(cls, b: Builder, fmt: Format) -> Output:
        return cls(b, fmt, {f.name: b.buffer(f"y.{f.name}", f.dtype, "out") for f in fmt.layout.fields})

    def padded(self, k: Val) -> Val:
        """Elements that the codes of a row have place for."""
        chunk = self.fmt.layout.chunk_elements
        return self.b.ceildiv(k, chunk) * chunk

    def codes(self, row: Val, k: Val) -> Ref:
        layout = self.fmt.layout
        pitch = self.b.ceildiv(k, layout.chunk_elements) * layout.chunk_bytes
        return self.b.at(self.fields["codes"], row.cast("u64") * pitch.cast("u64"))

    def sides(self) -> Sequence[Field]:
        """The fields of level 0's blocks."""
        return [f for f in self.fmt.layout.fields if f.name in ("scale", "zero")]

    def line(self, field: Field, row: Val, blocks: Val) -> tuple[Ref, Val]:
        """The entries of a row of blocks, and how many items of its type they take."""
        pitch = blocks
        if field.bits < 8:
            pitch = self.b.ceildiv(blocks * field.bits, 8) + (0 if 8 % field.bits == 0 else 1)
        return self.b.at(self.fields[field.name], row.cast("u64") * pitch.cast("u64")), pitch

    def store(self, line: Ref, index: Val, entry: Val) -> None:
        """An entry of 8 bits or more."""
        if line.dtype == "f32":
            value = entry.bitcast("f32")
        else:
            value = entry.cast("u8" if line.dtype == "u8" else "u16")
            value = value.bitcast("f16") if line.dtype == "f16" else value
        self.b.store(line, index, value)

    def store_stream(self, field: Field, line: Ref, pitch: Val, first: Val, entries: Ref) -> None:
        """Entries of fewer bits, from the one of number `first`, which begins a byte."""
        b = self.b
        each = 8 // gcd(field.bits, 8)
        start = first // each * (each * field.bits // 8)
        if 8 % field.bits:  # the guard byte, until the last one's entries come
            with b.when(start + (entries.size * field.bits // 8 + 1) >= pitch):
                b.store(line, pitch - 1, 0)
        held = [b.load(entries, i) for i in range(entries.size)]
        for at, byte in enumerate(gathered(held, field.bits, _stream(entries.size, field.bits), 8)):
            with b.when(start + at < pitch):
                b.store(line, start + at, byte.cast("u8"))

    def places(self, count: int) -> list[list[int]]:
        """Where the bits of so many codes, whole units, lie."""
        layout = self.fmt.layout
        units = range(0, count // layout.unit * 8 * layout.unit_bytes, 8 * layout.unit_bytes)
        return [[p + unit for p in row] for unit in units for row in layout.positions]

    def store_codes(
        self, line: Ref, first: Val, end: Val, codes: Sequence[Val], blocks: Sequence[Entries]
    ) -> None:
        """The words of whole periods, with the inline fields of their blocks; those that begin before `end`,
        which a period does."""
        layout, bits = self.fmt.layout, self.fmt.element.bits
        units, unit_bits = len(codes) // layout.unit, 8 * layout.unit_bytes
        values, places, widths = list(codes), self.places(len(codes)), [bits] * len(codes)
        for inline in layout.inline:
            for i in range(units * inline.count):
                entry = getattr(blocks[i], inline.field)
                at = i // inline.count * unit_bits + inline.bit + i % inline.count * inline.bits
                values.append(entry)
                places.append(list(range(at, at + inline.bits)))
                widths.append(inline.bits)
        words, start = gathered(values, widths, places, 32), self.byte(first)
        each = len(words) // (len(codes) // layout.period)
        for n, begin in enumerate(range(0, len(words), each)):
            with self.b.when(first + n * layout.period < end):
                self.store_words(line, start, words[begin : begin + each], begin)

    def byte(self, first: Val) -> Val:
        """Where the unit that begins with element `first` of a row begins."""
        return first // self.fmt.layout.unit * self.fmt.layout.unit_bytes

    def store_words(self, line: Ref, start: Val, words: Sequence[Val], begin: int = 0) -> None:
        """Words of codes, the first of them number `begin` from byte `start` on."""
        load = self.fmt.layout.load
        count = next(c for c in (4, 2, 1) if len(words) % c == 0 and load % (4 * c) == 0)
        for at in range(0, len(words), count):
            self.b.store_words(line, start + 4 * (begin + at), words[at : at + count])


def _stream(count: int, bits: int) -> list[list[int]]:
    return [list(range(i * bits, (i + 1) * bits)) for i in range(count)]


def gathered(
    values: Sequence[Val], widths: int | Sequence[int], places: Sequence[Sequence[int]], size: int
) -> list[Val]:
    """Words of `size` bits with bit i of each value at its place i; bits that none has are 0."""
    b = values[0].builder
    words = [b.const(0, "u32")] * -(-(max(max(p) for p in places) + 1) // size)
    for n, (value, bits) in enumerate(zip(values, places)):
        width = widths if isinstance(widths, int) else widths[n]
        for run in _split(bits, size):
            word, shift, low, length = run
            piece = value >> low
            if low + length < width:
                piece = piece & ((1 << length) - 1)
            words[word] = words[word] | (piece << shift)
    return words


def _split(places: Sequence[int], size: int) -> list[tuple[int, int, int, int]]:
    """(word, its bit, the value's bit, length) of runs of bits that lie in one word."""
    if size == 32:
        return [(r.word, r.shift, r.low, r.length) for r in runs(places)]
    found: list[tuple[int, int, int, int]] = []
    for low, place in enumerate(places):
        word, shift = divmod(place, size)
        if found and found[-1][0] == word and found[-1][1] + found[-1][3] == shift:
            found[-1] = (*found[-1][:3], found[-1][3] + 1)
        else:
            found.append((word, shift, low, 1))
    return found


# ------------------------------------------------------------ the numbers of a row
@dataclass(frozen=True)
class Line:
    """A row of x, of k numbers; whole: k is a multiple of `wide`."""

    b: Builder
    fmt: Format
    x: Ref
    k: Val
    wide: int
    whole: bool = False

    def load(self, first: Val) -> Ref:
        b, values = self.b, self.b.local("values", "f32", self.wide)
        if not self.whole:
            load_ragged(b, self.x, first, self.k, self.x.dtype, values, self.wide)
            return values
        for i in range(self.wide):
            b.store(values, i, 0.0)
        with b.when(first < self.k):
            for i, value in enumerate(load_vector(b, self.x, first, self.x.dtype, self.wide)):
                b.store(values, i, value)
        return values

    def range(self, first: Val, count: int) -> Range:
        """Of a block in the row."""
        found = Range(self.b, self.fmt)
        with self.b.loop(0, count, self.wide) as at:
            self.range_of(first + at, found)
        return found

    def range_of(self, first: Val, into: Range) -> None:
        """Of the numbers of one load."""
        values = self.load(first)
        with self.b.loop(0, self.wide, unroll=True) as i:
            into.add(self.b.load(values, i), first + i < self.k)

    def codes(self, first: Val, count: int, of: Sequence[Codes]) -> list[Val]:
        """`count` codes, of as many equal blocks as `of` has; 0 past the end."""
        b, each = self.b, count // len(of)
        made = b.local("codes", "u32", count)
        for n, block in enumerate(of):
            with b.loop(0, each, self.wide, unroll=True) as at:
                start = at + n * each
                values = self.load(first + start)
                with b.loop(0, self.wide, unroll=True) as i:
                    code = block.code(b.load(values, i))
                    b.store(made, start + i, b.select(first + start + i < self.k, code, 0))
        return [b.load(made, i) for i in range(count)]
