"""kv_append_paged: kv_append, with tokens in pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected
from ._caches import appended, caches, in_pages, lengths, rows, table

SIZES = (
    (0, 1, 2, 3, 4, 2, 8), (1, 1, 1, 1, 1, 1, 1), (3, 1, 2, 9, 4, 3, 64), (2, 5, 3, 7, 3, 3, 80),
    (2, 3, 2, 2, 16, 0, 16), (3, 7, 1, 20, 8, 4, 13), (2, 2, 2, 0, 4, 2, 8),
)  # fmt: skip
"""(b, s, hk, pages, page, blocks, d)."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    names = ("b", "s", "hk", "pages", "page", "blocks", "d")
    return [dict(zip(names, size)) for size in (*SIZES, (8, 64, 8, 40, 16, 5, 128))]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return shapes(format)[2:7]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    cache = (size["pages"], size["hk"], size["page"], size["d"])
    given = rows(size, size["blocks"] * size["page"], dtype, rng)
    return given | {"block_table": table(size, rng), **caches(cache, dtype, rng)}


def _room(operands: Mapping[str, Any]) -> int:
    return int(operands["block_table"].shape[1] * operands["k_cache"].shape[2])


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return lengths(operands, _room(operands))


def updated(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Expected]:
    pages, _, page, _ = operands["k_cache"].shape
    return appended(operands, _room(operands), in_pages(operands["block_table"], page, pages), dtype)
