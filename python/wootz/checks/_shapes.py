"""Shapes of operands that broadcast against each other: a size is the number of a case."""

from __future__ import annotations

from collections.abc import Mapping

from ..formats import Descriptor

Shape = tuple[int, ...]

CASES: tuple[tuple[Shape, Shape, Shape], ...] = (
    ((10007,), (10007,), (10007,)),
    ((33, 64), (64,), (33, 1)),
    ((33, 1), (1, 64), (33, 64)),
    ((5, 7, 9), (7, 1), (9,)),
    ((1,), (1,), (1,)),
    ((), (3, 5), (3, 5)),
    ((4, 1, 16, 1, 8), (1, 16, 3, 8), (1, 1, 16, 3, 1)),
    ((1, 6, 1, 5), (4, 1, 3, 1), (4, 6, 3, 5)),
    ((8, 24), (8, 1), ()),
    ((3, 1, 40), (3, 6, 40), (1, 6, 1)),
)
"""Of up to three operands: one flat run; rows, columns and both; leading axes; ones; scalars; axes that join
and that do not; whole vectors in the innermost axis and not."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"case": i} for i in range(len(CASES))]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"case": i} for i in (2, 3, 8)]


def shapes_of(size: Mapping[str, int]) -> tuple[Shape, Shape, Shape]:
    return CASES[size["case"]]
