"""grouped_qmm: y[first + i] = x[first + i] w[g]^T for i < counts[g], where first is offsets[g].

Each group as qmm_packed. Rows of y in no group are not written: they are NaN, as verify leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, to_double
from . import _grouped
from ._data import activations, needed


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [*_grouped.VARIABLE, *_grouped.LARGE]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [*_grouped.VARIABLE[2:]]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [*_grouped.BRIEF]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
    plain: bool = False,
) -> dict[str, Any]:
    """plain: weights of usual scales alone."""
    format = needed(format, "grouped_qmm")
    m, experts, n, k = (size[name] for name in ("m", "experts", "n", "k"))
    counts, offsets = _grouped.spread(m, experts, rng)
    w = _grouped.bank(format, (experts, n, k), rng, plain)
    return {"x": activations((m, k), dtype, rng), "w": w, "counts": counts, "offsets": offsets}


plain = partial(operands, plain=True)


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w = to_double(operands["x"], dtype), operands["w"]
    value = np.full((x.shape[0], w.shape[1]), np.nan)
    limit = np.zeros_like(value)
    for g, rows in _grouped.places(operands["counts"], operands["offsets"]):
        value[rows], limit[rows] = _grouped.product(x[rows], w.matrix(g), dtype)
    return _grouped.outcome(value, limit, dtype)
