"""copy_strided: y = x, bit for bit, y dense and x of any strides: a slice, a turned view, one that repeats or
is walked backwards.

Of four axes at most once those are joined that are one run, and at most 2^31 - 1 rows of the innermost. Rows
that are dense and lie on 16 bytes are moved as such, views whose last two axes have changed places by tiles;
others one element at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant
from ._broadcast import AXES
from ._moved import BITS, THREADS, Rows, Turn, accepts, shares, whole

_STRIDES = [f"x_stride{axis}" for axis in range(AXES)]


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    rows: Formula = ["div", "n", "d3"]
    fits: tuple[Formula, ...] = (["lt", rows, 2**31], ["lt", "d3", 2**31])
    some = list(shares(dtype, target, rows, "d3"))
    build = partial(_build_rows, dtype)
    for share in (each for each in some if each.count > 1):
        yield share.variant(build, options, ["eq", "x_stride3", 1], *_aligned(share.count, 3), *fits)
    for suffix, count in (("turned", whole(dtype)), ("turned_any", 1)):
        turn = Turn(dtype, threads_of(target.simd, THREADS), count)
        blocks: Formula = ["mul", ["div", "n", ["mul", "d2", "d3"]], turn.blocks("d3", "d2")]
        when = (["eq", "x_stride2", 1], *_aligned(count, 2), ["lt", blocks, 2**31], *fits)
        yield Variant(suffix, turn.threads, (blocks, 1, 1), partial(_build_turned, turn), when, options)
    yield from (share.variant(build, options, *fits) for share in some if share.count == 1)


def _aligned(count: int, dense: int) -> list[Formula]:
    """Accesses of `count` elements along axis `dense` are whole and on 16 bytes."""
    names = ["x_start", *(each for each in _STRIDES if each != _STRIDES[dense]), "d3", f"d{dense}"]
    return [["eq", ["mod", name, count], 0] for name in dict.fromkeys(names) if count > 1]


def _parameters(b: Builder, dtype: str) -> tuple[Ref, Ref, Val, list[Val], list[Val]]:
    x, y = b.buffer("x", BITS[dtype]), b.buffer("y", BITS[dtype], "out")
    n, start = b.scalar("n", "u64"), b.scalar("x_start", "u64")
    extents = [b.scalar(f"d{axis}") for axis in range(1, AXES)]
    return x, y, n, extents, [start, *(b.scalar(name, "u64") for name in _STRIDES)]


def _sum(places: list[Val], steps: list[Val]) -> Val:
    """The start, and so many steps on each axis; steps back wrap around."""
    total = steps[0]
    for place, step in zip(places, steps[1:]):
        total = total + place.cast("u64") * step
    return total


def _build_rows(dtype: str, share: Rows, b: Builder) -> None:
    x, y, n, (d1, d2, d3), steps = _parameters(b, dtype)
    row, first = share.place(b, d3)
    with b.when(row.cast("u64") * d3.cast("u64") < n):
        start = _sum([row // d2 // d1, row // d2 % d1, row % d2], steps)
        line = b.at(y, row.cast("u64") * d3.cast("u64"))
        step = b.const(1, "u64") if share.count > 1 else steps[AXES]
        share.move(b, lambda place: (x, start + place.cast("u64") * step), line, first, d3, None, False)


def _build_turned(turn: Turn, b: Builder) -> None:
    x, y, _, (d1, d2, d3), steps = _parameters(b, turn.dtype)
    tiles = b.ceildiv(d3, turn.side) * b.ceildiv(d2, turn.side)
    number = b.block() // tiles
    start = _sum([number // d1, number % d1], steps)
    to = b.at(y, number.cast("u64") * d2.cast("u64") * d3.cast("u64"))
    turn.build(b, x, start, to, d3, d2, steps[AXES], b.block() % tiles)


FAMILY = Family(
    (Operand("x", "array", ("n",), strided=True),),
    Operand("y", "array", ("n",)),
    variants,
    accepts=accepts,
    broadcasts=True,
)
