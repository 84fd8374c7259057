"""rms_norm: y = x / sqrt(mean of x^2 + eps) * weight, along rows.

M = |y|; c grows with the sum of squares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, bound, to_double
from ._data import activations
from ._rows import brief, numbers, roundings, shapes, small

__all__ = ["brief", "expect", "normalised", "operands", "shapes", "small"]

EPS = 1e-6


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    given = {"x": numbers(size, dtype, rng), "weight": activations((size["n"],), dtype, rng)}
    return given | ({"eps": 0.25} if rng.integers(2) else {})


def normalised(x: Any, operands: Mapping[str, Any], dtype: str) -> Expected:
    """The reference of x in float64."""
    weight, eps = to_double(operands["weight"], dtype), np.float32(operands.get("eps", EPS))
    with np.errstate(all="ignore"):
        value = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + float(eps)) * weight
        return Expected(value, bound(value, dtype, roundings(x.shape[1]), np.abs(value)))


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return normalised(to_double(operands["x"], dtype), operands, dtype)
