"""gemv: y[m, n] = sum over k of x[m, k] * w[n, k].

M = sum |w||x|, c = 4 + sqrt(K): float32 sums of K terms, see qgemv.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, bound, to_double
from ._data import activations

SIZES = ((1, 1, 1), (1, 3, 7), (2, 2, 64), (3, 5, 67), (4, 17, 256), (8, 5, 133), (5, 14, 129), (7, 16, 96))
LARGE = ((1, 40, 9256), (1, 9001, 104), (5, 4700, 72), (8, 37, 2072))


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": m, "n": n, "k": k} for m, n, k in (*SIZES, *LARGE)]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((1, 83, 67, 1), (1, 3, 4201, 2), (2, 37, 2112, 1), (3, 5, 1061, 1), (8, 19, 521, 3))
    return [{"m": m, "n": n, "k": k, "sms": sms} for m, n, k, sms in sizes]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": m, "n": 5, "k": k, "sms": 1} for m, k in ((1, 4201), (2, 331), (4, 75), (8, 528))]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return {name: activations((size[rows], size["k"]), dtype, rng) for name, rows in (("x", "m"), ("w", "n"))}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w = (to_double(operands[name], dtype) for name in ("x", "w"))
    return Expected(x @ w.T, bound(x @ w.T, dtype, 4 + np.sqrt(x.shape[1]), np.abs(x) @ np.abs(w).T))
