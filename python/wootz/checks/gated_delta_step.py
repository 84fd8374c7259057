"""gated_delta_step: one token of the rule (see `_delta`); a state of the type of y is rounded once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected
from . import _delta

NAMES = ("s", "h", "hk", "dk", "dv")
SIZES = (
    (0, 1, 1, 8, 8), (1, 1, 1, 1, 1), (3, 4, 2, 12, 7), (2, 2, 2, 32, 16), (5, 3, 1, 7, 9),
    (2, 2, 1, 128, 33), (1, 2, 2, 132, 10), (2, 1, 1, 250, 5), (1, 2, 1, 256, 20), (33, 16, 8, 128, 128),
)  # fmt: skip
"""None; rows of all variants, ragged; shared keys; a model's."""


def _sizes(*chosen: int) -> list[dict[str, int]]:
    return [dict(zip(NAMES, SIZES[i])) for i in chosen]


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return _sizes(*range(len(SIZES)))


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return _sizes(2, 4, 6)


def _state(dtype: str, options: Mapping[str, str]) -> str:
    return dtype if options["state"] == "same" else options["state"]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return _delta.draw(size, dtype, _state(dtype, options), rng)


def updated(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Expected]:
    return {"state": _delta.expected(operands, dtype, _state(dtype, options))[1]}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return _delta.expected(operands, dtype, _state(dtype, options))[0]
