"""conv: see `_conv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, to_double
from . import _conv
from ._data import activations


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [case.shape for case in (*_conv.CASES, *_conv.LARGE)]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [case.shape for case in _conv.BRIEF]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    case = _conv.case_of(size)
    shape = (case.o, case.channels, *case.kernel[3 - case.axes :])
    return {**_conv.inputs(case, dtype, rng), "weight": activations(shape, dtype, rng)}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    weight = to_double(operands["weight"], dtype)
    kernel = (*(1,) * (5 - weight.ndim), *weight.shape[2:])
    return _conv.expected(operands, weight.reshape(len(weight), -1), kernel, dtype, 0)
