"""dequant: the numbers that a tensor's codes stand for.

M = |y|, c = 2 (1 ulp) where scale levels or a zero point are combined, and no error at all before the
output's rounding for one scale alone: the reference is the kernels' own float32 order, not float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor, QuantizedTensor, decode
from ..formats.dequantize import expand, zero_values
from ..formats.sample import random_tensor
from ..formats.tensor import side_entries
from ..reference import U32, Expected, bound
from ._data import block_rows, columns, needed


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    format = needed(format, "dequant")
    ns = [1, 3, 2, block_rows(format) + 2, 1, 5, 33]
    sizes = [{"n": n, "k": k} for n, k in zip(ns, columns(format), strict=True)]
    return [*sizes, {"n": 301, "k": 4 * format.layout.chunk * format.layout.unit}]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": 5, "k": 2087}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    """Rows of whole vectors, and others."""
    last = columns(needed(format, "dequant"))[-1]
    return [{"n": 3, "k": last}, {"n": 2, "k": last - 3}]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return {"w": random_tensor(needed(format, "dequant"), (size["n"], size["k"]), rng, specials=True)}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    """y[n, k] = the number that w[n, k] stands for."""
    q: QuantizedTensor = operands["w"]
    value = decode(q).astype(np.float64)
    extra = 2.0 if len(q.format.scales) > 1 or q.format.zero else 0.0
    if dtype == "f32" and not extra:
        return Expected(value, np.zeros_like(value))
    magnitude = np.abs(value)
    if q.format.zero is not None and q.format.zero.domain == "value" and len(q.format.scales) > 1:
        magnitude = magnitude + 2 * np.abs(_zeros(q))  # s is rounded before v * s and z cancel
    if dtype == "f32":
        return Expected(value, extra * U32 * magnitude + U32 * 2.0**-126)
    return Expected(value, bound(value, dtype, extra, magnitude))


def _zeros(q: QuantizedTensor) -> NDArray[np.float64]:
    zero = zero_values(q.format, side_entries(q))
    if zero is None:
        return np.zeros(q.shape)
    n, k = q.shape
    return expand(zero.astype(np.float64), q.format.block, (n, k), 0, n)
