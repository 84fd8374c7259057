"""transpose: the last two of three axes change places, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected
from ._moved import moved, raw

SIZES = (
    (0, 3, 8), (1, 1, 1), (2, 7, 3), (1, 64, 64), (3, 65, 33), (2, 144, 208), (1, 16, 2064), (1, 2049, 31),
    (5, 48, 16), (1, 1, 4100), (1, 300, 1000),
)  # fmt: skip
"""(b, m, n): nothing, one number, ragged; one tile; several, whole and not; long and thin either way."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"b": b, "m": m, "n": n} for b, m, n in SIZES]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"b": b, "m": m, "n": n} for b, m, n in ((2, 7, 3), (2, 48, 144), (1, 33, 65))]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return {"x": raw((size["b"], size["m"], size["n"]), dtype, rng)}


def bits(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Any]:
    return {"y": operands["x"].swapaxes(1, 2).copy()}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return moved(bits(operands, dtype, options)["y"], dtype)
