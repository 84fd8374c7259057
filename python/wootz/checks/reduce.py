"""reduce: y = op over each row.

max, min, argmax, argmin, any and all are exact; M of sum and mean is the sum of |x|, of prod |y|, and c grows
with the row. Compensated sums are exact but for what is lost of what was lost: M = |y| and a 2^-24th of the
sum of |x| for each pair of the c roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected, bound, round_to, to_double
from . import _rows
from ._rows import numbers, roundings

__all__ = ["brief", "expect", "operands", "shapes", "small"]

EXACT: dict[str, Callable[[NDArray[np.float64]], Any]] = {
    "max": lambda x: x.max(axis=1, initial=-np.inf),
    "min": lambda x: x.min(axis=1, initial=np.inf),
    "argmax": lambda x: np.argmax(x, axis=1),  # of NaN the first, as of equal numbers
    "argmin": lambda x: np.argmin(x, axis=1),
    "any": lambda x: (x != 0).any(axis=1),
    "all": lambda x: (x != 0).all(axis=1),
}


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [*_rows.shapes(format), {"m": 300, "n": 512}, {"m": 5, "n": 513}]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 9, "n": 40}, {"m": 6, "n": 520}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [*_rows.brief(format), {"m": 2, "n": 521}]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Ties for argmax; for any and all rows of one kind, with a few others or none; factors near 1."""
    op, shape = options["op"], (size["m"], size["n"])
    if op == "prod":
        return {"x": round_to(rng.choice([1.0, -1.0, 1.0078125, 0.9921875], shape), dtype)}
    if op in ("any", "all"):
        odd = rng.random(shape) < rng.choice([0.0, 1.5 / shape[1]], (shape[0], 1))
        true = odd != (op == "all")
        return {"x": round_to(np.where(true, rng.choice([1.5, np.nan, -2.0], shape), 0.0), dtype)}
    x = numbers(size, dtype, rng)
    return {"x": round_to(np.round(to_double(x, dtype)), dtype) if op.startswith("arg") else x}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, op = to_double(operands["x"], dtype), options["op"]
    with np.errstate(all="ignore"):
        if op in EXACT:
            value = EXACT[op](x).astype(np.float64)
            return Expected(value, np.zeros_like(value))
        if op == "prod":
            value = x.prod(axis=1)
            return Expected(value, bound(value, dtype, 2.0 * x.shape[1], np.abs(value)))
        share = x.shape[1] if op == "mean" else 1
        value = x.sum(axis=1) / share
        count, magnitude = roundings(x.shape[1]), np.abs(x).sum(axis=1) / share
        if options.get("accumulation") == "compensated":
            return Expected(value, bound(value, dtype, 4.0, np.abs(value) + count**2 * 2.0**-24 * magnitude))
        return Expected(value, bound(value, dtype, count, magnitude))
