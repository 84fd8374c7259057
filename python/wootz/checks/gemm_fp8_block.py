"""gemm_fp8_block: y[m, n] = sum over blocks of 128 along k of scale_a * scale_b * (a b^T).

M = sum over blocks of scale_a scale_b sum |a||b|; c as in gemm_fp8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, bound, to_double
from . import gemm_fp8
from .gemm_fp8 import CHOPPED, codes, scales

BLOCK = 128

LONG = {"m": 1000, "n": 4232, "k": 1168}
"""More tiles than a GPU has multiprocessors, each of more blocks than a ring has slots."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [*(_plain(size) for size in gemm_fp8.shapes(format)), LONG]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [_plain(size) for size in gemm_fp8.small(format)]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [_plain(size) for size in gemm_fp8.brief(format)]


def _plain(size: dict[str, int]) -> dict[str, int]:
    return {name: extent for name, extent in size.items() if not name.startswith("rows_")}


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    m, n, k = size["m"], size["n"], size["k"]
    blocks = -(-k // BLOCK)
    return {
        "a": codes((m, k), dtype, rng),
        "b": codes((n, k), dtype, rng),
        "scale_a": scales((blocks, -(-m // 4) * 4), rng),
        "scale_b": scales((-(-n // BLOCK), blocks), rng),
    }


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    a, b = to_double(operands["a"], dtype), to_double(operands["b"], dtype)
    n, k = b.shape
    along_k = np.repeat(to_double(operands["scale_a"], "f32").T[: len(a)], BLOCK, axis=1)[:, :k]
    whole = np.repeat(np.repeat(to_double(operands["scale_b"], "f32"), BLOCK, axis=0), BLOCK, axis=1)
    a, b = a * along_k, b * whole[:n, :k]
    value, magnitude = a @ b.T, np.abs(a) @ np.abs(b).T
    return Expected(value, bound(value, options["out"], CHOPPED + math.sqrt(k), magnitude))
