"""qmm: y[m, n] = sum over k of x[m, k] * w[n, k], w quantised, for any m.

As qgemv, and weights may be rounded once to the type of 16-bit activations, as matrix instructions take
them. Those roundings, u |w x| each (half a step of the least subnormal near zero, u tiny |x|), are
independent of the signs of x: their sum is within 6 times the root of the sum of their squares. Weights past
the range of that type are infinite there, so none are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor, decode_exact, quantize
from ..formats.sample import random_tensor
from ..reference import DTYPES, Expected, bound, round_to, to_double
from ._data import activations, block_rows, columns, needed
from .qgemv import roundings

SPREAD = 6.0
ROWS = (0, 1, 3, 16, 17, 64, 127, 128, 1000)


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    format = needed(format, "qmm")
    ks = [*columns(format), 1000, 200]
    ns = [5, 1, 67, block_rows(format) + 2, 1030, 260, 200, 131, 70]
    return [{"m": m, "n": n, "k": k} for m, n, k in zip(ROWS, ns, ks, strict=True)]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 65, "n": 67, "k": 83}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 5, "n": 67, "k": 81}]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    shape = (size["n"], size["k"])
    w = random_tensor(needed(format, "qmm"), shape, rng, specials=False)
    with np.errstate(over="ignore"):
        if not np.isfinite(to_double(round_to(decode_exact(w), dtype), dtype)).all():
            w = quantize(rng.standard_normal(shape).astype(np.float32), w.format)
    return {"x": activations((size["m"], size["k"]), dtype, rng), "w": w}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    q = operands["w"]
    x, weights = to_double(operands["x"], dtype), decode_exact(q)
    with np.errstate(all="ignore"):
        value = x @ weights.T
        limit = bound(value, dtype, roundings(q.format, q.shape[1]), np.abs(x) @ np.abs(weights).T)
    if dtype == "f32":
        return Expected(value, limit)
    unit, tiny, _ = DTYPES[dtype]
    squares = np.square(x) @ np.square(np.maximum(np.abs(weights), tiny)).T
    return Expected(value, limit + SPREAD * unit * np.sqrt(squares))
