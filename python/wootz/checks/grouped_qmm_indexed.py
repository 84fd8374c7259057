"""grouped_qmm_indexed: y[g] = x[g] w[indices[g]]^T, every group of the same number of rows.

Each group as qmm_packed. Some indices repeat; one that the bank does not have leaves NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected, to_double
from . import _grouped
from ._data import activations, needed

SIZES = ((1, 1, 1, 5, 40), (7, 3, 4, 67, 272), (3, 33, 2, 40, 528), (5, 17, 3, 70, 261))
"""(groups, rows, experts, n, k)"""
LARGE = (
    (64, 16, 8, 136, 1032), (9, 64, 4, 136, 520), (5, 100, 2, 136, 1032), (3, 700, 2, 264, 264),
    (530, 2, 3, 24, 72), (520, 17, 3, 24, 72),
)  # fmt: skip


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [_size(*size) for size in (*SIZES, *LARGE)]


def _size(groups: int, rows: int, experts: int, n: int, k: int) -> dict[str, int]:
    return {"groups": groups, "rows": rows, "experts": experts, "n": n, "k": k}


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [_size(*size) for size in SIZES[1:]]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [_size(3, 5, 2, 18, 272), _size(2, 18, 2, 18, 272), _size(2, 3, 2, 17, 67)]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
    plain: bool = False,
) -> dict[str, Any]:
    """plain: weights of usual scales alone."""
    format = needed(format, "grouped_qmm_indexed")
    groups, rows, experts, n, k = (size[name] for name in ("groups", "rows", "experts", "n", "k"))
    w = _grouped.bank(format, (experts, n, k), rng, plain)
    return {"x": activations((groups, rows, k), dtype, rng), "w": w, "indices": indices(groups, experts, rng)}


plain = partial(operands, plain=True)


def indices(groups: int, experts: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Matrices of the groups; of several, one is none of the bank's."""
    found = rng.integers(0, experts, groups).astype(np.int32)
    if groups > 2:
        found[1] = (-1, experts)[int(rng.integers(2))]
    return found


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w = to_double(operands["x"], dtype), operands["w"]
    value = np.full((*x.shape[:2], w.shape[1]), np.nan)
    limit = np.zeros_like(value)
    for g, index in enumerate(operands["indices"]):
        if 0 <= index < w.shape[0]:
            value[g], limit[g] = _grouped.product(x[g], w.matrix(int(index)), dtype)
    return _grouped.outcome(value, limit, dtype)
