"""scaled_gemm and scaled_gemm_mixed: y[m, n] = alpha * sum over k of x[m, k] * w[n, k], both tiled.

The value is float64 over the numbers that the codes and scales of both stand for; see _scaled for the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..formats.tiles import activations
from ..reference import Expected
from . import _scaled
from ._data import needed

ROWS = (0, 1, 3, 16, 17, 64, 127, 128, 1000)


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    """Every m, k of less than a block, ragged and of several tiles, n that rows of 16 bytes allow."""
    ks = (64, 1, 33, 130, 256, 100, 1000, 4096, 520)
    ns = (8, 8, 128, 136, 16, 264, 384, 120, 512)
    return [{"m": m, "n": n, "k": k} for m, n, k in zip(ROWS, ns, ks, strict=True)]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 130, "n": 24, "k": 70}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 5, "n": 8, "k": 70}]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    format = needed(format, "scaled_gemm")
    left = activations(format, options["activations"]) if "activations" in options else format
    return {
        "x": _scaled.quantised(left, size["m"], size["k"], rng),
        "w": _scaled.weights(format, size["n"], size["k"], rng),
        "alpha": 0.75,
    }


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w = operands["x"], operands["w"]
    alpha = float(operands.get("alpha", 1.0))
    return _scaled.product(_scaled.exact(x), _scaled.exact(w), alpha, _scaled.levels(x, w), dtype)
