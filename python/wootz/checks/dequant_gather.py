"""dequant_gather: the rows of dequant, at the indices given; of an index that w has not, zeros.

M and c are those of dequant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected
from . import dequant

ODD = (-1, -(2**31), 2**31 - 1)
"""Indices that no matrix has."""


def _sizes(sizes: list[dict[str, int]], t: int) -> list[dict[str, int]]:
    return [{"t": t + i, **size} for i, size in enumerate(sizes)]


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    """Those of dequant; no index, and many."""
    sizes = dequant.shapes(format)
    return [{**sizes[0], "t": 0}, *_sizes(sizes[:-1], 1), {**sizes[-1], "t": 301}]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return _sizes(dequant.small(format), 9)


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return _sizes(dequant.brief(format), 5)


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """One index in four is n or worse, the second is n; some occur twice."""
    given = dequant.operands(format, size, dtype, options, rng)
    n, t = size["n"], size["t"]
    indices = rng.integers(0, n, t)
    indices = np.where(rng.random(t) < 0.25, rng.choice([n, n + 1, *ODD], t), indices)
    indices[1:2] = n
    return {**given, "indices": indices.astype(np.int32)}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    """y[t, k] = the number that w[indices[t], k] stands for."""
    every, indices = dequant.expect(operands, dtype, options), operands["indices"]
    there = (indices >= 0) & (indices < operands["w"].shape[0])

    def rows(a: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(there[:, None], np.broadcast_to(a, every.value.shape)[indices * there], 0.0)

    return Expected(rows(every.value), rows(every.bound))
