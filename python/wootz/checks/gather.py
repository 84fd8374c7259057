"""gather: y[t] = x[indices[t]], bit for bit; zeros where the index is out of range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected
from ._moved import moved, raw

SIZES = (
    (0, 3, 8), (1, 1, 1), (5, 9, 7), (33, 4, 64), (64, 300, 40), (7, 50, 1024), (3, 2, 8208), (3, 4, 8195),
    (300, 3, 16), (4, 0, 48), (2, 3, 65536),
)  # fmt: skip
"""(t, n, k): no rows to fill, one number, ragged, each way to share rows out, several pieces, no rows of
x."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"t": t, "n": n, "k": k} for t, n, k in SIZES]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((5, 9, 7), (2, 3, 301), (9, 4, 64), (3, 4, 1024), (3, 2, 8208))
    return [{"t": t, "n": n, "k": k} for t, n, k in sizes]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Rows again and again, an eighth of them out of range on either side, the last one next to it."""
    t, n, k = size["t"], size["n"], size["k"]
    indices = rng.integers(0, max(n, 1), t)
    outside = rng.choice([-1, n, n + 1, -n, -(2**31), 2**31 - 1], t)
    indices = np.where((rng.random(t) < 0.125) | (n == 0), outside, indices)
    indices[1:][-1:] = n
    return {"x": raw((n, k), dtype, rng), "indices": indices.astype(np.int32)}


def bits(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Any]:
    x, indices = operands["x"], operands["indices"]
    y = np.zeros((indices.size, x.shape[1]), x.dtype)
    known = (indices >= 0) & (indices < x.shape[0])
    y[known] = x[indices[known]]
    return {"y": y}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return moved(bits(operands, dtype, options)["y"], dtype)
