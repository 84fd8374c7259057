"""rms_norm_qgemv: y = a w^T, a = x / sqrt(mean of x^2 + eps) * weight, rounded to the dtype.

The product as qgemv's of a. Before it is rounded, the kernel's a is within c * 2^-24 of the exact one (c as
in rms_norm), so rounding puts it between the roundings of the two ends: elements whose ends differ add
|w| times their distance. NaN or infinities in a row of x make a row of NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor, decode_exact
from ..formats.sample import random_tensor
from ..reference import U32, Expected, bound, round_to, to_double
from . import qgemv, rms_norm
from ._data import activations, needed
from ._rows import numbers, roundings
from .qgemv import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    w = random_tensor(needed(format, "rms_norm_qgemv"), (size["n"], size["k"]), rng, specials=False)
    x = numbers({"m": size["m"], "n": size["k"]}, dtype, rng)
    given = {"x": x, "weight": activations((size["k"],), dtype, rng), "w": w}
    return given | ({"eps": 0.25} if rng.integers(2) else {})


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    q = operands["w"]
    x, w = to_double(operands["x"], dtype), decode_exact(q)
    with np.errstate(all="ignore"):
        exact = rms_norm.normalised(x, operands, dtype).value
        step = roundings(x.shape[1]) * U32 * np.abs(exact)
        low, a, high = (to_double(round_to(exact + s, dtype), dtype) for s in (-step, 0.0, step))
        value, magnitude = a @ w.T, np.abs(a) @ np.abs(w).T
        spread = np.maximum(high - a, a - low) @ np.abs(w).T
        limit = bound(value, dtype, qgemv.roundings(q.format, x.shape[1]), magnitude)
        return Expected(value, limit + spread)
