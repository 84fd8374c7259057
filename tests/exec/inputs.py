"""Sizes and operands: what a kernel's entries are launched on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from wootz import reference, verify
from wootz.formats import Descriptor, QuantizedTensor
from wootz.formats.sample import random_tensor

Array = npt.NDArray[Any]
Size = dict[str, int]

MOST_WORK = 400_000
"""m * n * k of the largest size: a launch of a tenth of a second."""


def sizes(kernel: str, fmt: Descriptor | None, brief: bool = False) -> list[Size]:
    """What wootz verify runs, but for its largest, and small ones that do more: several blocks, several tiles
    along k, several rounds of a block over its rows ("sms" is what the grid's formulas are told). brief: few,
    for the sanitizers.
    """
    common = [size for size in verify.shapes(kernel, fmt) if math.prod(size.values()) <= MOST_WORK]
    if fmt is None:
        more = [{"n": 2048}, {"n": 4103}]
        return [{"n": 7}, {"n": 2051}] if brief else [*common, *more]
    if kernel == "dequant":
        return [{"n": 3, "k": common[-1]["k"]}] if brief else [*common, {"n": 5, "k": 2087}]
    tiles = [
        {"m": 1, "n": 83, "k": 67, "sms": 1},
        {"m": 1, "n": 3, "k": 4201, "sms": 2},
        {"m": 2, "n": 37, "k": 2113, "sms": 1},
        {"m": 3, "n": 5, "k": 1061, "sms": 1},
        {"m": 8, "n": 19, "k": 521, "sms": 3},
    ]
    if brief:
        return [{"m": m, "n": 5, "k": k, "sms": 1} for m, k in ((1, 4201), (2, 331), (4, 75), (8, 521))]
    return [*({**size, "sms": 1 + i % 3} for i, size in enumerate(common)), *tiles]


def activations(shape: tuple[int, ...], dtype: str, rng: np.random.Generator, specials: bool) -> Array:
    """Random numbers in storage form; with specials also NaN, infinities, zeros and subnormals."""
    x = rng.standard_normal(shape)
    if specials:
        odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 2.0**-24, -(2.0**-140), 65504.0])
        x = np.where(rng.random(shape) < 0.25, rng.choice(odd, shape), x * 2.0 ** rng.uniform(-4, 4, shape))
    return reference.round_to(x, dtype)


def operands(
    kernel: Mapping[str, Any], fmt: Descriptor | None, size: Size, dtype: str, rng: np.random.Generator
) -> dict[str, Any]:
    """A value for each operand of a kernel's index record."""
    values: dict[str, Any] = {}
    summed = any(axis not in kernel["output"]["shape"] for o in kernel["operands"] for axis in o["shape"])
    for operand in kernel["operands"]:
        shape = tuple(size[axis] for axis in operand["shape"])
        if operand["kind"] == "quantised":
            assert fmt is not None
            values[operand["name"]] = random_tensor(fmt, (shape[0], shape[1]), rng, specials=not summed)
        else:
            values[operand["name"]] = activations(shape, dtype, rng, specials=not summed)
    return values


def arguments(given: Mapping[str, Any], size: Size, out: tuple[str, Array]) -> dict[tuple[str, str], Any]:
    """What an entry's arguments may ask for, by (name, role)."""
    values: dict[tuple[str, str], Any] = {(axis, "shape"): extent for axis, extent in size.items()}
    values[out[0], "out"] = out[1]
    for name, value in given.items():
        if isinstance(value, QuantizedTensor):
            for field, array in value.fields.items():
                values[f"{name}.{field}", "in"] = array
                values[f"{name}.{field}", "pitch"] = array.shape[-1]
        else:
            values[name, "in"] = value
    return values
