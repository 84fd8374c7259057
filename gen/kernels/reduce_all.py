"""reduce_all: y = op over all n numbers of x, by the ops of `reduce`: the same types, NaN and ties.

A first launch reduces a share of x a block, a second one what they found: one fixed order, which depends on n
alone, so that the same numbers give the same bits. An array of any shape is passed as one row.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ..formats.axes import Format
from ..ir.collective import Tuple
from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES, Ref
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant
from ._rows import Row, Share
from .reduce import OPS, Reduction, types

SHARE = 16384
"""Least numbers of a block of the first launch."""
MOST = 1024
"""Most blocks of it."""


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    op, threads = OPS[options["op"]], threads_of(target.simd, 256)
    blocks: Formula = ["min", ["ceildiv", "n", SHARE], MOST]
    last = Share("", threads, threads, 1)
    for suffix, count in (("", 16 // DTYPES[dtype]), ("any", 1)):
        when: tuple[Formula, ...] = (["eq", ["mod", "n", count], 0],) if count > 1 else ()
        share = Share("shares", threads, threads, count)
        first = Variant(share.suffix, threads, (blocks, 1, 1), partial(_shares, op, dtype, share))
        build = partial(_total, op, dtype, last)
        space = 4 * MOST * len(op.identity)
        yield Variant(suffix, threads, (1, 1, 1), build, when, options, before=first, workspace=space)


def _shares(op: Reduction, dtype: str, share: Share, b: Builder) -> None:
    """What each block found goes to the workspace: first values, then columns."""
    x, space, n = b.buffer("x", dtype), b.buffer("workspace", "u32", "workspace"), b.scalar("n")
    unit = share.lanes * share.count
    length = b.ceildiv((n + (b.grid() - 1)) // b.grid(), unit) * unit
    start = b.minimum(b.block() * length, n)
    row = Row(b, share, b.minimum(length, n - start), b.block(), b.thread())
    line = b.at(x, start)
    numbers = row.source(lambda first: row.load(line, first))
    found = numbers.reduce_all(lambda v, i: op.value(b, v, start + i), op.combine, op.identity)
    with b.when(b.thread().eq(0)):
        for i, value in enumerate(found):
            b.store(space, b.block() + i * MOST, value.bitcast("u32"))


def _total(op: Reduction, dtype: str, share: Share, b: Builder) -> None:
    space, y = b.buffer("workspace", "u32", "workspace"), b.buffer("y", op.out or dtype, "out")
    n = b.scalar("n")
    row = Row(b, share, b.minimum(b.ceildiv(n, SHARE), MOST), b.block(), b.thread())
    parts = row.source(lambda first: [b.load(space, first)])
    found = parts.reduce_all(partial(_part, b, op, space), op.combine, op.identity)
    with b.when(b.thread().eq(0)):
        b.store(y, 0, op.result(b, found, n, dtype))


def _part(b: Builder, op: Reduction, space: Ref, word: Val, i: Val) -> Tuple:
    """What block i of the first launch has left."""
    words = [word, *(b.load(space, i + at * MOST) for at in range(1, len(op.identity)))]
    kinds = ["f32" if isinstance(each, float) else "u32" for each in op.identity]
    return tuple(value.bitcast(kind) for value, kind in zip(words, kinds))


FAMILY = Family(
    (Operand("x", "array", ("n",)),),
    Operand("y", "array", ()),
    variants,
    {"n": (1, 2**31 - 1)},
    options={"op": tuple(OPS)},
    types=types,
)
