"""The weights of a direct convolution: how a block stages some rows of them in group memory, as f32, a part
of the receptive field at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import Packed, steps
from ..ir.vectors import load_scalar
from ..manifest.target import Target
from ..variants.family import Formula
from .qmm import stage_of

QUAD = 4
DEPTH = 64
"""Numbers of a receptive field that are staged at once, where no format says otherwise."""


@dataclass(frozen=True)
class Tile:
    """rows: output channels of a block; each: positions of a thread; resident: blocks that a multiprocessor
    should hold at once, 0 where that is left to the compiler."""

    suffix: str
    threads: int
    rows: int
    each: int
    when: tuple[Formula, ...] = ()
    resident: int = 0

    @property
    def pitch(self) -> int:
        """Between the staged weights of two numbers of the field: lanes that stage reach other banks."""
        return self.rows if self.rows < QUAD or self.threads == 1 else self.rows + QUAD


class Weights(Protocol):
    """The matrix [o, field]. depth: numbers of a row that are staged at once; parts: stages of a round."""

    @property
    def depth(self) -> int: ...
    @property
    def parts(self) -> int: ...
    def fill(
        self, field: Val, row: Callable[[Val], Val], first: Val, part: int, into: Ref, tile: Tile
    ) -> None:
        """into[t * pitch + r] = the weight at (row(r), first + t), or anything past the field's end. first:
        of the round."""


@dataclass(frozen=True)
class Dense:
    """Weights of a plain type."""

    b: Builder
    ref: Ref
    depth: int = DEPTH
    parts: int = 1

    def fill(
        self, field: Val, row: Callable[[Val], Val], first: Val, part: int, into: Ref, tile: Tile
    ) -> None:
        b = self.b
        with b.loop(b.thread(), tile.rows * DEPTH, tile.threads) as item:
            r, t = item // DEPTH, item % DEPTH
            with b.when(first + t < field):
                line = b.at(self.ref, row(r).cast("u64") * field.cast("u64"))
                b.store(into, t * tile.pitch + r, load_scalar(b, line, first + t))


class Quantised:
    """Weights of a format, decoded as they are staged."""

    def __init__(self, b: Builder, fmt: Format, target: Target) -> None:
        self.b, self.stage = b, stage_of(steps(fmt))
        self.w = Packed(b, fmt, target, self.stage.walk, "weight")
        self.depth, self.parts = self.stage.depth, self.stage.pieces

    def fill(
        self, field: Val, row: Callable[[Val], Val], first: Val, part: int, into: Ref, tile: Tile
    ) -> None:
        """Decodes a chunk, or its part, an item; chunks past the end repeat the last."""
        b, w, stage, walk = self.b, self.w, self.stage, self.stage.walk
        words = b.local("words", "u32", walk.chunk_words)
        with b.loop(b.thread(), tile.rows * stage.chunks, tile.threads) as item:
            r, at_chunk = item // stage.chunks, item % stage.chunks
            chunk = b.minimum(first // walk.chunk + at_chunk, w.chunks() - 1)
            w.load_chunk(row(r), chunk, words, 0)
            for step, at in stage.vectors(b, part):
                view = w.view(words, step * walk.step_words, walk.step_words)
                inside = step * walk.step + at
                k = chunk * walk.chunk + inside
                scale, zero = w.scale(row(r), k, view, at), w.zero(row(r), k, view, at)
                place = at_chunk * walk.chunk + (inside - part * stage.depth)
                for i, value in enumerate(w.decode(view, at, walk.vector)):
                    b.store(into, (place + i) * tile.pitch + r, w.apply(value, scale, zero))
