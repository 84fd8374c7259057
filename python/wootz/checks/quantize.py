"""quantize: every byte of y, as wootz.quantize gives it.

NaN takes the element's code, or counts as 0 where there is none. The operands have a tensor to write to, y,
whose bytes are all ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import lcm
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor, QuantizedTensor, quantize
from ..formats.descriptor import STORAGE
from ..reference import Expected, round_to, to_double
from ._data import ODD, block_rows, columns, needed


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    """One element, ragged blocks and chunks, whole ones, several blocks of rows and columns."""
    format = needed(format, "quantize")
    sizes = [(3, k) for k in columns(format)]
    sizes += [(block_rows(format) + 2, 7), (37, 1000), (301, 4 * format.layout.chunk * format.layout.unit)]
    return [{"n": n, "k": k} for n, k in sizes]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": 40, "k": 531}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    format = needed(format, "quantize")
    whole = lcm(format.block[1] or 1, format.layout.chunk * format.layout.unit)
    return [{"n": n, "k": k} for n, k in ((3, columns(format)[-1]), (3, whole), (2, 1))]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
    plain: bool = False,
) -> dict[str, Any]:
    """plain: numbers as those of weights, and nothing special among them."""
    format, shape = needed(format, "quantize"), (size["n"], size["k"])
    blank = {
        f.name: np.full(
            np.prod(format.field_shape(f, shape)) * np.dtype(STORAGE[f.dtype]).itemsize, 255, np.uint8
        )
        .view(STORAGE[f.dtype])
        .reshape(format.field_shape(f, shape))
        for f in format.layout.fields
    }
    x = round_to(ordinary(shape, rng) if plain else numbers(format, shape, rng), dtype)
    return {"x": x, "y": QuantizedTensor(format, shape, blank)}


plain = partial(operands, plain=True)


def ordinary(shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Normal ones, of another magnitude in each row."""
    return rng.standard_normal(shape) * 2.0 ** rng.uniform(-8, 0, (shape[0], 1))


def numbers(format: Descriptor, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Numbers of another magnitude in each run of 16, and rows with something else in half of their runs:
    zeros, ties between codes, special numbers, subnormal ones, the largest there are."""
    n, k = shape
    runs = np.repeat(2.0 ** rng.uniform(-8, 8, (n, -(-k // 16))), 16, axis=1)[:, :k]
    x = rng.standard_normal(shape) * runs
    table = format.element.values
    grid = np.unique(np.abs(table[np.isfinite(table)]))
    ties = np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, [format.element.max]])
    few = [0.0, -0.0]
    for row in range(n):
        other = [
            rng.choice(few, k),
            rng.choice(ties, k) * rng.choice([-1.0, 1.0], k) * 2.0 ** rng.integers(-6, 6),
            np.where(rng.random(k) < 0.3, rng.choice(ODD, k), x[row]),
            x[row] * 2.0**-132,
            x[row] * 2.0**118,
            x[row] * 2.0 ** rng.uniform(-60, 60, k),
            rng.choice([*few, np.inf, -np.inf, np.nan], k),
            x[row],
        ][row % 8]
        there = np.repeat(rng.random(-(-k // 48)) < 0.6, 48)[:k]
        x[row] = np.where(there, other, x[row])
    return x


def policy(format: Descriptor) -> Literal["error", "zero"]:
    """What wootz.quantize has to be told for NaN to be what the kernels make of it."""
    return "zero" if format.element.nan_code is None else "error"


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    """The bytes of all fields, in their order, as numbers in one row."""
    format = operands["y"].format
    fields = quantize(to_double(operands["x"], dtype), format, nan=policy(format)).fields
    value = np.concatenate([np.ravel(a).view(np.uint8) for a in fields.values()]).astype(np.float64)
    return Expected(value, np.zeros_like(value))
