"""attention: softmax(scale q k^T) v, of [b, h, s, d]. Its bound is derived in `_attention`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, to_double
from ._attention import attend, dense, poison, queries

Sizes = tuple[tuple[int, int, int, int, int, int], ...]
SIZES: Sizes = (
    (0, 2, 1, 3, 4, 8), (1, 2, 2, 0, 5, 8), (2, 2, 1, 3, 0, 16), (1, 1, 1, 1, 1, 1), (1, 2, 2, 3, 7, 7),
    (2, 6, 2, 1, 13, 64), (1, 4, 1, 2, 37, 80), (1, 2, 1, 9, 6, 24), (1, 2, 2, 3, 11, 256),
    (1, 2, 1, 2, 9, 136), (1, 2, 2, 3, 9, 99),
    (1, 2, 1, 2, 530, 24), (1, 1, 1, 1, 601, 136),
)  # fmt: skip
"""(b, h, hk, s, t, d)."""
LARGE: Sizes = (
    (2, 16, 4, 1, 1027, 128),
    (1, 4, 2, 70, 150, 64),
    (1, 2, 1, 90, 90, 96),
    (2, 3, 1, 37, 41, 256),
)
BRIEF: Sizes = (
    (1, 2, 1, 3, 9, 7),
    (1, 4, 2, 3, 11, 40),
    (1, 2, 1, 1, 5, 136),
    (1, 2, 1, 1, 513, 8),
    (1, 1, 1, 1, 513, 136),
)


def _named(sizes: Sizes) -> list[dict[str, int]]:
    return [dict(zip(("b", "h", "hk", "s", "t", "d"), size)) for size in sizes]


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return _named((*SIZES, *LARGE))


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


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
    given |= dense((size["b"], size["hk"], size["t"], size["d"]), dtype, rng)
    if rng.random() < 0.5:
        given["lengths"] = rng.integers(-1, size["t"] + 3, size["b"]).astype(np.int32)
        unseen = np.arange(size["t"]) >= given["lengths"][:, None, None]  # [b, 1, t]
        poison(given, np.broadcast_to(unseen, given["k"].shape[:3]), dtype)
    return given


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    k, v = (to_double(operands[name], dtype) for name in ("k", "v"))
    b, t = k.shape[0], k.shape[2]
    lengths = np.clip(operands.get("lengths", np.full(b, t)), 0, t)
    return attend(
        operands, [(k[i, :, :n], v[i, :, :n], np.ones(n, bool)) for i, n in enumerate(lengths)], dtype
    )
