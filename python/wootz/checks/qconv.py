"""qconv: see `_conv`; weights are what dequant gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor, decode_exact
from ..formats.sample import random_tensor
from ..reference import Expected
from . import _conv
from ._data import needed
from .conv import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    case = _conv.case_of(size)
    w = random_tensor(needed(format, "qconv"), (case.o, case.field), rng, specials=False)
    kernel = {f"kernel_{axis}": extent for axis, extent in zip(_conv.AXES, case.kernel)}
    return {**_conv.inputs(case, dtype, rng), "weight": w, **kernel}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    w = operands["weight"]
    kernel = tuple(operands[f"kernel_{axis}"] for axis in _conv.AXES)
    return _conv.expected(operands, decode_exact(w), kernel, dtype, len(w.format.scales))
