"""add_rms_norm: the residual is exactly the rounded sum; y as rms_norm's of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, round_to, to_double
from . import rms_norm
from ._rows import brief, numbers, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small", "updated"]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    given = rms_norm.operands(format, size, dtype, options, rng)
    return {"x": given.pop("x"), "residual": numbers(size, dtype, rng, specials=False), **given}


def _sum(operands: Mapping[str, Any], dtype: str) -> Any:
    x, residual = (to_double(operands[name], dtype).astype(np.float32) for name in ("x", "residual"))
    with np.errstate(all="ignore"):
        return to_double(round_to((x + residual).astype(np.float64), dtype), dtype)


def updated(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Expected]:
    """The float32 sum, rounded: exact."""
    total = _sum(operands, dtype)
    return {"residual": Expected(total, np.zeros_like(total))}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return rms_norm.normalised(_sum(operands, dtype), operands, dtype)
