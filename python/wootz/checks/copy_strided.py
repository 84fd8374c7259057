"""copy_strided: the elements of a view, bit for bit. A size is the number of a view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected
from ._moved import moved, raw

Array = NDArray[Any]

VIEWS: tuple[tuple[tuple[int, ...], Callable[[Array], Array]], ...] = (
    ((37, 96), lambda a: a[:, 16:80]),
    ((37, 97), lambda a: a[:, 3:67]),
    ((96, 160), lambda a: a.T),
    ((33, 47), lambda a: a.T),
    ((3, 8224), lambda a: a[:, :8208]),
    ((4999,), lambda a: a[1::3]),
    ((5, 1104), lambda a: a[1:, 32:1056]),
    ((37, 64), lambda a: a),
    ((1,), lambda a: a),
    ((7,), lambda a: a[3:4].reshape(())),
    ((2, 3, 16, 64), lambda a: a.transpose(0, 2, 1, 3)),
    ((3, 2, 48, 80), lambda a: a.transpose(0, 1, 3, 2)),
    ((2, 3, 5, 7), lambda a: a.transpose(0, 2, 3, 1)),
    ((5, 6, 7, 8), lambda a: a.transpose(3, 2, 1, 0)),
    ((6, 1, 64), lambda a: np.broadcast_to(a, (6, 5, 64))),
    ((9, 1), lambda a: np.broadcast_to(a, (9, 50))),
    ((4, 6, 5, 8, 3), lambda a: a[:, ::2, :, ::4, :]),
    ((200, 18), lambda a: a[:, ::6]),
)
"""Rows that lie on 16 bytes, and that do not; turned ones, of whole vectors and not; long rows; steps; rows
in between; dense; one number, of one axis and none; heads before tokens; matrices turned, channels last, all
axes turned; what repeats; axes that join, and do not; short rows of single elements."""

BACK: tuple[tuple[tuple[int, ...], Callable[[Array], Array]], ...] = (
    ((20, 64), lambda a: a[::-1]),
    ((20, 33), lambda a: a[::-1, ::-2]),
    ((64, 48), lambda a: a.T[::-1]),
    ((48, 64), lambda a: a[::-1].T),
    ((1111,), lambda a: a[::-1]),
)
"""Walked backwards."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"case": i} for i in range(len(VIEWS))]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"case": len(VIEWS) + i} for i in range(len(BACK))]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"case": i} for i in (*range(7), 10, 11, *range(len(VIEWS), len(VIEWS) + len(BACK)))]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    shape, view = (*VIEWS, *BACK)[size["case"]]
    return {"x": view(raw(shape, dtype, rng))}


def bits(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Any]:
    return {"y": operands["x"].copy()}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return moved(bits(operands, dtype, options)["y"], dtype)
