"""qmm_packed: y[m, n] = sum over k of x[m, k] * w[n, k], w in the packed layout, for any m.

As qgemv where every number of a format's element is one of x's type and scales are powers of two: rounding
them with the weights is exact then, and where scales multiply sums nothing is rounded either. Else each
weight is rounded to x's type, as in qmm: u |w x| a product, at least u tiny |x|, independent of the signs of
x, so that their sum is within 6 times their root of squares. A wrong scale or an accumulator of 16 bits is
not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ..formats import Descriptor, decode_exact
from ..formats.packed import Packing, prepack, unpack
from ..formats.sample import random_tensor
from ..reference import DTYPES, Expected, bound, round_to, to_double
from ._data import activations, block_rows, columns, needed, with_large_scales
from .qgemv import roundings
from .qmm import ROWS, SPREAD

STEP = 16
"""Columns of one matrix instruction: scales that change within them cannot wait for its sums."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    format = needed(format, "qmm_packed")
    whole = [8, 264, 1032, 520, 40, 256, 1544, 136, 72]
    odd = [*columns(format), 5, 261]
    ns = [5, 1, 67, block_rows(format) + 2, 17, 64, 33, 129, 70]
    sizes = zip((*ROWS, *ROWS), (*ns, *reversed(ns)), (*whole, *odd), strict=True)
    return [{"m": m, "n": n, "k": k} for m, n, k in sizes] + [{"m": 16, "n": 4104, "k": 4224}]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((8, 40, 2600), (2, 19, 520), (9, 35, 1304), (64, 130, 264), (65, 72, 272), (1, 83, 67))
    return [{"m": m, "n": n, "k": k} for m, n, k in sizes]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((3, 18, 1544), (16, 33, 528), (17, 65, 272), (66, 67, 264), (2, 17, 267))
    return [{"m": m, "n": n, "k": k} for m, n, k in sizes]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
    plain: bool = False,
) -> dict[str, Any]:
    """plain: weights of usual scales alone."""
    w = random_tensor(needed(format, "qmm_packed"), (size["n"], size["k"]), rng, specials=False)
    w = w if plain else with_large_scales(w)
    return {"x": activations((size["m"], size["k"]), dtype, rng), "w": prepack(w)}


plain = partial(operands, plain=True)


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return outcome(operands, dtype, rounded=not powers(operands["w"].format))


def powers(format: Descriptor) -> bool:
    """Whether all scales are powers of two."""
    return all(scale.element.kind == "exponent" for scale in format.scales)


def outcome(operands: Mapping[str, Any], dtype: str, rounded: bool) -> Expected:
    """rounded: whether scales may go into weights even where a format does not ask for that."""
    q = unpack(operands["w"])
    x, weights = to_double(operands["x"], dtype), decode_exact(q)
    with np.errstate(all="ignore"):
        value = x @ weights.T
        limit = bound(value, dtype, roundings(q.format, q.shape[1]), np.abs(x) @ np.abs(weights).T)
    if enter_whole(q.format, dtype) and not rounded:
        return Expected(value, limit)
    unit, tiny, _ = DTYPES[dtype]
    squares = np.square(x) @ np.square(np.maximum(np.abs(weights), tiny)).T
    return Expected(value, limit + SPREAD * unit * np.sqrt(squares))


def enter_whole(format: Descriptor, dtype: str) -> bool:
    """Whether weights can enter the product as they are: all numbers, less narrow zero points, are of x's
    type, and nothing but scales that last for a whole step is applied to them."""
    numbers, zero = format.element.values.astype(np.float64), format.zero
    if zero is not None:
        if zero.domain != "code" or zero.element.wide:
            return False
        numbers = np.concatenate([numbers, *(numbers - z - zero.minus_one for z in zero.element.values)])
    with np.errstate(all="ignore"):
        held = to_double(round_to(numbers, dtype), dtype)
    return bool(np.all((held == numbers) | np.isnan(numbers))) and Packing.of(format).run >= STEP
