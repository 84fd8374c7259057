"""attention_quantised: attention over quantised rows that a block table finds. Its bound is derived in
`_attention`; every number of k and v has the roundings of its decoding, too, one a scale and one for a zero
point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor, decode_exact
from ..formats.sample import random_tensor
from ..reference import Expected
from ._attention import attend, queries
from ._caches import gathered, table, unread
from ._data import needed

Sizes = tuple[tuple[int, ...], ...]
SIZES: Sizes = ((0, 2, 1, 3, 64, 16, 2, 8), (2, 2, 1, 3, 64, 16, 0, 16), (1, 2, 1, 1, 33, 16, 1, 8))
SMALL: Sizes = (
    (1, 2, 1, 1, 576, 64, 9, 40),
    (1, 1, 1, 2, 576, 64, 9, 136),
    (2, 4, 2, 2, 230, 16, 3, 64),
    (1, 2, 2, 1, 256, 32, 2, 200),
    (1, 2, 1, 5, 40, 16, 2, 80),
)
LARGE: Sizes = ((2, 8, 2, 1, 5760, 32, 40, 128),)
"""(b, h, kv_heads, s, rows, page, blocks, d)."""


def _named(sizes: Sizes) -> list[dict[str, int]]:
    return [dict(zip(("b", "h", "kv_heads", "s", "rows", "page", "blocks", "d"), size)) for size in sizes]


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return _named((*SIZES, *SMALL, *LARGE))


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"sms": 1, **size} for size in _named(SMALL)]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"sms": 1, **size} for size in _named((*SMALL[:2], SIZES[2], (1, 2, 2, 1, 96, 16, 1, 200)))]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    format, heads, page = needed(format, "attention_quantised"), size["kv_heads"], size["page"]
    given = queries(size, dtype, rng)
    for name in ("k", "v"):
        given[name] = random_tensor(format, (size["rows"], size["d"]), rng, specials=False)
    pages = {**size, "pages": size["rows"] // (heads * page)}
    given["block_table"] = table(pages, rng)
    room = size["blocks"] * page
    given["lengths"] = rng.integers(min(room, room // 2 + 1), room + 2, size["b"]).astype(np.int32)
    unseen = np.broadcast_to(unread(given, pages["pages"], page)[:, None], (pages["pages"], heads, page))
    for array in (a for name in ("k", "v") for a in given[name].fields.values()):
        if array.ndim == 2 and len(array) == size["rows"]:  # of one row: ones are NaN, if any
            array[: unseen.size].view(np.uint8)[unseen.ravel()] = 0xFF
    return given | {"kv_heads": heads, "page": page}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    heads, page, caches = operands["kv_heads"], operands["page"], dict(operands)
    for name in ("k", "v"):
        q = operands[name]
        pages = q.shape[0] // (heads * page)
        caches[name] = decode_exact(q)[: pages * heads * page].reshape(pages, heads, page, q.shape[1])
    keys = []
    for entry in range(len(operands["lengths"])):
        k, there = gathered(caches, "k", entry)
        keys.append((k, gathered(caches, "v", entry)[0], there))
    format = operands["k"].format
    return attend(operands, keys, dtype, float(len(format.scales) + bool(format.zero)))
