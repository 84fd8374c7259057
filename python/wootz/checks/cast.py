"""cast: one rounding to nearest even."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, round_to, to_double
from ._data import activations
from ._flat import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return {"x": activations((size["n"],), dtype, rng, specials=True)}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    """Exactly what NumPy rounds to."""
    to = options["out"]
    value = to_double(round_to(to_double(operands["x"], dtype), to), to)
    return Expected(value, np.zeros_like(value))
