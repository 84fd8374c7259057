"""gemv_fp8: y[m, n] = sum over k of x[m, k] * w[n, k], both E4M3 with block scales: 1 x 128 of x, 128 x 128
of w.

M = sum |w||x|, c = 6 + sqrt(K): two scalings, and float32 sums of K terms, see qgemv.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected, bound, to_double
from .gemv import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]

RUN = 128


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    runs = -(-size["k"] // RUN)
    for name, rows, scales in (("x", size["m"], size["m"]), ("w", size["n"], -(-size["n"] // RUN))):
        codes = rng.integers(0, 127, (rows, size["k"])) | rng.integers(0, 2, (rows, size["k"])) << 7
        values[name] = codes.astype(np.uint8)
        values[f"{name}_scale"] = (2.0 ** rng.uniform(-9, -5, (scales, runs))).astype(np.float32)
    return values


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w = (_values(operands[name], operands[f"{name}_scale"]) for name in ("x", "w"))
    return Expected(x @ w.T, bound(x @ w.T, dtype, 6 + np.sqrt(x.shape[1]), np.abs(x) @ np.abs(w).T))


def _values(codes: NDArray[np.uint8], scales: NDArray[np.float32]) -> NDArray[np.float64]:
    rows, columns = codes.shape
    each = RUN if scales.shape[0] != rows else 1
    whole = scales.astype(np.float64).repeat(each, 0).repeat(RUN, 1)[:rows, :columns]
    return to_double(codes, "e4m3") * whole
