"""grouped_gemm: groups as in grouped_qmm, dense weights of x's type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected
from . import _grouped, _grouped_dense, grouped_qmm


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return grouped_qmm.shapes(format)


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return grouped_qmm.small(format)


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return grouped_qmm.brief(format)


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    m, experts, n, k = (size[name] for name in ("m", "experts", "n", "k"))
    counts, offsets = _grouped.spread(m, experts, rng)
    return {
        "x": _grouped_dense.blocks((m, k), dtype, rng),
        "w": _grouped_dense.blocks((experts, n, k), dtype, rng),
        "counts": counts,
        "offsets": offsets,
    }


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return _grouped_dense.variable(operands, dtype, dtype)
