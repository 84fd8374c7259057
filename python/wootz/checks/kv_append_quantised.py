"""kv_append_quantised: the bytes of wootz.quantize, a row at a time; exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor, quantize
from ..formats.sample import random_tensor
from ..reference import Expected, to_double
from ._caches import in_pages, lengths, moves, rows, table
from ._data import needed

SIZES = (
    (0, 1, 2, 32, 4, 2, 8), (1, 1, 1, 1, 1, 1, 1), (3, 1, 2, 72, 4, 3, 64), (2, 5, 3, 63, 3, 3, 80),
    (2, 3, 2, 64, 16, 0, 16), (2, 7, 1, 67, 8, 4, 133), (2, 2, 2, 7, 4, 2, 8),
)  # fmt: skip
"""(b, s, hk, rows, page, blocks, d)."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    names = ("b", "s", "hk", "rows", "page", "blocks", "d")
    return [dict(zip(names, size)) for size in (*SIZES, (4, 32, 4, 2560, 16, 5, 128))]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"b": 2, "s": 5, "hk": 3, "rows": 63, "page": 3, "blocks": 3, "d": 80}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return shapes(format)[2:7:3]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    format, page = needed(format, "kv_append_quantised"), size["page"]
    given = rows(size, size["blocks"] * page, dtype, rng)
    given["block_table"] = table({**size, "pages": size["rows"] // (size["hk"] * page)}, rng)
    for name in ("k_cache", "v_cache"):
        given[name] = random_tensor(format, (size["rows"], size["d"]), rng, specials=False)
    return given | {"page": page}


def _room(operands: Mapping[str, Any]) -> int:
    return int(operands["block_table"].shape[1] * operands["page"])


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return lengths(operands, _room(operands))


def updated(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Expected]:
    found: dict[str, Expected] = {}
    page, hk = operands["page"], operands["k"].shape[2]
    place = in_pages(operands["block_table"], page, operands["k_cache"].shape[0] // (hk * page))
    for name in ("k", "v"):
        x, cache = to_double(operands[name], dtype).astype(np.float32), operands[f"{name}_cache"]
        fields = {field: array.copy() for field, array in cache.fields.items()}
        for (entry, i, head), (number, token) in moves(operands, _room(operands), place):
            made = quantize(x[entry, i, head][None], cache.format, nan="zero")
            for field, array in fields.items():
                array[(number * hk + head) * page + token] = made.fields[field][0]
        for field, array in fields.items():
            value = array.view(np.uint8).astype(np.float64)
            found[f"{name}_cache.{field}"] = Expected(value, np.zeros_like(value))
    return found
