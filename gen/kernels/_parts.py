"""Few queries and many keys: SIMD groups take parts of the keys, and a second launch puts together what they
found, which they leave in the workspace: of each part and query the largest score and the sum of powers, then
the weighed sums of all d numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import inf

from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Formula, Variant
from ._attention import ROWS, Keys, Problem, Share, Tile
from ._online import Walk, highest, power, weight_of

SPAN = 256
"""Keys for which a part is worth it."""
MOST = 128
"""Most parts."""
FEW = 16
"""Queries of a head of keys up to which its keys are taken in parts,"""
IDLE = 8
"""where there are fewer tiles of them than so many a multiprocessor."""
RESIDENT = 2
"""Blocks of a multiprocessor that there are registers for: left alone, a compiler may spill for a third."""
THREADS = 256
"""Of the second launch: a thread has one number of a query."""


@dataclass(frozen=True)
class Room:
    """How many keys a batch entry may have: a product of arguments (name, role)."""

    arguments: tuple[tuple[str, str], ...]

    @property
    def formula(self) -> Formula:
        names: list[Formula] = [name for name, _ in self.arguments]
        return reduce(lambda x, y: ["mul", x, y], names)

    @property
    def parts(self) -> Formula:
        return ["min", ["max", ["ceildiv", self.formula, SPAN], 1], MOST]

    @property
    def bytes(self) -> Formula:
        """Of the workspace."""
        return ["mul", ["mul", ["mul", "b", ["mul", "h", "s"]], self.parts], ["mul", 4, ["add", "d", 2]]]

    def declared(self, b: Builder) -> Val:
        return reduce(lambda x, y: x * y, [b.scalar(name, "u32", role) for name, role in self.arguments])


def parts_of(b: Builder, room: Val) -> Val:
    """As Room.parts."""
    return b.minimum(b.maximum(b.ceildiv(room, SPAN), 1), MOST)


@dataclass(frozen=True)
class Space:
    """The workspace: [query][part] of pairs, then of d numbers."""

    b: Builder
    ref: Ref
    queries: Val
    parts: Val
    d: Val

    def pair(self, query: Val, part: Val) -> Val:
        return (query.cast("u64") * self.parts.cast("u64") + part.cast("u64")) * 2

    def numbers(self, query: Val, part: Val) -> Val:
        pairs = self.queries.cast("u64") * self.parts.cast("u64") * 2
        return pairs + (query.cast("u64") * self.parts.cast("u64") + part.cast("u64")) * self.d.cast("u64")


def park(walk: Walk, space: Space, part: Val) -> None:
    """Leaves what a SIMD group found."""
    b, share = walk.b, walk.share

    def row_of(r: Val) -> None:
        query = walk.tile.query(r)
        mine = walk.team.eq(0) & (walk.tile.first + r < walk.tile.rows)
        with b.when(mine & walk.place.eq(0)):
            b.store(space.ref, space.pair(query, part), b.load(walk.tops, r))
            b.store(space.ref, space.pair(query, part) + 1, b.load(walk.totals, r))
        line = b.at(space.ref, space.numbers(query, part))

        def piece(first: Val, slot: Val) -> None:
            with b.loop(0, share.count, unroll=True) as i, b.when(mine & (first + i < walk.p.d)):
                b.store(line, first + i, b.load(walk.sums, r * share.width + slot + i))

        walk.each_part(piece)

    walk.each_row(row_of)


def together(dtype: str, room: Room) -> Callable[[Builder], None]:
    """The second launch: a block has a query."""

    def build(b: Builder) -> None:
        ref, sinks = b.buffer("workspace", "f32", "workspace"), b.buffer("sinks", "f32")
        y = b.buffer("y", dtype, "out")
        batches, h, s, d = (b.scalar(name) for name in ("b", "h", "s", "d"))
        parts, has_sinks = parts_of(b, room.declared(b)), b.scalar("has_sinks")
        space, query, column = Space(b, ref, batches * h * s, parts, d), b.block(), b.thread()
        top, total, found = b.var("top", -inf), b.var("total", 0.0), b.var("found", 0.0)
        with b.loop(0, parts) as part:
            top.set(highest(top.get(), b.load(ref, space.pair(query, part))))
        line = b.at(ref, space.numbers(query, b.const(0, "u32")))
        with b.when(column < d):
            with b.loop(0, parts) as part:
                at = space.pair(query, part)
                factor = power(b, b.load(ref, at), top.get())
                total.set(total.get() + b.load(ref, at + 1) * factor)
                number = b.load(line, part.cast("u64") * d.cast("u64") + column.cast("u64"))
                found.set(found.get() + number * factor)
            factor = weight_of(b, top.get(), total.get(), sinks, query // s % h, has_sinks)
            value = (found.get() * factor).cast(dtype)
            b.store(y, query.cast("u64") * d.cast("u64") + column.cast("u64"), value)

    return build


# ------------------------------------------------------------ variants
def over_shares(
    shares: Sequence[Share],
    target: Target,
    heads: Formula,
    room: Room,
    when: Sequence[Formula],
    options: dict[str, str],
    dtype: str,
    build: Callable[[Builder, Share, bool], None],
    page: str = "",
) -> Iterator[Variant]:
    """Variants for each way to share the work out, those in parts first. heads: of keys; page: what whole
    steps have to divide. build(b, share, in_parts): with or without a workspace."""
    queries: Formula = ["mul", ["div", "h", heads], "s"]
    every: Formula = ["mul", "b", ["mul", "h", "s"]]
    always = (["eq", ["mod", "h", heads], 0], ["lt", every, ROWS], *when)
    for share in shares:
        threads = threads_of(target.simd, target.simd * share.groups)
        fits: list[Formula] = [["le", "d", share.count * share.lanes]] if share.lanes > 1 else []
        if share.whole:
            fits.append(["eq", ["mod", "d", share.vector], 0])
        if share.whole and page:
            fits.append(["eq", ["mod", page, share.step(target.simd)], 0])
        if share.whole and target.simd > 1:
            tiles: Formula = ["mul", ["mul", "b", heads], ["ceildiv", queries, share.rows]]
            grid = (["mul", tiles, ["ceildiv", room.parts, share.groups]], 1, 1)
            few = (["le", queries, FEW], ["ge", room.formula, 2 * SPAN], ["lt", tiles, ["mul", "sms", IDLE]])
            first = Variant("parts", threads, grid, partial(_swap, build, share, True))
            yield Variant(
                f"{share.suffix}_few", THREADS, (every, 1, 1), together(dtype, room), (*always, *fits, *few),
                options, before=first, workspace=room.bytes,
            )  # fmt: skip
        tiles = ["ceildiv", queries, share.rows * share.groups]
        grid = (["mul", ["mul", "b", heads], tiles], 1, 1)
        yield Variant(
            share.suffix, threads, grid, partial(_swap, build, share, False), (*always, *fits), options
        )


def _swap(build: Callable[[Builder, Share, bool], None], share: Share, in_parts: bool, b: Builder) -> None:
    build(b, share, in_parts)


def attend(
    b: Builder,
    p: Problem,
    share: Share,
    room: Val,
    space: Ref | None,
    batches: Val,
    keys: Callable[[Tile], Keys],
) -> None:
    """The body of a variant. space: the workspace of one in parts."""
    b.function.min_blocks = RESIDENT
    if space is None:
        tile = Tile.of_block(b, p, share, b.block(), share.groups)
        with b.when(tile.first < tile.rows):
            walk = Walk(tile, keys(tile))
            walk.run()
            walk.write()
        return
    parts = parts_of(b, room)
    pieces = b.ceildiv(parts, share.groups)
    part = b.block() % pieces * share.groups + b.thread() // b.simd
    with b.when(part < parts):
        tile = Tile.of_block(b, p, share, b.block() // pieces, 1)
        walk = Walk(tile, keys(tile))
        walk.run(part, parts)
        park(walk, Space(b, space, batches * p.h * p.s, parts, p.d), part)


def output(b: Builder, dtype: str, in_parts: bool) -> tuple[Ref | None, Ref | None]:
    """y or, of a variant in parts, the workspace."""
    if in_parts:
        return None, b.buffer("workspace", "f32", "workspace")
    return b.buffer("y", dtype, "out"), None
