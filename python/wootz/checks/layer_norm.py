"""layer_norm: y = (x - mean) / sqrt(variance + eps) * weight + bias, along rows.

M = |weight| / sqrt(variance + eps) times |x| and the mean of |x|, which the mean's error goes with, + |bias|.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, bound, to_double
from ._data import activations
from ._rows import brief, numbers, roundings, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]

EPS = 1e-5


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    given = {"x": numbers(size, dtype, rng)}
    given |= {name: activations((size["n"],), dtype, rng) for name in ("weight", "bias")}
    return given | ({"eps": 0.25} if rng.integers(2) else {})


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, weight, bias = (to_double(operands[name], dtype) for name in ("x", "weight", "bias"))
    eps = float(np.float32(operands.get("eps", EPS)))
    with np.errstate(all="ignore"):
        apart = x - x.mean(axis=1, keepdims=True)
        scale = weight / np.sqrt((apart * apart).mean(axis=1, keepdims=True) + eps)
        value = apart * scale + bias
        size = np.abs(x) + np.abs(x).mean(axis=1, keepdims=True)
        magnitude = np.abs(scale) * size + np.abs(bias)
    return Expected(value, bound(value, dtype, roundings(x.shape[1]), magnitude))
