"""geglu: y = gelu(gate) * up. c and M as for gelu, times |up|."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..reference import Expected
from .swiglu import brief, gated, operands, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]

_OPS = {"none": "gelu", "tanh": "gelu_tanh"}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return gated(operands["x"], dtype, _OPS[options["approximate"]], options)
