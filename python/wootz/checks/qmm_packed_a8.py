"""qmm_packed_a8: y[m, n] = scale_x[m] * sum over k of x[m, k] * w[n, k], x of 8 bits, w in the packed layout.

Weights enter the product exactly. M = |scale_x| sum |w||x|, c = 5 + levels + sqrt(K): as for qgemv, and one
rounding more for scale_x; i8 sums of a run are exact and would do with less. Products of 8-bit floats are
added as in gemm_fp8, with as little as 13 bits below the largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor, decode_exact
from ..formats.packed import prepack, unpack
from ..formats.sample import random_tensor
from ..reference import Expected, bound, to_double
from ._data import needed
from .gemm_fp8 import CHOPPED, codes
from .qgemv import roundings
from .qmm import ROWS


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    ks = (16, 272, 1040, 528, 48, 256, 1552, 144, 80, 7, 3, 261, 100, 64, 33, 520, 129, 55)
    ns = (5, 1, 67, 3, 17, 64, 33, 129, 70)
    sizes = zip((*ROWS, *ROWS), (*ns, *reversed(ns)), ks, strict=True)
    return [{"m": m, "n": n, "k": k} for m, n, k in sizes]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((8, 40, 2608), (9, 35, 1312), (64, 130, 272), (65, 72, 288), (3, 83, 67))
    return [{"m": m, "n": n, "k": k} for m, n, k in sizes]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((3, 18, 1552), (16, 33, 528), (17, 65, 272), (66, 67, 272), (2, 17, 267))
    return [{"m": m, "n": n, "k": k} for m, n, k in sizes]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    m, n, k = size["m"], size["n"], size["k"]
    whole = dtype == "i8"
    x = rng.integers(-128, 128, (m, k)).astype(np.int8) if whole else codes((m, k), dtype, rng)
    scale_x = (2.0 ** rng.uniform(-8, 0, m)).astype(np.float32)
    w = random_tensor(needed(format, "qmm_packed_a8"), (n, k), rng, specials=False)
    return {"x": x, "scale_x": scale_x, "w": prepack(w)}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    q, scale = unpack(operands["w"]), operands["scale_x"].astype(np.float64)[:, None]
    x, weights = to_double(operands["x"], dtype) * scale, decode_exact(q)
    value, magnitude = x @ weights.T, np.abs(x) @ np.abs(weights).T
    c = 1.0 + roundings(q.format, q.shape[1]) + (CHOPPED if dtype == "e4m3" else 0.0)
    return Expected(value, bound(value, options["out"], c, magnitude))
