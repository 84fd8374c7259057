"""qpatch_embed: see `patch_embed`; weights are what dequant gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor, decode_exact
from ..formats.sample import random_tensor
from ..reference import Expected
from ._data import needed
from .patch_embed import brief, embedded, inputs, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    kernel = {name: size[name] for name in ("kernel_h", "kernel_w")}
    field = size["c"] * kernel["kernel_h"] * kernel["kernel_w"]
    w = random_tensor(needed(format, "qpatch_embed"), (size["o"], field), rng, specials=False)
    return {**inputs(size, dtype, rng), "weight": w, **kernel}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    w = operands["weight"]
    kernel = (operands["kernel_h"], operands["kernel_w"])
    return embedded(operands, decode_exact(w), kernel, dtype, len(w.format.scales))
