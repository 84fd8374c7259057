"""grouped_gemm_indexed: groups as in grouped_qmm_indexed, dense weights of x's type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected
from . import _grouped_dense, grouped_qmm_indexed


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return grouped_qmm_indexed.shapes(format)


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return grouped_qmm_indexed.small(format)


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return grouped_qmm_indexed.brief(format)


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    groups, rows, experts, n, k = (size[name] for name in ("groups", "rows", "experts", "n", "k"))
    return {
        "x": _grouped_dense.blocks((groups, rows, k), dtype, rng),
        "w": _grouped_dense.blocks((experts, n, k), dtype, rng),
        "indices": grouped_qmm_indexed.indices(groups, experts, rng),
    }


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return _grouped_dense.indexed(operands, dtype, dtype)
