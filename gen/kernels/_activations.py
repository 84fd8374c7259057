"""How a vector kernel reaches its activations: plain or quantised, from global or from group memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import Packed, Steps
from ..ir.vectors import load_ragged, load_vector, store_vector


@dataclass(frozen=True)
class Plain:
    """Activations of a plain type."""

    b: Builder
    ref: Ref
    m: Val
    k: Val

    def row(self, m: Val) -> Ref:
        """Row m, kept inside the matrix."""
        return self.b.at(self.ref, self.b.minimum(m, self.m - 1).cast("u64") * self.k.cast("u64"))

    def prepare(self) -> None:
        """Comes first in a kernel; every thread of the block takes part."""

    def load(self, m: Val, line: Ref, first: Val, into: Ref, count: int) -> None:
        """`count` numbers of row m, which is `line`, from column `first`, 0 past the end."""
        load_ragged(self.b, line, first, self.k, self.ref.dtype, into, count)

    def read(self, walk: Steps, m: Val, chunk: Val, step: Val, at: int, into: Ref) -> None:
        """into[0:vector] = x[m, ...] from element `at` of a chunk's step, 0 past the end."""
        offset, line = step * walk.step + at, self.row(m)
        self.load(m, line, chunk * walk.chunk + offset, into, walk.vector)

    def stage(self, staged: Staged, first: Val) -> None:
        """Fills the tile of group memory that begins at chunk `first`."""
        b, walk = self.b, staged.walk
        vector = b.local("vector", "f32", walk.vector)
        stride = b.simd * staged.groups * walk.vector
        with b.loop(0, staged.m) as m:
            line = self.row(m)
            with b.loop(b.thread() * walk.vector, staged.row, stride) as at:
                self.load(m, line, first * walk.chunk + at, vector, walk.vector)
                for i in range(0, walk.vector, staged.quad):
                    place = staged.place(m, at // walk.chunk, at % walk.chunk + i)
                    values = [b.load(vector, i + j) for j in range(staged.quad)]
                    store_vector(b, staged.shared, place, "f32", values)


@dataclass(frozen=True)
class Coded:
    """Quantised activations, whose chunks are those of the weights."""

    b: Builder
    x: Packed
    m: Val
    k: Val

    def prepare(self) -> None:
        """Nothing has to come first."""

    def read(self, walk: Steps, m: Val, chunk: Val, step: Val, at: int, into: Ref) -> None:
        words = self.b.local("x_words", "u32", walk.chunk_words)
        row = self._load(m, chunk, words)
        for i, value in enumerate(self._values(walk, row, chunk, words, step, at)):
            self.b.store(into, i, value)

    def stage(self, staged: Staged, first: Val) -> None:
        b, walk, threads = self.b, staged.walk, self.b.simd * staged.groups
        words = b.local("x_words", "u32", walk.chunk_words)
        with b.loop(0, staged.m) as m, b.loop(b.thread(), b.simd * staged.waves, threads) as c:
            chunk = b.minimum(first + c, self.x.chunks() - 1)
            row = self._load(m, chunk, words)
            with b.loop(0, walk.chunk // walk.step, unroll=True) as step:
                for at in range(0, walk.step, walk.vector):
                    values = self._values(walk, row, chunk, words, step, at)
                    for i in range(0, walk.vector, staged.quad):
                        place = staged.place(m, c, step * walk.step + (at + i))
                        store_vector(b, staged.shared, place, "f32", values[i : i + staged.quad])

    def _load(self, m: Val, chunk: Val, words: Ref) -> Val:
        row = self.b.minimum(m, self.m - 1)
        self.x.load_chunk(row, chunk, words, 0)
        return row

    def _values(self, walk: Steps, row: Val, chunk: Val, words: Ref, step: Val, at: int) -> list[Val]:
        """`vector` numbers from element `at` of a step, 0 past the end."""
        b, x = self.b, self.x
        view = x.view(words, step * walk.step_words, walk.step_words)
        k = chunk * walk.chunk + (step * walk.step + at)
        scale, zero = x.scale(row, k, view, at), x.zero(row, k, view, at)
        values = [x.apply(value, scale, zero) for value in x.decode(view, at, walk.vector)]
        return [b.select(k + i < self.k, value, 0.0) for i, value in enumerate(values)]


@dataclass(frozen=True)
class Direct:
    """Activations from global memory."""

    x: Plain | Coded
    walk: Steps

    def read(self, m: Val, chunk: Val, step: Val, at: int, into: Ref) -> None:
        self.x.read(self.walk, m, chunk, step, at, into)


@dataclass(frozen=True)
class Staged:
    """`m` rows of activations in group memory, shared by `groups` SIMD groups, as f32 and zero past the end.
    Quads (fewer elements where vectors are odd) that the lanes of a group read together are neighbours there
    ([m][wave][quad of the chunk][lane]): no bank conflicts."""

    b: Builder
    x: Plain | Coded
    walk: Steps
    m: int
    waves: int
    groups: int

    @cached_property
    def shared(self) -> Ref:
        return self.b.shared("activations", "f32", self.m * self.row)

    @property
    def row(self) -> int:
        return self.waves * self.b.simd * self.walk.chunk

    @property
    def quad(self) -> int:
        return math.gcd(self.walk.vector, 4)

    def place(self, m: Val, chunk: Val, offset: Val) -> Val:
        """Where the quad at `offset` of a chunk of the tile lies."""
        simd, quads = self.b.simd, self.walk.chunk // self.quad
        slot = (chunk // simd * quads + offset // self.quad) * simd + chunk % simd
        return m * self.row + slot * self.quad

    def stage(self, first: Val) -> None:
        """Fills the tile that begins at chunk `first`; every thread of the block takes part."""
        self.b.barrier()  # the tile before this one has been read
        self.x.stage(self, first)
        self.b.barrier()

    def read(self, m: Val, chunk: Val, step: Val, at: int, into: Ref) -> None:
        b, offset = self.b, step * self.walk.step + at
        chunk = chunk % (self.b.simd * self.waves)
        for i in range(0, self.walk.vector, self.quad):
            place = self.place(m, chunk, offset + i)
            for j, value in enumerate(load_vector(b, self.shared, place, "f32", self.quad)):
                b.store(into, i + j, value)
