"""moe_gather_qgemv: y[t] = w[indices[t]] x[t], w a bank of matrices.

Each row as qgemv. Some indices repeat; the row of one that the bank does not have is 0, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..formats.bank import stack
from ..formats.sample import random_tensor
from ..reference import Expected
from . import qgemv
from ._data import activations, block_rows, columns, needed
from .grouped_qmm_indexed import indices

LARGE = ((1, 2, 9001, 104), (2, 1, 40, 9256), (70, 4, 200, 264), (300, 8, 70, 136), (4099, 3, 5, 72))
"""(t, experts, n, k) at which a GPU block stages activations more than once, or walks more than one group of
rows; more rows of x than a device runs blocks at once."""


def _size(t: int, experts: int, n: int, k: int) -> dict[str, int]:
    return {"t": t, "experts": experts, "n": n, "k": k}


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    format = needed(format, "moe_gather_qgemv")
    ts, experts = [1, 3, 2, 5, 4, 1, 0], [1, 2, 3, 2, 1, 4, 2]
    ns = [1, 3, 2, block_rows(format) + 2, 17, 5, 1]
    sizes = [_size(*size) for size in zip(ts, experts, ns, columns(format), strict=True)]
    return sizes + [_size(*large) for large in LARGE]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    rows = block_rows(needed(format, "moe_gather_qgemv"))
    sizes = ((2, 2, 301, 67), (4, 2, 3, 4201), (9, 3, 19, 521), (3, 2, rows + 3, 40))
    return [{**_size(*size), "sms": 1} for size in sizes]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{**_size(*size), "sms": 1} for size in ((3, 2, 5, 4201), (5, 3, 4, 75), (1, 2, 3, 331))]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    format, shape = needed(format, "moe_gather_qgemv"), (size["n"], size["k"])
    bank = stack(random_tensor(format, shape, rng, specials=False) for _ in range(size["experts"]))
    x = activations((size["t"], size["k"]), dtype, rng)
    return {"x": x, "w": bank, "indices": indices(size["t"], size["experts"], rng)}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w, chosen = operands["x"], operands["w"], operands["indices"]
    value = np.zeros((x.shape[0], w.shape[1]))
    limit = np.zeros_like(value)
    for i in range(w.shape[0]):
        rows = np.flatnonzero(chosen == i)
        if rows.size:
            one = qgemv.expect({"x": x[rows], "w": w.matrix(i)}, dtype, options)
            value[rows], limit[rows] = one.value, one.bound
    return Expected(value, limit)
