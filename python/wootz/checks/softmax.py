"""softmax: y = e^(x - max) / sum, along rows.

M = y times 1 + |x - max|, for a rounding of the exponent counts that often; c grows with the sum. With fast
math an exponential is within 3 + 2 |x| ulp: six such M, and as many of their mean, weighted by y, in the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..reference import Expected, bound, to_double
from ._rows import brief, operands, roundings, shapes, small

__all__ = ["FAST", "brief", "expect", "operands", "shapes", "small"]


FAST = 6.0
"""Half units of an exponential, per 1 + |x|, with fast math."""


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x = to_double(operands["x"], dtype)
    with np.errstate(all="ignore"):
        below = x - x.max(axis=1, keepdims=True, initial=-np.inf)
        power = np.exp(below)
        value = power / power.sum(axis=1, keepdims=True)
        counted = 1.0 + np.minimum(np.abs(below), 200.0)
        if options.get("math") == "fast":
            counted = counted + FAST / 20.0 * (counted + (value * counted).sum(axis=1, keepdims=True))
        magnitude = value * counted + 2.0**-126
    return Expected(value, bound(value, dtype, roundings(x.shape[1]), magnitude))
