"""binary_broadcast: as binary, of operands that broadcast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ._data import activations
from ._shapes import brief, shapes, shapes_of, small
from .binary import expect

__all__ = ["brief", "expect", "operands", "shapes", "small"]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return {n: activations(shape, dtype, rng, specials=True) for n, shape in zip("ab", shapes_of(size))}
