"""gemm_i8_dp4a: y[m, n] = sum over k of x[m, k] w[n, k]: exact, in integers of 64 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected

SIZES = (
    (0, 3, 8), (1, 1, 1), (3, 5, 7), (2, 3, 0), (64, 64, 64), (65, 67, 80), (33, 100, 130), (7, 9, 1040),
    (1, 2, 131071), (130, 129, 15), (2, 2, 131056),
)  # fmt: skip
"""(m, n, k): none, one, ragged, no columns, one tile, several, every byte of a word last, the longest."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": m, "n": n, "k": k} for m, n, k in SIZES]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": m, "n": n, "k": k} for m, n, k in ((3, 5, 7), (65, 67, 80), (5, 66, 70))]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Any bytes; one row of each all -128, whose sum of products is the largest there is."""
    m, n, k = size["m"], size["n"], size["k"]
    given = {name: rng.integers(-128, 128, (rows, k)).astype(np.int8) for name, rows in (("x", m), ("w", n))}
    for each in given.values():
        each[-1:] = -128
    return given


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    value = (operands["x"].astype(np.int64) @ operands["w"].astype(np.int64).T).astype(np.float64)
    return Expected(value, np.zeros_like(value))
