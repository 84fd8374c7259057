"""Rows of several lengths, and random data for kernels over rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import round_to

SIZES = (
    (0, 8), (1, 1), (3, 7), (5, 64), (33, 1000), (2, 1024), (3, 1032), (2, 4097), (2, 8192), (2, 8200),
    (1, 65536), (3, 65535),
)  # fmt: skip
"""(m, n): none; one number; what a SIMD group, a block holds, and one more vector; ragged; the longest."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": m, "n": n} for m, n in SIZES]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 9, "n": 40}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": m, "n": n} for m, n in ((3, 7), (5, 64), (2, 1048), (1, 8208))]


def numbers(
    size: Mapping[str, int], dtype: str, rng: np.random.Generator, specials: bool = True
) -> NDArray[np.generic]:
    """Normally distributed numbers whose spread and mean differ from row to row; with specials, some rows are
    of zeros, of -inf, have one infinity or one NaN, are of large numbers or of a single one."""
    m, n = size["m"], size["n"]
    x = rng.standard_normal((m, n)) * 2.0 ** rng.uniform(-3, 5, (m, 1)) + rng.uniform(-4, 4, (m, 1))
    if specials and m > 2:
        special = [np.zeros(n), np.full(n, -np.inf), x[0] * 100.0, np.full(n, 1.5)]
        for value in (np.inf, -np.inf, np.nan):
            special.append(np.where(np.arange(n) == rng.integers(n), value, x[1]))
        for row, kind in zip(rng.permutation(m)[: m // 2], rng.permutation(len(special))):
            x[row] = special[kind]
    return round_to(x, dtype)


def roundings(n: int) -> float:
    """Of sums of n numbers, whose errors go as a random walk, and of what follows."""
    return 20.0 + float(np.sqrt(n))


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Of kernels that take one array."""
    return {"x": numbers(size, dtype, rng)}
