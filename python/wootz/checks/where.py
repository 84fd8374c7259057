"""where: y = a where the condition holds, else b; exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, to_double
from ._data import activations
from ._shapes import brief, shapes, shapes_of, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    condition, a, b = shapes_of(size)
    return {
        "condition": rng.integers(0, 2, condition).astype(np.uint8),
        "a": activations(a, dtype, rng, specials=True),
        "b": activations(b, dtype, rng, specials=True),
    }


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    value = np.where(operands["condition"] != 0, *(to_double(operands[n], dtype) for n in ("a", "b")))
    return Expected(value, np.zeros_like(value))
