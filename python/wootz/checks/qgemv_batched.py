"""qgemv_batched: y[m, n] = x[m, k] times the rows of w0, w1 and w2, one below another.

Each matrix as qgemv; w2 is left out where its rows are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..formats.sample import random_tensor
from ..reference import Expected
from . import qgemv
from ._data import activations, block_rows, columns, needed

NAMES = ("w0", "w1", "w2")

LARGE = ((1, 3001, 1001, 999, 104), (1, 40, 8, 8, 9256), (5, 2000, 700, 0, 72), (8, 37, 5, 11, 2072))
"""(m, n0, n1, n2, k) at which a GPU block stages activations more than once, or walks several groups of rows;
groups lie across two matrices."""

TILES = [
    {"m": 1, "n0": 61, "n1": 40, "n2": 33, "k": 67, "sms": 1},
    {"m": 1, "n0": 3, "n1": 1, "n2": 0, "k": 4201, "sms": 2},
    {"m": 2, "n0": 17, "n1": 21, "n2": 5, "k": 2113, "sms": 1},
    {"m": 3, "n0": 2, "n1": 3, "n2": 1, "k": 1061, "sms": 1},
    {"m": 8, "n0": 9, "n1": 1, "n2": 11, "k": 521, "sms": 3},
]


def _size(m: int, n0: int, n1: int, n2: int, k: int) -> dict[str, int]:
    return {"m": m, "n0": n0, "n1": n1, "n2": n2, "k": k}


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    format = needed(format, "qgemv_batched")
    ms, seconds, thirds = [1, 1, 2, 3, 4, 8, 1], [1, 3, 2, 7, 1, 5, 2], [1, 0, 2, 1, 3, 0, 1]
    sizes = zip(ms, seconds, thirds, columns(format), strict=True)
    return [_size(m, 5, n1, n2, k) for m, n1, n2, k in sizes] + [_size(*large) for large in LARGE]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    format = needed(format, "qgemv_batched")
    rows = block_rows(format)
    return [*TILES, {**_size(1, rows + 2, 1, rows + 1, 2 * min(format.block[1] or 64, 1024) + 1), "sms": 1}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((1, 4201, 0), (2, 331, 1), (4, 75, 2), (8, 521, 1))
    return [{**_size(m, 3, 2, n2, k), "sms": 1} for m, k, n2 in sizes]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    format = needed(format, "qgemv_batched")
    given: dict[str, Any] = {"x": activations((size["m"], size["k"]), dtype, rng)}
    for name, rows in zip(NAMES, (size["n0"], size["n1"], size["n2"])):
        if rows:
            given[name] = random_tensor(format, (rows, size["k"]), rng, specials=False)
    return given


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    each = [
        qgemv.expect({"x": operands["x"], "w": operands[name]}, dtype, options)
        for name in NAMES
        if name in operands
    ]
    return Expected(*(np.hstack([getattr(one, part) for one in each]) for part in ("value", "bound")))
