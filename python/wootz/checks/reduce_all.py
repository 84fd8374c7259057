"""reduce_all: reduce, of one row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected
from . import reduce


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    """One block and many, whole vectors and not."""
    return [{"n": n} for n in (1, 7, 64, 1031, 16384, 16392, 70001, 131080, 20_000_003)]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": 7}, {"n": 32776}]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    row = reduce.operands(format, {"m": 1, "n": size["n"]}, dtype, options, rng)
    return {"x": row["x"][0]}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    row = reduce.expect({"x": operands["x"][None, :]}, dtype, options)
    return Expected(row.value[0], row.bound[0])
