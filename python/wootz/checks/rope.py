"""rope: pairs of x turned by positions[t] * theta^(-2i / rotary_dim).

M = |one| + |two| of a pair times 1 + |angle|: float32 angles are off by that many roundings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, bound, to_double
from ._data import activations

SIZES = ((0, 2, 8), (1, 1, 2), (5, 3, 64), (9, 4, 80), (3, 2, 128), (2, 1, 1024), (4, 2, 7), (70, 2, 96))
"""(t, h, d)."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"t": t, "h": h, "d": d} for t, h, d in SIZES]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"t": t, "h": h, "d": d} for t, h, d in (SIZES[2], SIZES[3], SIZES[6])]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    t, h, d = size["t"], size["h"], size["d"]
    given: dict[str, Any] = {"x": activations((t, h, d), dtype, rng)}
    given["positions"] = rng.integers(-3, 8000, t).astype(np.int32)
    kind = int(rng.integers(4))
    if kind & 1:
        given["theta"] = 500000.0
    if kind & 2:
        given["rotary_dim"] = d // 2
    return given


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x = to_double(operands["x"], dtype)
    d = x.shape[2]
    pairs = min(operands.get("rotary_dim", 0) or d, d) // 2
    power = np.arange(pairs) / max(pairs, 1)
    angle = operands["positions"][:, None].astype(np.float64) * operands.get("theta", 10000.0) ** -power
    one, two = _pair(pairs, options["layout"])
    cosine, sine = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    value, magnitude = x.copy(), np.zeros_like(x)
    value[..., one] = x[..., one] * cosine - x[..., two] * sine
    value[..., two] = x[..., two] * cosine + x[..., one] * sine
    size = (np.abs(x[..., one]) + np.abs(x[..., two])) * (1.0 + np.abs(angle)[:, None, :])
    magnitude[..., one], magnitude[..., two] = size, size
    whole = bound(value, dtype, 24.0, magnitude)
    whole[..., 2 * pairs :] = 0.0  # copied
    return Expected(value, whole)


def _pair(pairs: int, layout: str) -> tuple[slice, slice]:
    """The places of the first and second numbers of the pairs."""
    if layout == "interleaved":
        return slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    return slice(0, pairs), slice(pairs, 2 * pairs)
