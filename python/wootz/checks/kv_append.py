"""kv_append: bits that are moved, and lengths; exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected
from ._caches import appended, caches, lengths, rows

SIZES = (
    (0, 1, 2, 4, 8),
    (1, 1, 1, 1, 1),
    (3, 1, 2, 9, 64),
    (2, 5, 3, 4, 80),
    (4, 3, 2, 0, 16),
    (3, 7, 1, 30, 13),
)
"""(b, s, hk, t, d)."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [dict(zip(("b", "s", "hk", "t", "d"), size)) for size in (*SIZES, (8, 64, 8, 300, 128))]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return shapes(format)[2:4] + shapes(format)[5:6]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    cache = (size["b"], size["hk"], size["t"], size["d"])
    return rows(size, size["t"], dtype, rng) | caches(cache, dtype, rng)


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return lengths(operands, operands["k_cache"].shape[2])


def updated(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Expected]:
    return appended(operands, operands["k_cache"].shape[2], lambda entry, token: (entry, token), dtype)
