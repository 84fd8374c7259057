"""What a block of a direct convolution does: some output channels of a group, at some positions of a sample.

Beside the weights it stages a table of where each number of a part of the receptive field lies in x. Its
threads read x themselves, zero outside, and keep `rows` sums for each of `each` positions. Sums are f32, with
one rounding at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.vectors import load_scalar, load_vector
from ._conv_weights import QUAD, Tile, Weights

AXES = ("d", "h", "w")


@dataclass(frozen=True)
class Problem:
    """Numbers of a launch, by axis where there are several. out: positions along it; patches: y[b, position,
    o] in place of y[b, o, position]."""

    c: Val
    o: Val
    groups: Val
    size: list[Val]
    kernel: list[Val]
    out: list[Val]
    stride: list[Val]
    padding: list[Val]
    dilation: list[Val]
    patches: bool = False

    @property
    def field(self) -> Val:
        return self.c // self.groups * self.kernel[0] * self.kernel[1] * self.kernel[2]

    @property
    def positions(self) -> Val:
        return self.out[0] * self.out[1] * self.out[2]


@dataclass(frozen=True)
class Work:
    b: Builder
    tile: Tile
    p: Problem
    weights: Weights
    x: Ref
    bias: Ref
    y: Ref
    has_bias: Val

    @property
    def unroll(self) -> bool:
        """Where registers hold sums and positions; a lone thread's compiler makes vectors of the loops."""
        return self.b.simd > 1

    @cached_property
    def place(self) -> tuple[Val, Val, Val, Val]:
        """(sample, group, first row of the group, first position) of this block."""
        b, tile, p = self.b, self.tile, self.p
        parts = b.ceildiv(p.positions, tile.threads * tile.each)
        rows = b.ceildiv(p.o // p.groups, tile.rows)
        block = b.block()
        at, rest = block % parts, block // parts
        return (
            rest // rows // p.groups,
            rest // rows % p.groups,
            rest % rows * tile.rows,
            at * (tile.threads * tile.each),
        )

    def position(self, j: Val) -> Val:
        return self.place[3] + j * self.tile.threads + self.b.thread()

    def run(self) -> None:
        b, tile, p, weights = self.b, self.tile, self.p, self.weights
        sample, group, row0, _ = self.place
        channels, per_group, field = p.c // p.groups, p.o // p.groups, p.field
        size = (channels * p.size[0] * p.size[1] * p.size[2]).cast("u64")
        x = b.at(self.x, (sample.cast("u64") * p.groups.cast("u64") + group.cast("u64")) * size)
        staged = b.shared("weights", "f32", weights.depth * tile.pitch)
        table = b.shared("table", "u32", weights.depth * QUAD)
        sums = b.local("sums", "f32", tile.rows * tile.each)
        with b.loop(0, tile.rows * tile.each, unroll=self.unroll) as i:
            b.store(sums, i, 0.0)
        starts, bases = self._starts()

        def row(r: Val) -> Val:
            """Rows past the end repeat the last, and are not stored."""
            return group * per_group + b.minimum(row0 + r, per_group - 1)

        with b.loop(0, field, weights.depth * weights.parts) as first:
            for part in range(weights.parts):
                start = first + part * weights.depth
                weights.fill(field, row, first, part, staged, tile)
                count = b.minimum(b.select(start < field, field - start, 0), weights.depth)
                self._fill_table(start, count, table)
                b.barrier()
                with b.loop(0, count) as t:
                    self._multiply(x, t, staged, table, starts, bases, sums)
                b.barrier()
        self._store(sums, group * per_group, row0, per_group, sample)

    def _starts(self) -> tuple[list[Ref], Ref]:
        """Of each position of this thread, the first place of its field along each axis (below zero: modulo
        2^32) and in the group; positions past the end repeat the last, and are not stored."""
        b, tile, p = self.b, self.tile, self.p
        starts = [b.local(f"start_{axis}", "u32", tile.each) for axis in AXES]
        bases = b.local("base", "u32", tile.each)
        with b.loop(0, tile.each, unroll=self.unroll) as j:
            at = b.minimum(self.position(j), p.positions - 1)
            places = [at // p.out[2] // p.out[1], at // p.out[2] % p.out[1], at % p.out[2]]
            found = [place * s - pad for place, s, pad in zip(places, p.stride, p.padding)]
            for ref, value in zip(starts, found):
                b.store(ref, j, value)
            b.store(bases, j, (found[0] * p.size[1] + found[1]) * p.size[2] + found[2])
        return starts, bases

    def _fill_table(self, first: Val, count: Val, table: Ref) -> None:
        """Four words for each of `count` numbers of the field from `first`: how far it lies from the field's
        start along the axes, and in the group."""
        b, p = self.b, self.p
        with b.loop(b.thread(), count, self.tile.threads) as t:
            k = first + t
            across, rest = k % p.kernel[2], k // p.kernel[2]
            down, rest = rest % p.kernel[1], rest // p.kernel[1]
            deep, channel = rest % p.kernel[0], rest // p.kernel[0]
            steps_ = [at * dilation for at, dilation in zip((deep, down, across), p.dilation)]
            lines = (channel * p.size[0] + steps_[0]) * p.size[1] + steps_[1]
            b.store_words(table, t * QUAD, [*steps_, lines * p.size[2] + steps_[2]])

    def _multiply(
        self, x: Ref, t: Val, staged: Ref, table: Ref, starts: list[Ref], bases: Ref, sums: Ref
    ) -> None:
        """sums += weights * x for one number of the field."""
        b, tile, p = self.b, self.tile, self.p
        numbers = b.local("numbers", "f32", tile.each)
        entry = b.load_words(table, t * QUAD, QUAD)
        with b.loop(0, tile.each, unroll=self.unroll) as j:
            b.store(numbers, j, 0.0)
            inside = [b.load(ref, j) + entry.word(i) < p.size[i] for i, ref in enumerate(starts)]
            with b.when(inside[0] & inside[1] & inside[2]):
                b.store(numbers, j, load_scalar(b, x, b.load(bases, j) + entry.word(3)))
        count = min(QUAD, tile.rows)
        with b.loop(0, tile.rows // count, unroll=self.unroll) as quad:
            at = t * tile.pitch + quad * count
            some = load_vector(b, staged, at, "f32", count) if count > 1 else [b.load(staged, at)]
            for i, weight in enumerate(some):
                first = (quad * count + i) * tile.each
                with b.loop(0, tile.each, unroll=self.unroll) as j:
                    b.store(sums, first + j, b.mad(weight, b.load(numbers, j), b.load(sums, first + j)))

    def _store(self, sums: Ref, group_row: Val, row0: Val, per_group: Val, sample: Val) -> None:
        b, tile, p, dtype = self.b, self.tile, self.p, self.y.dtype
        y = b.at(self.y, sample.cast("u64") * p.o.cast("u64") * p.positions.cast("u64"))
        with b.loop(0, tile.rows, unroll=self.unroll) as r, b.when(row0 + r < per_group):
            row = group_row + row0 + r
            line = None if p.patches else b.at(y, row.cast("u64") * p.positions.cast("u64"))
            shift = b.var("shift", 0.0)
            with b.when(self.has_bias.ne(0)):
                shift.set(load_scalar(b, self.bias, row))
            with b.loop(0, tile.each, unroll=self.unroll) as j:
                at = self.position(j)
                with b.when(at < p.positions):
                    value = (b.load(sums, r * tile.each + j) + shift.get()).cast(dtype)
                    if line:
                        b.store(line, at, value)
                    else:
                        b.store(b.at(y, at.cast("u64") * p.o.cast("u64")), row, value)
