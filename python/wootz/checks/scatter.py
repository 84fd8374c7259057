"""scatter: y[indices[t]] = x[t], bit for bit; other rows of y, and indices out of range, change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected
from ._moved import moved, raw
from .gather import SIZES, brief, shapes, small

__all__ = ["SIZES", "bits", "brief", "expect", "operands", "shapes", "small"]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """No row twice, for which of two would win is not said; those that are too many are out of range, and the
    last one next to it."""
    t, n, k = size["t"], size["n"], size["k"]
    outside = rng.choice([-1, n, n + 1, -n if n else -2, -(2**31), 2**31 - 1], t)
    rows = np.concatenate([rng.permutation(n), outside])[:t]
    indices = rng.permutation(np.where(rng.random(t) < 0.125, outside, rows)).astype(np.int32)
    indices[1:][-1:] = n
    return {"x": raw((t, k), dtype, rng), "indices": indices, "y": raw((n, k), dtype, rng)}


def bits(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Any]:
    x, indices, y = operands["x"], operands["indices"], operands["y"].copy()
    known = (indices >= 0) & (indices < y.shape[0])
    y[indices[known]] = x[known]
    return {"y": y}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return moved(bits(operands, dtype, options)["y"], dtype)
