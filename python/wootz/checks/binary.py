"""binary: y = a op b, elementwise.

min and max are bit for bit, and NaN propagates as in numpy.minimum. M = |y| for the others: c = 0 for
float32 output (one correctly rounded operation), 1 for f16 and bf16, which are rounded twice; 4 for div:
2.5 ulp, which every backend's float32 division keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..formats import Descriptor
from ..reference import Expected, bound, to_double
from ._data import activations
from ._flat import brief, shapes, small

__all__ = ["OPERATIONS", "brief", "expect", "operands", "shapes", "small"]

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return {name: activations((size["n"],), dtype, rng, specials=True) for name in ("a", "b")}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    """Raises ArgumentError for an op that there is not."""
    op = options["op"]
    if op not in OPERATIONS:
        raise ArgumentError(f"op: wanted one of {', '.join(OPERATIONS)}; got {op!r}")
    with np.errstate(all="ignore"):
        value: NDArray[np.float64] = OPERATIONS[op](*(to_double(operands[n], dtype) for n in ("a", "b")))
    if op in ("min", "max"):
        return Expected(value, np.zeros_like(value))
    roundings = 4.0 if op == "div" else 0.0 if dtype == "f32" else 1.0
    return Expected(value, bound(value, dtype, roundings, np.abs(value)))
