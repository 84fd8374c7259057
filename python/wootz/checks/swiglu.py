"""swiglu: y = silu(gate) * up. c and M as for silu, times |up|."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, bound, to_double
from ._data import activations
from .unary import OPERATIONS, TINY, precision

SIZES = ((0, 4), (1, 2), (3, 14), (5, 64), (17, 1000), (4, 2048), (3, 4098))
"""(m, k): none, one number, ragged, whole vectors."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": m, "k": k} for m, k in SIZES]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 130, "k": 48}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 3, "k": 14}, {"m": 5, "k": 64}]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Infinities are in the gate alone: what they open, a gate that underflows would decide on."""
    x = activations((size["m"], size["k"]), dtype, rng, specials=True)
    up = np.arange(size["k"]) >= size["k"] // 2
    return {"x": np.where(np.isinf(to_double(x, dtype)) & up, activations(x.shape, dtype, rng), x)}


def gated(x: Any, dtype: str, op: str, options: Mapping[str, str]) -> Expected:
    """By the reference of a unary op."""
    activation: Callable[..., Any] = OPERATIONS[op][0]
    roundings, magnitude = precision(op, options)
    with np.errstate(all="ignore"):
        gate, up = np.split(to_double(x, dtype), 2, axis=1)
        opened = activation(gate)
        value = opened * up
        size = (magnitude(gate, opened) + TINY) * np.abs(up)
        return Expected(value, bound(value, dtype, roundings + 4, size))


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return gated(operands["x"], dtype, "silu", options)
