"""gemv_scaled: y[m, n] = sum over k of x[m, k] * w[n, k], both quantised in one format.

M = sum |w||x|, c = 4 + 2 levels + sqrt(K): decode and scaling of both, and float32 sums, see qgemv.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor, decode_exact
from ..formats.sample import random_tensor
from ..reference import Expected, bound
from ._data import needed
from .qgemv import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    format = needed(format, "gemv_scaled")
    return {
        name: random_tensor(format, (size[rows], size["k"]), rng, specials=False)
        for name, rows in (("x", "m"), ("w", "n"))
    }


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w = (decode_exact(operands[name]) for name in ("x", "w"))
    roundings = 4 + 2 * len(operands["w"].format.scales) + np.sqrt(x.shape[1])
    with np.errstate(all="ignore"):
        return Expected(x @ w.T, bound(x @ w.T, dtype, roundings, np.abs(x) @ np.abs(w).T))
