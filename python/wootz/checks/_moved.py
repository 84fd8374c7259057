"""Random bits, for kernels that move them: every NaN there is among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..reference import DTYPES, Expected, to_double


def raw(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> NDArray[Any]:
    """Numbers of any bits, in storage form."""
    storage = np.dtype(DTYPES[dtype][2])
    size = int(np.prod(shape))
    bits: NDArray[Any] = rng.integers(0, 256, size * storage.itemsize, np.uint8).view(storage)
    return bits.reshape(shape)


def moved(bits: NDArray[Any], dtype: str) -> Expected:
    """These bits and no others, as far as numbers tell."""
    value = to_double(bits, dtype)
    return Expected(value, np.zeros_like(value))
