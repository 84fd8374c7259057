"""Sizes of kernels over arrays of any shape, and the data of those that take one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ._data import activations


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": n} for n in (1, 7, 64, 255, 1031, 10007)]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": n} for n in (2048, 4103)]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": n} for n in (7, 2051)]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return {"x": activations((size["n"],), dtype, rng, specials=True)}
