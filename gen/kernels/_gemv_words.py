"""The vector product of a lone thread: y[m, n] = sum over k of x[m, k] * w[n, k], w packed.

LANES words of codes make a group. Equal places of all words are taken side by side, in loops of LANES trips
without a choice, which compilers turn into vector instructions; a place is a shift, so that no code has to
move between lanes. Activations are staged once for many rows, in the order in which the loops take them. A
lane's products of one group are summed in f32 and scaled once.

Small floats are taken by halves of words, which are f16 once sign and magnitude are moved: the loops have two
lanes a word, and half as many places. NaN that an f16 would be too wide for is looked for beside that, in
whole words, and makes the row's sum NaN."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from math import gcd

from ..formats.axes import Format
from ..ir.decode import decode, fits_half, half_factor, halves, nan_codes, runs, sign_bits
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import Packed
from ._activations import Plain

LANES = 32
"""Words side by side: a compiler unrolls loops of few trips before it looks for vectors, and finds none."""

ROWS = 64
"""Rows of weights that a block walks."""

AHEAD = 2048
"""Bytes by which codes are asked for before they are used: the loops are too long for a core to look past."""

WORD = 32


@dataclass(frozen=True)
class Words:
    """How the words of a row lie. A piece is the least run of elements whose codes are whole words, beginning
    at byte `first` of it and following each other; `elements[word][place]`: of a piece. A place is a shift
    in a word. segment: elements of constant scales; step: of the loop over them."""

    fmt: Format
    piece: int
    piece_bytes: int
    first: int
    places: tuple[int, ...]
    elements: tuple[tuple[int, ...], ...]
    segment: int
    step: int

    @property
    def each(self) -> int:
        """Elements of a word."""
        return len(self.places)

    @property
    def group(self) -> int:
        """Elements of a group."""
        return LANES * self.each

    @property
    def by_halves(self) -> bool:
        """Whether sums are of halves of words: every code has another 16 bits on, and an f16 holds it."""
        element = self.fmt.element
        if element.kind != "float" or self.fmt.zero or not fits_half(element):
            return False
        low = self.places[: self.each // 2]
        return self.places == (*low, *(16 + at for at in low)) and (
            element.signed or element.specials != "nan"
        )

    @property
    def lanes(self) -> int:
        """Of a group: sums that it adds to."""
        return 2 * LANES if self.by_halves else LANES

    def staged(self, word: Val, place: int) -> Val:
        """Where a group's activations hold the one for a place of a word."""
        if not self.by_halves:
            return word + place * LANES
        half, pair = divmod(place, self.each // 2)
        return word * 2 + (pair * self.lanes + half)

    @property
    def dense(self) -> bool:
        """Whether words follow each other from piece to piece."""
        return self.piece_bytes == 4 * len(self.elements)

    def tile(self, m: int, most_bytes: int) -> int:
        """Groups of a tile of `m` rows of activations: three quarters of the group memory."""
        return max(1, most_bytes * 3 // 4 // (4 * m * self.group))


@lru_cache(maxsize=512)
def words_of(fmt: Format) -> Words | None:
    """None where codes do not lie so."""
    layout, bits = fmt.layout, fmt.element.bits
    if WORD % bits or fmt.element.kind == "wide":
        return None
    piece = layout.unit * (WORD // gcd(layout.unit * bits, WORD))
    count, stride = piece * bits // WORD, piece // layout.unit * layout.unit_bytes
    if LANES % count or layout.chunk_elements % piece or (layout.inline and piece != layout.unit):
        return None
    codes = [
        [p + e // layout.unit * layout.unit_bytes * 8 for p in layout.positions[e % layout.unit]]
        for e in range(piece)
    ]
    first = min(min(code) for code in codes) // 8
    found = sorted((*divmod(code[0] - 8 * first, WORD), e) for e, code in enumerate(codes))
    words = [[(shift, e) for word, shift, e in found if word == w] for w in range(count)]
    places = tuple(shift for shift, _ in words[0])
    whole = all(len(runs(code)) == 1 and code[-1] // WORD == code[0] // WORD for code in _from(codes, first))
    if not whole or any(tuple(shift for shift, _ in word) != places for word in words):
        return None
    elements = tuple(tuple(e for _, e in word) for word in words)
    segment = gcd(*_columns(fmt), LANES * len(places))
    step = piece if layout.inline else segment
    words_made = Words(fmt, piece, stride, first, places, elements, gcd(segment, step), step)
    return words_made if _level(words_made) else None


def _from(codes: list[list[int]], first: int) -> list[list[int]]:
    return [[p - 8 * first for p in code] for code in codes]


def _columns(fmt: Format) -> list[int]:
    """Block lengths along K, 0 where a level spans the row."""
    blocks = [level.block for level in fmt.scales]
    return [block.cols for block in (*blocks, *([fmt.block] if fmt.zero else []))]


def _level(words: Words) -> bool:
    """Whether all elements of a word are of one segment, and segments of as many words follow each other."""
    if words.segment % words.each or words.step % words.segment:
        return False
    lanes, count = words.segment // words.each, len(words.elements)
    return all(
        (i // count * words.piece + e) // words.segment == i // lanes
        for i in range(LANES)
        for e in words.elements[i % count]
    )


@dataclass(frozen=True)
class Rows:
    """The walk of one block over its rows. m: rows of activations; groups: of a staged tile of each."""

    b: Builder
    words: Words
    w: Packed
    x: Plain
    y: Ref
    most: Val
    n: Val
    m: int
    groups: int

    @cached_property
    def staged(self) -> Ref:
        """[m][group][place][lane], f32, zero past the end."""
        return self.b.shared("activations", "f32", self.m * self.groups * self.words.group)

    def run(self) -> None:
        b, m, columns, lanes = self.b, self.m, self.w.columns(), self.words.lanes
        start = b.block() * ROWS
        end, rows = b.minimum(self.n, start + ROWS), b.const(m, "u32") if m == 1 else self.most
        totals = b.local("totals", "f32", ROWS * m)
        with b.loop(0, ROWS * m) as i:
            b.store(totals, i, 0.0)
        with b.loop(0, b.ceildiv(columns, self.words.group), self.groups) as first:
            count = b.minimum(b.ceildiv(columns, self.words.group) - first, self.groups)
            self._stage(first, count, rows)
            with b.loop(start, end) as row:
                sums, nans = b.local("sums", "f32", m * lanes), b.local("nans", "u32", LANES)
                with b.loop(0, m * lanes) as i:
                    b.store(sums, i, 0.0)
                with b.loop(0, LANES) as i:
                    b.store(nans, i, 0)
                whole = b.minimum(columns // self.words.group - first, count)
                with b.loop(0, whole) as group:
                    self._group(row, first + group, group, rows, (sums, nans), None)
                with b.when(whole < count):
                    rest = columns - (first + whole) * self.words.group
                    self._group(row, first + whole, whole, rows, (sums, nans), rest)
                nan = self._any_nan(nans)
                with b.loop(0, rows) as i:
                    at = (row - start) * m + i
                    total = b.load(totals, at) + self._sum(sums, i)
                    b.store(totals, at, total if nan is None else b.select(nan, math.nan, total))
        with b.loop(start, end) as row, b.loop(0, b.minimum(rows, self.most)) as i:
            at = i.cast("u64") * self.n.cast("u64") + row.cast("u64")
            b.store(self.y, at, b.load(totals, (row - start) * m + i).cast(self.y.dtype))

    def _sum(self, sums: Ref, row: Val) -> Val:
        """Of all lanes, by halves; in loops as long as they make vector instructions."""
        b, first, left = self.b, row * self.words.lanes, self.words.lanes
        while left > 8:
            left //= 2
            with b.loop(0, left) as i:
                b.store(sums, first + i, b.load(sums, first + i) + b.load(sums, first + i + left))
        parts = [b.load(sums, first + i) for i in range(left)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [one + other for one, other in zip(parts[:half], parts[half:])]
        return parts[0]

    def _any_nan(self, nans: Ref) -> Val | None:
        """Whether words had NaN that `halves` makes numbers; None where there is no such code."""
        b, words = self.b, self.words
        if not words.by_halves or words.fmt.element.specials != "nan":
            return None
        found = reduce(operator.or_, [b.load(nans, i) for i in range(LANES)])
        return (found & sign_bits(words.fmt.element)).ne(0)

    def _stage(self, first: Val, count: Val, rows: Val) -> None:
        b, words = self.b, self.words
        per, run = len(words.elements), gcd(words.piece, 8)
        into = b.local("vector", "f32", run)
        with b.loop(0, rows) as m, b.loop(0, count) as group:
            line = self.x.row(m)
            tile = b.at(self.staged, (m * self.groups + group) * words.group)
            with b.loop(0, LANES // per) as piece:
                for start in range(0, words.piece, run):
                    column = (first + group) * words.group + piece * words.piece + start
                    self.x.load(m, line, column, into, run)
                    for word, elements in enumerate(words.elements):
                        for place, e in enumerate(elements):
                            if start <= e < start + run:
                                at = words.staged(piece * per + word, place)
                                b.store(tile, at, b.load(into, e - start))

    def _group(
        self, row: Val, group: Val, here: Val, rows: Val, into: tuple[Ref, Ref], rest: Val | None
    ) -> None:
        """Adds one group's products. into: sums, and words that note NaN. rest: elements that there are of
        it, where it is not whole."""
        b, words = self.b, self.words
        field, own = self.w.place("codes", row)
        line = b.at(field, own.cast("u64") * self.w.pitches["codes"].cast("u64"))
        size = LANES // len(words.elements) * words.piece_bytes
        codes = b.at(line, group * size, (AHEAD, size) if rest is None else None)
        scales, zeros = self._scales(row, group, codes, rest)
        held = None if words.dense and rest is None else self._hold(codes, rest)

        def word(lane: Val) -> Val:
            if held is not None:
                return b.load(held, lane)
            return b.load_words(codes, lane * 4 + words.first, 1)

        if words.by_halves:
            self._by_halves(word, here, rows, into, scales)
            return
        sums, _ = into
        if self.m == 1:
            x = b.at(self.staged, here * words.group)
            with b.loop(0, LANES) as lane:
                self._add(sums, lane, self._values(word(lane), lane, scales, zeros), x, lane, scales)
            return
        values = b.local("values", "f32", words.group)
        with b.loop(0, LANES) as lane:
            for place, value in enumerate(self._values(word(lane), lane, scales, zeros)):
                b.store(values, lane + place * LANES, value)
        with b.loop(0, rows) as m:
            x, mine = b.at(self.staged, (m * self.groups + here) * words.group), b.at(sums, m * LANES)
            with b.loop(0, LANES) as lane:
                loaded = [b.load(values, lane + place * LANES) for place in range(words.each)]
                self._add(mine, lane, loaded, x, lane, scales)

    def _by_halves(
        self, word: Callable[[Val], Val], here: Val, rows: Val, into: tuple[Ref, Ref], scales: Ref
    ) -> None:
        """word: of a lane."""
        b, words, element, (sums, nans) = self.b, self.words, self.words.fmt.element, into
        low, lanes = words.places[: words.each // 2], words.lanes
        pairs = [b.local("pairs", "u32", LANES) for _ in low]
        with b.loop(0, LANES) as lane:
            own = word(lane)
            for pair, at in zip(pairs, low):
                b.store(pair, lane, halves(b, element, own, at))
            nan = nan_codes(element, own)
            if nan is not None:
                b.store(nans, lane, b.load(nans, lane) | nan)
        products = b.local("products", "f32", lanes)
        with b.loop(0, rows) as m:
            with b.loop(0, lanes) as lane:
                b.store(products, lane, 0.0)
            for i, pair in enumerate(pairs):
                tile = (m * self.groups + here) * words.group + i * lanes
                b.mad_halves(products, pair, b.at(self.staged, tile))
            with b.loop(0, lanes) as lane:
                total, into_sum = b.load(products, lane) * half_factor(element), m * lanes + lane
                before = b.load(sums, into_sum)
                scaled = b.mad(total, b.load(scales, lane), before) if words.fmt.scales else total + before
                b.store(sums, into_sum, scaled)

    def _add(self, sums: Ref, at: Val, values: list[Val], x: Ref, lane: Val, scales: Ref) -> None:
        """sums += scale * (the products of a lane)."""
        b, fmt = self.b, self.words.fmt
        total = values[0] * b.load(x, lane)
        for place, value in enumerate(values[1:], 1):
            total = b.mad(value, b.load(x, lane + place * LANES), total)
        if self._scaled(fmt):
            b.store(sums, at, b.mad(total, b.load(scales, lane), b.load(sums, at)))
        else:
            b.store(sums, at, total + b.load(sums, at))

    @staticmethod
    def _scaled(fmt: Format) -> bool:
        """Whether sums are scaled, and not the weights."""
        return bool(fmt.scales) and (fmt.zero is None or fmt.zero.domain == "code")

    def _values(self, word: Val, lane: Val, scales: Ref, zeros: Ref) -> list[Val]:
        b, fmt = self.b, self.words.fmt
        bits = [list(range(shift, shift + fmt.element.bits)) for shift in self.words.places]
        values = [self.w.exact(v) for v in decode(b, fmt.element, [word], bits, self.w.target)]
        if fmt.zero is None:
            return values
        if fmt.zero.domain == "code":
            return [value - b.load(zeros, lane) for value in values]
        return [b.fma(value, b.load(scales, lane), b.load(zeros, lane)) for value in values]

    def _scales(self, row: Val, group: Val, codes: Ref, rest: Val | None) -> tuple[Ref, Ref]:
        """Of every lane."""
        b, words, zero = self.b, self.words, self.words.fmt.zero
        scales, zeros = b.local("scales", "f32", words.lanes), b.local("zeros", "f32", words.lanes)
        count = b.const(words.group // words.step, "u32")
        if rest is not None:
            count = b.ceildiv(rest, words.step)
            with b.loop(0, words.lanes) as i:
                b.store(scales, i, 0.0)
                b.store(zeros, i, 0.0)
        each = words.group // words.lanes
        with b.loop(0, count) as step:
            view = self._view(codes, step) if words.fmt.layout.inline else []
            for at in range(0, words.step, words.segment):
                k = group * words.group + step * words.step + at
                scale, offset = self.w.scale(row, k, view, at), self.w.zero(row, k, view, at)
                first = step * (words.step // each) + at // each
                with b.loop(0, words.segment // each, unroll=True) as i:
                    b.store(scales, first + i, 1.0 if scale is None else scale)
                    if zero is not None and offset is not None:
                        b.store(zeros, first + i, offset)
        return scales, zeros

    def _view(self, codes: Ref, piece: Val) -> list[Val]:
        """The words of a unit, from bytes, as it need not begin or end at a word; those unused vanish."""
        b, size = self.b, self.words.piece_bytes
        loaded = [b.load(codes, piece * size + i).cast("u32") << (8 * (i % 4)) for i in range(size)]
        found = []
        for i in range(0, size, 4):
            word = loaded[i]
            for byte in loaded[i + 1 : i + 4]:
                word = word | byte
            found.append(word)
        return found

    def _hold(self, codes: Ref, rest: Val | None) -> Ref:
        """The group's words, 0 past the row's last piece."""
        b, words = self.b, self.words
        held, per = b.local("held", "u32", LANES), len(words.elements)
        count = b.const(LANES // per, "u32")
        if rest is not None:
            count = b.ceildiv(rest, words.piece)
            with b.loop(0, LANES) as lane:
                b.store(held, lane, 0)
        with b.loop(0, count) as piece:
            for i in range(per):
                # A copy of bytes in this language: a piece need not begin at a word.
                word = b.load_words(codes, piece * words.piece_bytes + (words.first + 4 * i), 1)
                b.store(held, piece * per + i, word)
        return held
