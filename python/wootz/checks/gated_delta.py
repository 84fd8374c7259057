"""gated_delta: the rule over t tokens, see `_delta`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected
from . import _delta

NAMES = ("s", "t", "h", "hk", "dk", "dv")
SIZES = (
    (0, 5, 1, 1, 8, 8), (2, 0, 2, 1, 16, 8), (1, 1, 1, 1, 1, 1), (2, 5, 2, 1, 12, 7), (1, 16, 1, 1, 32, 16),
    (1, 17, 4, 2, 20, 5), (1, 40, 1, 1, 7, 9), (2, 130, 1, 1, 24, 3), (1, 33, 2, 2, 128, 17),
    (1, 19, 1, 1, 132, 10), (1, 20, 1, 1, 250, 6), (1, 35, 1, 1, 256, 9), (1, 65, 1, 1, 256, 33),
    (2, 300, 8, 4, 128, 128), (1, 1000, 2, 2, 64, 64),
)  # fmt: skip
"""No sequence and no token; whole chunks and not; rows of all variants, ragged; shared keys; long ones."""


def _sizes(*chosen: int) -> list[dict[str, int]]:
    return [dict(zip(NAMES, SIZES[i])) for i in chosen]


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return _sizes(*range(len(SIZES)))


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return _sizes(3, 5, 6, 9)


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return _delta.draw(size, dtype, "f32", rng)


def updated(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Expected]:
    return {"state": _delta.expected(operands, dtype, "f32", options["form"])[1]}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return _delta.expected(operands, dtype, "f32", options["form"])[0]
