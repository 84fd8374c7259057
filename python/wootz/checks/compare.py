"""compare: y = a op b, bools; exact. A quarter of the pairs are equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, to_double
from ._data import activations
from ._shapes import brief, shapes, shapes_of, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]

OPERATIONS = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal,
}  # fmt: skip


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    a, b = (activations(shape, dtype, rng, specials=True) for shape in shapes_of(size)[:2])
    if a.shape == b.shape:
        b = np.where(rng.random(b.shape) < 0.25, a, b)
    return {"a": a, "b": b}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    a, b = to_double(operands["a"], dtype), to_double(operands["b"], dtype)
    value = OPERATIONS[options["op"]](a, b).astype(np.float64)
    return Expected(value, np.zeros_like(value))
