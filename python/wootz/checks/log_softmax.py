"""log_softmax: y = x - max - log(sum of e^(x - max)), along rows.

M = |x - max| + |log of the sum| + 1, for a relative error of the sum is an absolute one of its logarithm;
with fast math what the exponentials of the sum add (see softmax).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..reference import Expected, bound, to_double
from ._rows import brief, operands, roundings, shapes, small
from .softmax import FAST

__all__ = ["brief", "expect", "operands", "shapes", "small"]


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x = to_double(operands["x"], dtype)
    with np.errstate(all="ignore"):
        below = x - x.max(axis=1, keepdims=True, initial=-np.inf)
        shift = np.log(np.exp(below).sum(axis=1, keepdims=True))
        value = below - shift
        magnitude = np.abs(below) + np.abs(shift) + 1.0
        if options.get("math") == "fast":
            counted = np.exp(value) * (1.0 + np.minimum(np.abs(below), 200.0))
            magnitude = magnitude + FAST / 20.0 * counted.sum(axis=1, keepdims=True)
        return Expected(value, bound(value, dtype, roundings(x.shape[1]), magnitude))
