"""attention_paged: attention over the tokens that a block table finds. Its bound is derived in
`_attention`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, to_double
from ._attention import attend, dense, poison, queries
from ._caches import gathered, table, unread

Sizes = tuple[tuple[int, ...], ...]
SIZES: Sizes = (
    (0, 2, 1, 3, 4, 8, 2, 8), (2, 2, 1, 3, 4, 16, 0, 16), (1, 1, 1, 1, 1, 1, 1, 1), (2, 2, 2, 2, 0, 8, 2, 16),
    (1, 2, 1, 4, 5, 20, 3, 15),
)  # fmt: skip
"""(b, h, hk, s, pages, page, blocks, d)."""
SMALL: Sizes = (
    (2, 2, 1, 1, 9, 64, 9, 40),
    (1, 1, 1, 2, 8, 64, 9, 136),
    (2, 4, 2, 1, 9, 8, 3, 64),
    (1, 4, 1, 2, 7, 3, 5, 80),
    (1, 2, 2, 3, 5, 4, 3, 200),
)
LARGE: Sizes = ((3, 16, 4, 1, 200, 16, 60, 128), (2, 4, 2, 40, 40, 32, 10, 64))
BRIEF: Sizes = (
    (1, 2, 1, 1, 8, 64, 8, 8),
    (1, 1, 1, 1, 8, 64, 8, 136),
    (2, 2, 1, 1, 5, 8, 2, 40),
    (1, 4, 1, 2, 4, 3, 2, 80),
    (1, 2, 1, 2, 4, 4, 2, 200),
)


def _named(sizes: Sizes) -> list[dict[str, int]]:
    return [dict(zip(("b", "h", "hk", "s", "pages", "page", "blocks", "d"), size)) for size in sizes]


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return _named((*SIZES, *SMALL, *LARGE))


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"sms": 1, **size} for size in _named(SMALL)]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"sms": 1, **size} for size in _named(BRIEF)]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    given = queries(size, dtype, rng)
    given |= dense((size["pages"], size["hk"], size["page"], size["d"]), dtype, rng)
    given["block_table"] = table(size, rng)
    room = size["blocks"] * size["page"]
    given["lengths"] = rng.integers(min(room, room // 2 + 1), room + 2, size["b"]).astype(np.int32)
    if size["b"] > 1 and rng.random() < 0.3:
        given["lengths"][0] = -5
    unseen = unread(given, size["pages"], size["page"])
    poison(given, np.broadcast_to(unseen[:, None], given["k"].shape[:3]), dtype)
    return given


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    caches = {**operands, **{name: to_double(operands[name], dtype) for name in ("k", "v")}}
    keys = []
    for entry in range(len(operands["lengths"])):
        k, there = gathered(caches, "k", entry)
        keys.append((k, gathered(caches, "v", entry)[0], there))
    return attend(operands, keys, dtype)
