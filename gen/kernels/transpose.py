"""transpose: y[b, n, m] = x[b, m, n], bit for bit, through tiles in group memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant
from ._moved import BITS, THREADS, Turn, accepts, whole


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    for suffix, count in (("", whole(dtype)), ("any", 1)):
        turn = Turn(dtype, threads_of(target.simd, THREADS), count)
        blocks: Formula = ["mul", "b", turn.blocks("m", "n")]
        aligned: tuple[Formula, ...] = tuple(["eq", ["mod", name, count], 0] for name in "mn" if count > 1)
        when = (*aligned, ["lt", blocks, 2**31])
        yield Variant(suffix, turn.threads, (blocks, 1, 1), partial(_build, turn), when, options)


def _build(turn: Turn, b: Builder) -> None:
    x, y = b.buffer("x", BITS[turn.dtype]), b.buffer("y", BITS[turn.dtype], "out")
    m, n = b.scalar("m"), b.scalar("n")
    tiles = b.ceildiv(m, turn.side) * b.ceildiv(n, turn.side)
    start = (b.block() // tiles).cast("u64") * m.cast("u64") * n.cast("u64")
    turn.build(b, x, start, b.at(y, start), m, n, n.cast("u64"), b.block() % tiles)


FAMILY = Family(
    (Operand("x", "array", ("b", "m", "n")),),
    Operand("y", "array", ("b", "n", "m")),
    variants,
    dict.fromkeys("bmn", (0, 2**31 - 1)),
    accepts=accepts,
)
