"""Random data and sizes that several checks share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..formats import Descriptor, QuantizedTensor
from ..reference import round_to

ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 2.0**-24, -(2.0**-140), 65504.0])


def activations(
    shape: tuple[int, ...], dtype: str, rng: np.random.Generator, specials: bool = False
) -> NDArray[Any]:
    """Normally distributed numbers in storage form; with specials of many magnitudes, and with NaN,
    infinities, zeros and subnormals among them."""
    x = rng.standard_normal(shape) * (2.0 ** rng.uniform(-4, 4, shape) if specials else 1.0)
    if specials:
        x = np.where(rng.random(shape) < 0.25, rng.choice(ODD, shape), x)
    return round_to(x, dtype)


def with_large_scales(w: QuantizedTensor) -> QuantizedTensor:
    """The scales of rows 16 to 31 of every 48 times 16, where their type has room and they lie beside the
    codes: kernels may treat rows of usual scales, 16 at once, in another way than others."""
    format, element = w.format, w.format.scales[0].element if w.format.scales else None
    if element is None or format.layout.inline or not (element.wide or element.kind == "exponent"):
        return w
    scale = w.fields["scale"].copy()
    some = np.arange(len(scale)) * (format.scales[0].block[0] or 1) // 16 % 3 == 1
    scale[some] = element.encode(element.decode(scale[some]).astype(np.float64) * 16)
    return QuantizedTensor(format, w.shape, {**w.fields, "scale": scale})


def needed(format: Descriptor | None, kernel: str) -> Descriptor:
    """The format of a kernel that takes a quantised operand."""
    if format is None:
        raise ArgumentError(f"{kernel} takes a quantised operand: name a format")
    return format


def columns(format: Descriptor) -> list[int]:
    """Row lengths that end before, at and after a block and a chunk of the format."""
    layout = format.layout
    chunk = layout.chunk * layout.unit
    block = min(format.block[1] or 64, 1024)
    return [1, 7, block, block + 3, chunk, 2 * chunk + 5, 3 * max(chunk, block) + 8]


def block_rows(format: Descriptor) -> int:
    """Rows of a block, or a bound for a block of whole columns."""
    return min(format.block[0] or 1, 160)
