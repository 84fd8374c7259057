"""grouped_qmm_paired: y = activation(x w[g]^T) * (x v[g]^T), groups as in grouped_qmm.

With errors d and e of the two sums a and b, the product is off by at most s (|b| + e) d + |activation(a)| e
and a few roundings of float32; s = 1.13 bounds the slopes of the activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected, to_double
from . import _grouped, gemm
from ._data import activations, needed
from .grouped_qmm import brief, shapes, small

__all__ = ["brief", "expect", "gated", "operands", "shapes", "small"]

SLOPE, ROUNDINGS = 1.13, 8 * 2.0**-24


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    format = needed(format, "grouped_qmm_paired")
    m, experts, n, k = (size[name] for name in ("m", "experts", "n", "k"))
    counts, offsets = _grouped.spread(m, experts, rng)
    x = activations((m, k), dtype, rng)
    w, v = (_grouped.bank(format, (experts, n, k), rng, plain=True) for _ in range(2))
    kind = gemm.ACTIVATIONS[int(rng.integers(4))]
    return {"x": x, "w": w, "v": v, "counts": counts, "offsets": offsets, "activation": kind}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w, v = to_double(operands["x"], dtype), operands["w"], operands["v"]
    value = np.full((x.shape[0], w.shape[1]), np.nan)
    limit = np.zeros_like(value)
    for g, rows in _grouped.places(operands["counts"], operands["offsets"]):
        a, d = _grouped.product(x[rows], w.matrix(g), dtype, rounded=False)
        b, e = _grouped.product(x[rows], v.matrix(g), dtype, rounded=False)
        value[rows], limit[rows] = gated(a, d, b, e, operands.get("activation", "silu"))
    return _grouped.outcome(value, limit, dtype)


def gated(
    a: NDArray[np.float64],
    d: NDArray[np.float64],
    b: NDArray[np.float64],
    e: NDArray[np.float64],
    activation: str,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """activation(a) * b, and how far off it may be where a may by d and b by e."""
    gate = gemm.activate(a, activation)
    slack = ROUNDINGS * (np.abs(a) + np.abs(gate)) * np.abs(b)
    return gate * b, SLOPE * (np.abs(b) + e) * d + np.abs(gate) * e + slack
