"""log_softmax: y = x - max - log(sum of e^(x - max)), along rows.

M = |x - max| + |log of the sum| + 1, for a relative error of the sum is an absolute one of its logarithm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..reference import Expected, bound, to_double
from ._rows import brief, operands, roundings, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x = to_double(operands["x"], dtype)
    with np.errstate(all="ignore"):
        below = x - x.max(axis=1, keepdims=True, initial=-np.inf)
        shift = np.log(np.exp(below).sum(axis=1, keepdims=True))
        value = below - shift
        return Expected(
            value, bound(value, dtype, roundings(x.shape[1]), np.abs(below) + np.abs(shift) + 1.0)
        )
