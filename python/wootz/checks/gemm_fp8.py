"""gemm_fp8: y[m, n] = scale_a * scale_b * (a[m, k] b[n, k]^T), scales of a tensor or of each row.

M = scale_a scale_b sum |a||b|. Tensor cores add products of 8-bit floats with as little as 13 bits below the
largest of them, several times before a sum reaches float32, so that c = 2^14 + sqrt(K): 2.5 times what
was seen. Sums that stay in the hardware's registers are cut there with every 32 products: c = 2^12 for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected, bound, round_to, to_double
from . import gemm

NK = ((520, 272), (77, 55), (1, 1), (136, 1040), (333, 130), (8, 16), (264, 2064), (1023, 80), (1032, 512))
"""(n, k): aligned to 16 bytes or not, shorter than a tile, ragged."""

LARGE = ((1000, 4232, 144), (300, 14344, 80))
"""(m, n, k) with more tiles than a GPU has multiprocessors."""

CHOPPED = 2.0**14
"""Unit roundoffs of float32 in eight of the last of the 13 bits."""
CUT = 2.0**12
"""Unit roundoffs in two of the last of the 13 bits: of a sum, and of what is added."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    pairs = [(m, *NK[(i + j) % len(NK)]) for i, m in enumerate(gemm.MS) for j in (0, 3, 4)]
    return [_size(*mnk, i) for i, mnk in enumerate((*pairs, *LARGE))]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((9, 24, 64, 9), (5, 3, 7, 9), (65, 17, 304, 999), (130, 257, 192, 1), (131, 40, 416, 999))
    return [{**_size(m, n, k, i), "sms": sms} for i, (m, n, k, sms) in enumerate(sizes)]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((7, 19, 96, 1), (33, 24, 288, 1), (18, 9, 160, 9), (5, 3, 7, 9))
    return [{**_size(m, n, k, i), "sms": sms} for i, (m, n, k, sms) in enumerate(sizes)]


def _size(m: int, n: int, k: int, i: int) -> dict[str, int]:
    """Every pair of one scale, and of one a row, in turn."""
    return {"m": m, "n": n, "k": k, "rows_a": m if i & 1 else 1, "rows_b": n if i & 2 else 1}


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return {
        "a": codes((size["m"], size["k"]), dtype, rng),
        "b": codes((size["n"], size["k"]), dtype, rng),
        "scale_a": scales((size["rows_a"],), rng),
        "scale_b": scales((size["rows_b"],), rng),
    }


def codes(shape: tuple[int, int], dtype: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Codes of random numbers whose mean and spread differ from block to block, none of them NaN."""
    wanted = to_double(gemm.blocks(shape, "f32", rng), "f32")
    table = to_double(np.arange(256, dtype=np.uint8), dtype)
    order = np.argsort(np.where(np.isfinite(table), table, np.inf), kind="stable")
    ordered = table[order][: np.isfinite(table).sum()]
    above = np.clip(np.searchsorted(ordered, wanted), 1, len(ordered) - 1)
    nearer = above - (wanted - ordered[above - 1] < ordered[above] - wanted)
    return order[nearer].astype(np.uint8)


def scales(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    return round_to(2.0 ** rng.uniform(-6, 2, shape), "f32")


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    a, b = to_double(operands["a"], dtype), to_double(operands["b"], dtype)
    factor = to_double(operands["scale_a"], "f32")[:, None] * to_double(operands["scale_b"], "f32")[None, :]
    value, magnitude = factor * (a @ b.T), factor * (np.abs(a) @ np.abs(b).T)
    count = CHOPPED + math.sqrt(a.shape[1])
    if options.get("matmul_precision") == "hardware":
        count += CUT * math.ceil(a.shape[1] / 32)
    return Expected(value, bound(value, options["out"], count, magnitude))
