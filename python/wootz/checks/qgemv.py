"""qgemv: y[m, n] = sum over k of x[m, k] * w[n, k], w quantised.

M = sum |w||x|, c = 4 + levels + sqrt(K): decode and scaling, and float32 sums of K terms. Errors of a sum add
up as a random walk (Higham and Mary, "A new approach to probabilistic rounding error analysis", SISC 2019);
the worst case, K, would hide a float16 accumulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor, decode_exact
from ..formats.sample import random_tensor
from ..reference import Expected, bound, to_double
from ._data import activations, block_rows, columns, needed

LARGE = ((1, 40, 9256), (1, 9001, 104), (5, 4700, 72), (8, 37, 2072))
"""(m, n, k) at which a GPU block stages activations more than once, or walks more than one group of rows."""

UNITS = ((1, 37, 3072), (1, 21, 16384), (1, 9001, 1024))
"""(m, n, k) of whole units of 256 columns: the last tile short; more units than a ring holds; several tiles a
block."""

TILES = [
    {"m": 1, "n": 83, "k": 67, "sms": 1},
    {"m": 1, "n": 3, "k": 4201, "sms": 2},
    {"m": 2, "n": 37, "k": 2113, "sms": 1},
    {"m": 3, "n": 5, "k": 1061, "sms": 1},
    {"m": 8, "n": 19, "k": 521, "sms": 3},
]
"""Several blocks, several tiles along k, several rounds of a block over its rows."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    format = needed(format, "qgemv")
    block = min(format.block[1] or 64, 1024)
    ms, ns = [1, 1, 2, 3, 4, 8, 1], [1, 3, 2, block_rows(format) + 2, 17, 5, 1]
    sizes = [{"m": m, "n": n, "k": k} for m, n, k in zip(ms, ns, columns(format), strict=True)]
    sizes += [{"m": m, "n": m + 9, "k": 2 * block + 1} for m in (5, 6, 7, 8)]
    return sizes + [{"m": m, "n": n, "k": k} for m, n, k in (*LARGE, *UNITS)]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return TILES


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": m, "n": 5, "k": k, "sms": 1} for m, k in ((1, 4201), (2, 331), (4, 75), (8, 521))]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    w = random_tensor(needed(format, "qgemv"), (size["n"], size["k"]), rng, specials=False)
    return {"x": activations((size["m"], size["k"]), dtype, rng), "w": w}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    q = operands["w"]
    activations, weights = to_double(operands["x"], dtype), decode_exact(q)
    with np.errstate(all="ignore"):
        value = activations @ weights.T
        magnitude = np.abs(activations) @ np.abs(weights).T
    return Expected(value, bound(value, dtype, roundings(q.format, q.shape[1]), magnitude))


def roundings(format: Descriptor, k: int) -> float:
    """c of a sum over k, in float32 unit roundoffs of sum |w||x|."""
    return 4.0 + len(format.scales) + float(np.sqrt(k))
