"""copy: bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..reference import Expected, to_double
from ._flat import brief, operands, shapes, small

__all__ = ["bits", "brief", "expect", "operands", "shapes", "small"]


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    """y = x."""
    value = to_double(operands["x"], dtype)
    return Expected(value, np.zeros_like(value))


def bits(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Any]:
    return {"y": operands["x"]}
