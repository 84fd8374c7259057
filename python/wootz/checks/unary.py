"""unary: y = op(x), elementwise.

c counts half units in the last place of float32: twice what the languages promise for their precise functions
(CUDA C++ Programming Guide, mathematical functions; Metal Shading Language, table of ulp errors), the larger
of the two, and the roundings of what is made of them. M = |y|, and for the bells' tails |y| times how much a
rounding of x counts there. Ops that only choose among numbers are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..reference import Expected, bound, to_double
from ._flat import brief, operands, shapes, small

__all__ = ["OPERATIONS", "brief", "expect", "operands", "precision", "shapes", "small"]

Array = NDArray[np.float64]
erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])
TINY = 2.0**-126


def sigmoid(x: Array) -> Array:
    power = np.exp(-np.abs(x))
    return np.where(x < 0, power, 1.0) / (1.0 + power)


def silu(x: Array) -> Array:
    return np.where(x == -np.inf, 0.0, x * sigmoid(x))


def gelu(x: Array) -> Array:
    """With erf; by erfc, so that its tail keeps digits."""
    return np.where(x == -np.inf, 0.0, 0.5 * x * erfc(-x / math.sqrt(2.0)))


def gelu_tanh(x: Array) -> Array:
    angle = 2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
    return np.where(x == -np.inf, 0.0, x * sigmoid(angle))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _same(x: Array, y: Array) -> Array:
    return np.abs(y)


def with_x(x: Array, y: Array) -> Array:
    """Where a factor may be subnormal and x is not."""
    return np.abs(y) + np.abs(x) * TINY


def tail(x: Array, y: Array) -> Array:
    """e^(-x^2/2): a relative error of x counts x^2 times."""
    return np.where(np.abs(x) < 30, np.abs(y) * (1.0 + x * x), np.abs(y)) + TINY


def cubic_tail(x: Array, y: Array) -> Array:
    return np.where(np.abs(x) < 30, np.abs(y) * (1.0 + np.abs(x) ** 3), np.abs(y)) + TINY


def exponent(x: Array, y: Array) -> Array:
    """A relative error that grows with the exponent."""
    return with_x(x, y) * (1.0 + np.minimum(np.abs(x), 200.0))


OPERATIONS: dict[str, tuple[Callable[[Array], Any], float, Callable[[Array, Array], Array]]] = {
    "abs": (np.abs, 0, _same),
    "neg": (np.negative, 0, _same),
    "floor": (np.floor, 0, _same),
    "ceil": (np.ceil, 0, _same),
    "round": (np.rint, 0, _same),
    "trunc": (np.trunc, 0, _same),
    "sign": (np.sign, 0, _same),
    "relu": (lambda x: np.maximum(x, 0.0), 0, _same),
    "logical_not": (lambda x: x == 0, 0, _same),
    "square": (np.square, 2, _same),
    "reciprocal": (lambda x: 1.0 / x, 4, _same),
    "sqrt": (np.sqrt, 2, _same),
    "rsqrt": (lambda x: 1.0 / np.sqrt(x), 4, _same),
    "exp": (np.exp, 8, _same),
    "exp2": (np.exp2, 8, _same),
    "expm1": (np.expm1, 16, _same),
    "log": (np.log, 8, _same),
    "log2": (np.log2, 8, _same),
    "log1p": (np.log1p, 16, _same),
    "sin": (np.sin, 8, _same),
    "cos": (np.cos, 8, _same),
    "tan": (np.tan, 24, _same),
    "tanh": (np.tanh, 10, _same),
    "erf": (erf, 6, _same),
    "sigmoid": (sigmoid, 16, with_x),
    "silu": (silu, 16, with_x),
    "softplus": (softplus, 24, _same),
    "gelu": (gelu, 24, tail),
    "gelu_tanh": (gelu_tanh, 24, cubic_tail),
}
"""op: (its float64 function, c, M)."""


FAST: dict[str, tuple[float, Callable[[Array, Array], Array]]] = {
    "exp": (6, exponent),
    "sigmoid": (16 + 6 + 5, exponent),
    "silu": (16 + 6 + 5, exponent),
    "gelu": (24 + 6 + 5, tail),
    "gelu_tanh": (24 + 13 + 5, cubic_tail),
}
"""op: (c, M) with fast math: exponentials within 3 + 2 |x| ulp, 6 + 4 |x| halves, quotients within 2.5.
gelu's is of x^2 / 2, gelu_tanh's of 1.6 |x| + 0.072 |x|^3: 6 + 6.4 |x| + 0.29 |x|^3 is at most
13 (1 + |x|^3)."""


def precision(op: str, options: Mapping[str, str]) -> tuple[float, Callable[[Array, Array], Array]]:
    """c and M of an op, as precise as a call asks for."""
    return FAST[op] if options.get("math") == "fast" else OPERATIONS[op][1:]


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    """Raises ArgumentError for an op that there is not."""
    op = options["op"]
    if op not in OPERATIONS:
        raise ArgumentError(f"op: wanted one of {', '.join(OPERATIONS)}; got {op!r}")
    function, (roundings, magnitude) = OPERATIONS[op][0], precision(op, options)
    x = to_double(operands["x"], dtype)
    with np.errstate(all="ignore"):
        value = np.asarray(function(x), dtype=np.float64)
        if not roundings:
            return Expected(value, np.zeros_like(value))
        return Expected(value, bound(value, dtype, roundings, magnitude(x, value) + TINY))
