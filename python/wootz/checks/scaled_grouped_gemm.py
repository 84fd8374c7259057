"""scaled_grouped_gemm: y[first + i, n] = alpha * sum over k of x[first + i, k] * w[g, n, k], i < counts[g].

As scaled_gemm, group by group. Rows of y in no group are not written: they are NaN, as verify leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..formats.bank import stack
from ..formats.tiles import ROWS
from ..reference import Expected
from . import _scaled
from ._data import needed


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [
        {"m": 128, "experts": 1, "n": 8, "k": 40},
        {"m": 640, "experts": 4, "n": 136, "k": 256},
        {"m": 1100, "experts": 8, "n": 264, "k": 1000},
    ]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 300, "experts": 3, "n": 16, "k": 70}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 140, "experts": 2, "n": 8, "k": 70}]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    format = needed(format, "scaled_grouped_gemm")
    m, experts, n, k = (size[name] for name in ("m", "experts", "n", "k"))
    counts, offsets = spread(m, experts, rng)
    return {
        "x": _scaled.quantised(format, m, k, rng),
        "w": stack([_scaled.weights(format, n, k, rng) for _ in range(experts)]),
        "counts": counts,
        "offsets": offsets,
        "alpha": 0.75,
    }


def spread(m: int, groups: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Counts and offsets of groups in the rows of x: in any order, of none to several tiles of scales, each
    at the beginning of a tile and ending anywhere; with several groups the first one is empty."""
    tiles = -(-m // ROWS)
    cuts = np.concatenate([[0], np.sort(rng.integers(0, tiles + 1, groups - 1)), [tiles]])
    order = rng.permutation(groups)
    counts, offsets = np.zeros(groups, np.int32), np.zeros(groups, np.int32)
    for g, i in enumerate(order):
        first, end = int(cuts[i]) * ROWS, min(int(cuts[i + 1]) * ROWS, m)
        if end > first and (g > 0 or groups == 1):
            counts[g], offsets[g] = end - rng.integers(0, min(ROWS, end - first)) - first, first
    return counts, offsets


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w = operands["x"], operands["w"]
    left, right, alpha = _scaled.exact(x), _scaled.exact(w), float(operands.get("alpha", 1.0))
    value = np.full((x.shape[0], w.shape[1]), np.nan)
    limit = np.zeros_like(value)
    for g, (count, first) in enumerate(zip(operands["counts"], operands["offsets"], strict=True)):
        rows = slice(int(first), int(first) + int(count))
        one = _scaled.product(left[rows], right[g], alpha, _scaled.levels(x, w), dtype)
        value[rows], limit[rows] = one.value, one.bound
    return Expected(value, limit)
