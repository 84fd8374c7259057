"""Direct convolution: what its kernels share.

A block has some output channels of one group (`rows`) at some positions of one sample. It stages weights in
group memory as f32, a part of the receptive field at a time, beside a table of where each number of that part
lies in x; its threads read x themselves, zero outside, and keep `rows` sums for each of `each` positions.
Sums are f32, with one rounding at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ..axes import Format
from ..dsl import Builder, Val
from ..family import Formula, Operand, Scalar, Variant
from ..ir import Ref
from ..packed import Packed, steps
from ..target import Target
from ..vectors import load_scalar, load_vector
from .qmm import stage_of

AXES = ("d", "h", "w")
QUAD = 4
DEPTH = 64
"""Numbers of a receptive field that are staged at once, where no format says otherwise."""


# ------------------------------------------------------------ the problem
def taps(axis: str) -> str:
    return f"kernel_{axis}"


def _extent(axis: str) -> Formula:
    """(d + 2 padding - dilation (kernel - 1) - 1) // stride + 1."""
    padded = ["add", axis, ["mul", 2, f"padding_{axis}"]]
    reach = ["add", ["mul", f"dilation_{axis}", ["sub", taps(axis), 1]], 1]
    return ["add", ["div", ["sub", padded, reach], f"stride_{axis}"], 1]


def product(*factors: Formula) -> Formula:
    """Of two or more."""
    first, *rest = factors
    return ["mul", first, product(*rest) if len(rest) > 1 else rest[0]]


CHANNELS: Formula = ["div", "c", "groups"]
FIELD = product(CHANNELS, *map(taps, AXES))
"""Numbers of a receptive field."""
EXTENTS: dict[str, Formula] = {
    **{f"out_{axis}": _extent(axis) for axis in AXES},
    "field": FIELD,
    "group": product(CHANNELS, *AXES),
    "positions": product(*map(_extent, AXES)),
}
SCALARS = (
    *(Scalar(f"stride_{axis}", "u32", 1) for axis in AXES),
    *(Scalar(f"padding_{axis}", "u32", 0) for axis in AXES),
    *(Scalar(f"dilation_{axis}", "u32", 1) for axis in AXES),
    Scalar("groups", "u32", 1),
)
MOST = 2**31 - 1
LIMITS = {
    "b": (0, MOST),
    **dict.fromkeys(("c", "o", *AXES, "field", "positions", "groups"), (1, MOST)),
    **{f"{name}_{axis}": (1, MOST) for name in ("kernel", "stride", "dilation", "out") for axis in AXES},
    **{f"padding_{axis}": (0, 2**30) for axis in AXES},
    "group": (1, 2**32 - 1),
}
"""A sample's numbers of a group are counted in 32 bits; samples and groups are not."""
X = Operand("x", "array", ("b", "c", *AXES))
BIAS = Operand("bias", "array", ("o",), optional=True)
Y = Operand("y", "array", ("b", "o", *(f"out_{axis}" for axis in AXES)))
OMISSIBLE = tuple(name for axis in AXES[:-1] for name in (axis, taps(axis), f"out_{axis}"))
EVEN: tuple[Formula, ...] = (["eq", ["mod", "c", "groups"], 0], ["eq", ["mod", "o", "groups"], 0])


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


def declare(b: Builder, taps_role: str) -> Problem:
    """The arguments of a convolution. taps_role: "shape" where an operand has the kernel's extents as axes,
    "scalar" where the call says them."""
    c, o = b.scalar("c"), b.scalar("o")
    groups = b.scalar("groups", role="scalar")
    size, kernel = [b.scalar(axis) for axis in AXES], [b.scalar(taps(axis), role=taps_role) for axis in AXES]
    out = [b.scalar(f"out_{axis}") for axis in AXES]
    stride, padding, dilation = (
        [b.scalar(f"{name}_{axis}", role="scalar") for axis in AXES]
        for name in ("stride", "padding", "dilation")
    )
    return Problem(c, o, groups, size, kernel, out, stride, padding, dilation)


# ------------------------------------------------------------ blocks
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

    def grid(self, groups: Formula) -> Formula:
        rows: Formula = ["ceildiv", ["div", "o", groups], self.rows]
        return product("b", groups, rows, ["ceildiv", "positions", self.threads * self.each])


DEPTHWISE: Formula = ["eq", "o", "groups"]
SMALL: Formula = ["le", "positions", 1024]


def tiles(target: Target, depthwise: bool) -> Iterator[Tile]:
    """The first whose conditions hold is taken."""
    threads, each = (128, 4) if target.simd > 1 else (1, 64)
    if depthwise:
        yield Tile("depthwise", threads, 1, each, (DEPTHWISE,))
    if threads > 1:
        yield Tile("small", 64, 16, 1, (SMALL,), 8)
    yield Tile("", threads, 16, each, resident=3 if threads > 1 else 0)


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


# ------------------------------------------------------------ a block's work
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


def variants_of(
    operands: Callable[[Builder, Tile], Work],
    target: Target,
    options: dict[str, str],
    groups: Formula = "groups",
    even: tuple[Formula, ...] = EVEN,
) -> Iterable[Variant]:
    """operands: declares the arguments, and gives a block's work."""
    for tile in tiles(target, groups == "groups"):
        grid = tile.grid(groups)
        when = (*even, ["lt", grid, 2**31], *tile.when)

        def build(b: Builder, tile: Tile = tile) -> None:
            b.function.min_blocks = tile.resident
            operands(b, tile).run()

        yield Variant(tile.suffix, tile.threads, (grid, 1, 1), build, when, options)
