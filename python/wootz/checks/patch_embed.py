"""patch_embed: y[b, t, o] = the products of an image's patches with o rows of weights, plus bias.

M = sum |w||x| + |bias|, c as in `_conv`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected, bound, to_double
from ._conv import roundings
from ._data import activations

NAMES = ("b", "c", "o", "h", "w", "kernel_h", "kernel_w")
SIZES = (
    (2, 3, 20, 8, 12, 4, 4), (1, 1, 3, 66, 64, 2, 2), (0, 3, 5, 8, 8, 4, 4), (1, 2, 130, 6, 4, 3, 2),
    (3, 1, 1, 1, 1, 1, 1), (1, 23, 17, 6, 6, 3, 3),
)  # fmt: skip
LARGE = ((2, 3, 200, 112, 112, 14, 14), (1, 3, 96, 140, 132, 4, 4), (1, 3, 17, 14, 14, 14, 7))
"""Fewer and more positions than the variant for few of them takes; ragged rows and fields; none."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [dict(zip(NAMES, some)) for some in (*SIZES, *LARGE)]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [dict(zip(NAMES, some)) for some in (SIZES[1], SIZES[5])]


def inputs(size: Mapping[str, int], dtype: str, rng: np.random.Generator) -> dict[str, Any]:
    """x, and bias where o is even."""
    x = activations((size["b"], size["c"], size["h"], size["w"]), dtype, rng)
    return {"x": x} if size["o"] % 2 else {"x": x, "bias": activations((size["o"],), dtype, rng)}


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    shape = (size["o"], size["c"], size["kernel_h"], size["kernel_w"])
    return {**inputs(size, dtype, rng), "weight": activations(shape, dtype, rng)}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    weight = to_double(operands["weight"], dtype)
    return embedded(operands, weight.reshape(len(weight), -1), weight.shape[2:], dtype, 0)


def embedded(
    operands: Mapping[str, Any],
    weights: NDArray[np.float64],
    kernel: tuple[int, ...],
    dtype: str,
    levels: int,
) -> Expected:
    """weights: [o, field]."""
    x = to_double(operands["x"], dtype)
    b, c, h, w = x.shape
    down, across = h // kernel[0], w // kernel[1]
    patches = x.reshape(b, c, down, kernel[0], across, kernel[1]).transpose(0, 2, 4, 1, 3, 5)
    patches = patches.reshape(b, down * across, weights.shape[1])
    bias = to_double(operands["bias"], dtype) if operands.get("bias") is not None else np.zeros(len(weights))
    value = patches @ weights.T + bias
    magnitude = np.abs(patches) @ np.abs(weights).T + np.abs(bias)
    return Expected(value, bound(value, dtype, roundings(weights.shape[1], levels), magnitude))
