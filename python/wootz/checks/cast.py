"""cast: one rounding to nearest even."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..reference import Expected, round_to, to_double
from ._flat import brief, operands, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    """Exactly what NumPy rounds to."""
    to = options["out"]
    value = to_double(round_to(to_double(operands["x"], dtype), to), to)
    return Expected(value, np.zeros_like(value))
