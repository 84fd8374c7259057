"""cumsum: running sums along rows. M = the sums of |x| up to the column; c grows with the row."""

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
        value, magnitude = np.cumsum(x, axis=1), np.cumsum(np.abs(x), axis=1)
        if options["mode"] == "exclusive":
            value, magnitude = (np.pad(s, ((0, 0), (1, 0)))[:, :-1] for s in (value, magnitude))
        return Expected(value, bound(value, dtype, roundings(x.shape[1]), magnitude))
