"""Kernels over the rows of an array: how the threads that share a row hold it, reduce it and write it.

Short rows go to a SIMD group each, longer ones to a block; both are read once and held in registers, 16 bytes
an access. Rows that are longer still, or that are no whole number of such vectors, are read again for every
pass: from the caches, where they fit there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from ..formats.axes import Format
from ..ir.collective import Combine, Tuple, block_reduce, lane_reduce
from ..ir.dsl import Builder, Val, Var
from ..ir.nodes import DTYPES, Ref
from ..ir.vectors import load_scalar, load_vector, store_vector
from ..manifest.target import Target
from ..variants.family import Formula, Variant
from ..variants.tiles import Cost, Lattice, Point

Map = Callable[[Val], Val]
Read = Callable[[Val], list[Val]]
GROUPS = 4
"""SIMD groups of a block whose rows have one each."""
HELD = 32
"""f32 numbers of a row that a thread holds."""
RUN = 256
"""Accesses whose numbers a lone thread adds up before it adds their sum to the others."""
SHORT = 512
"""Rows up to which a SIMD group is enough to reduce one."""


@dataclass(frozen=True)
class Share:
    """How rows are shared out. threads: of a block; lanes: that have a row together; count: neighbours of an
    access; vectors: accesses whose numbers a thread holds, 0 where it reads them anew; most: the longest row,
    where it is not what is held."""

    suffix: str
    threads: int
    lanes: int
    count: int
    vectors: int = 0
    most: int = 0

    @property
    def grid(self) -> tuple[Formula, Formula, Formula]:
        rows = self.threads // self.lanes
        return (["ceildiv", "m", rows] if rows > 1 else "m", 1, 1)

    @property
    def when(self) -> tuple[Formula, ...]:
        aligned: tuple[Formula, ...] = (["eq", ["mod", "n", self.count], 0],) if self.count > 1 else ()
        most = self.most or self.lanes * self.count * self.vectors
        return (*aligned, ["le", "n", most]) if most else aligned


LIMITS = {"m": (0, 2**31 - 1), "n": (1, 2**31 - 1)}
"""Rows, and their length."""


def shares(dtype: str, target: Target) -> Iterator[Share]:
    """For kernels that need a row more than once."""
    count = 16 // DTYPES[dtype]
    if target.simd > 1:
        held = HELD // count
        yield Share("warp", GROUPS * target.simd, target.simd, count, held)
        yield Share("block", 256, 256, count, held)
        yield Share("long", 1024, 1024, count)
        yield Share("any", 256, 256, 1)
        return
    yield Share("long", 1, 1, count)
    yield Share("any", 1, 1, 1)


def lattice(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Lattice:
    """Every way in which `shares` and `passes_once` could share rows out."""
    if target.simd == 1:
        return Lattice({"lanes": (1,), "count": (16 // DTYPES[dtype], 1)}, lambda point: Cost(1, 0, 0))
    axes = {
        "lanes": (target.simd, 256, 512, 1024),
        "count": (16 // DTYPES[dtype], 1),
        "held": (HELD, 0),
    }
    return Lattice(axes, lambda point: _cost(point, target))


def _cost(point: Point, target: Target) -> Cost | str:
    """Registers: numbers that are held, those of an access, and 24 for places and sums. Shared memory: two
    partial results of each SIMD group."""
    if point["held"] and point["count"] == 1:
        return f"{point['held']} accesses of one number: a row is held where it is read by vectors"
    threads = GROUPS * target.simd if point["lanes"] == target.simd else point["lanes"]
    shared = 8 * threads // target.simd if point["lanes"] == threads else 0
    return Cost(threads, point["held"] + point["count"] + 24, shared)


def passes_once(dtype: str, target: Target) -> Iterator[Share]:
    """For kernels that need a row once."""
    if target.simd > 1:
        yield Share("warp", GROUPS * target.simd, target.simd, 1, most=SHORT)
        yield Share("block", 256, 256, 16 // DTYPES[dtype])
        yield Share("any", 256, 256, 1)
        return
    yield Share("any", 1, 1, 1)


def load(b: Builder, ref: Ref, first: Val, count: int) -> list[Val]:
    """One number, or an aligned vector of them."""
    return load_vector(b, ref, first, ref.dtype, count) if count > 1 else [load_scalar(b, ref, first)]


def store(b: Builder, ref: Ref, first: Val, values: Sequence[Val]) -> None:
    """One number, or an aligned vector of them."""
    if len(values) == 1:
        b.store(ref, first, values[0].cast(ref.dtype))
    else:
        store_vector(b, ref, first, ref.dtype, values)


@dataclass
class Row:
    """One row of n elements in the hands of `share.lanes` threads, this one among them."""

    b: Builder
    share: Share
    n: Val
    index: Val
    place: Val  # of this thread among them

    def at(self, ref: Ref) -> Ref:
        """The row in a buffer of [m, n]."""
        return self.b.at(ref, self.index.cast("u64") * self.n.cast("u64"))

    def source_of(self, ref: Ref) -> Source:
        """The row of a buffer of [m, n]."""
        line = self.at(ref)
        return self.source(lambda first: self.load(line, first))

    # ---- the elements of this thread
    def each(self, body: Callable[[Val, Val], None]) -> None:
        """body(first, slot) for every access: its first element, and the first of the numbers held."""
        b, share = self.b, self.share
        step = share.lanes * share.count
        if not share.vectors:
            with b.loop(self.place * share.count, self.n, step) as first:
                body(first, b.const(0, "u32"))
            return
        with b.loop(0, share.vectors, unroll=True) as i:
            first = self.place * share.count + i * step
            with b.when(first < self.n):
                body(first, i * share.count)

    def source(self, read: Read, again: Read | None = None) -> Source:
        """The row as `read(first)` gives it, `count` numbers at a time: at once if it is held. again: how it
        is read after a first time, which then comes now."""
        if not self.share.vectors:
            if again:
                self.each(lambda first, slot: _drop(read(first)))
            return Source(self, again or read, None)
        held = self.b.local("held", "f32", self.share.vectors * self.share.count)

        def fill(first: Val, slot: Val) -> None:
            for i, value in enumerate(read(first)):
                self.b.store(held, slot + i, value)

        self.each(fill)
        return Source(self, read, held)

    def load(self, ref: Ref, first: Val) -> list[Val]:
        return load(self.b, ref, first, self.share.count)

    def write(self, to: Ref, source: Source, function: Callable[..., Val], *columns: Ref) -> None:
        """to[i] = function(source[i], column[i], ...), `to` being a row and each column a buffer of [n]."""

        def body(first: Val, slot: Val) -> None:
            beside = [self.load(column, first) for column in columns]
            self.store(to, first, [function(*row) for row in zip(source.values(first, slot), *beside)])

        self.each(body)

    def store(self, ref: Ref, first: Val, values: Sequence[Val]) -> None:
        store(self.b, ref, first, values)

    # ---- with the other threads
    def combine(self, values: Tuple, combine: Combine) -> Tuple:
        if self.share.lanes == self.share.threads:
            return block_reduce(self.b, values, combine)
        return lane_reduce(self.b, values, combine)


@dataclass
class Source:
    """Numbers of a row, in registers (`held`) or to be read."""

    row: Row
    read: Read
    held: Ref | None

    def values(self, first: Val, slot: Val) -> list[Val]:
        if self.held is None:
            return self.read(first)
        return [self.row.b.load(self.held, slot + i) for i in range(self.row.share.count)]

    def map(self, function: Map) -> Source:
        """The same row through a function, which takes the place of what was held."""
        if self.held is None:
            return Source(self.row, lambda first: [function(v) for v in self.read(first)], None)
        held = self.held

        def replace(first: Val, slot: Val) -> None:
            for i, value in enumerate(self.values(first, slot)):
                self.row.b.store(held, slot + i, function(value))

        self.row.each(replace)
        return self

    def reduce(self, function: Map, combine: Combine, identity: float) -> Val:
        """The combination of function(v) over the row, in every thread."""
        return self.reduce_all(lambda v, _: (function(v),), combine, (identity,))[0]

    def reduce_all(
        self, function: Callable[[Val, Val], Tuple], combine: Combine, identity: Sequence[float | int]
    ) -> Tuple:
        """The same of several values at once, function(v, column): f32 where the identity is a float, else
        u32."""
        row, b = self.row, self.row.b
        totals = _variables(b, "total", identity)

        def add(into: list[Var], first: Val, slot: Val) -> None:
            found = [function(v, first + i) for i, v in enumerate(self.values(first, slot))]
            while len(found) > 1:
                found = [combine(*pair) for pair in zip(found[::2], found[1::2])]
            _combine(into, found[0], combine)

        if row.share.lanes > 1:
            row.each(partial(add, totals))
            return row.combine(_values(totals), combine)
        # A lone thread adds up runs, so that the error of long sums stays small.
        parts, run = _variables(b, "part", identity), RUN * row.share.count
        with b.loop(0, row.n, run) as start:
            for part, number in zip(parts, identity):
                part.set(number)
            with b.loop(start, b.minimum(start + run, row.n), row.share.count) as first:
                add(parts, first, first)
            _combine(totals, _values(parts), combine)
        return _values(totals)


def _variables(b: Builder, name: str, values: Sequence[float | int]) -> list[Var]:
    return [b.var(name, value, "f32" if isinstance(value, float) else "u32") for value in values]


def _values(variables: list[Var]) -> Tuple:
    return tuple(each.get() for each in variables)


def _combine(into: list[Var], values: Tuple, combine: Combine) -> None:
    for variable, value in zip(into, combine(_values(into), values)):
        variable.set(value)


@contextmanager
def rows(b: Builder, share: Share, m: Val, n: Val) -> Iterator[Row]:
    """The row of these threads; those that have none are left out, whole SIMD groups at a time."""
    groups, simd = share.threads // share.lanes, b.simd
    if groups == 1:
        yield Row(b, share, n, b.block(), b.thread())
        return
    index = b.block() * groups + b.thread() // simd
    with b.when(index < m):
        yield Row(b, share, n, index, b.thread() % simd)


def over_rows(
    shares: Iterable[Share], options: dict[str, str], build: Callable[[Builder, Share], None]
) -> Iterator[Variant]:
    """A variant for each way to share rows out."""
    for share in shares:
        yield Variant(
            share.suffix, share.threads, share.grid, partial(_swap, build, share), share.when, options
        )


def _swap(build: Callable[[Builder, Share], None], share: Share, b: Builder) -> None:
    build(b, share)


def _drop(values: list[Val]) -> None:
    """For reads that are wanted for what they do."""


def larger(a: Tuple, b: Tuple) -> Tuple:
    """The larger number; of NaN and a number either one, for sums show NaN where it matters."""
    return tuple(x.builder.select(y > x, y, x) for x, y in zip(a, b))
