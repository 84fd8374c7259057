"""Operands and bounds that the checks of block-scaled kernels share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor, QuantizedTensor, decode_exact, quantize
from ..formats.descriptor import STORAGE
from ..formats.sample import random_tensor
from ..formats.tiles import TiledTensor, field_shapes, tile, untile
from ..reference import Expected, bound

Array = NDArray[np.float64]


def quantised(format: Descriptor, rows: int, k: int, rng: np.random.Generator) -> TiledTensor:
    """Normally distributed numbers, of another magnitude in each row, quantised and tiled."""
    if rows == 0:
        wanted = field_shapes(format, (0, k)).items()
        fields = {name: np.zeros(shape, STORAGE[dtype]) for name, (dtype, shape) in wanted}
        return TiledTensor(format, (0, k), fields)
    x = rng.standard_normal((rows, k)) * 2.0 ** rng.uniform(-2, 2, (rows, 1))
    return tile(quantize(x, format))


def weights(format: Descriptor, rows: int, k: int, rng: np.random.Generator) -> TiledTensor:
    """Every code, and in every block another scale; scales without a sign, which the hardware ignores."""
    q = random_tensor(format, (rows, k), rng)
    if format.scales[0].element.kind == "float":
        fields = {**q.fields, "scale": q.fields["scale"] & np.uint8(0x7F)}
        q = QuantizedTensor(q.format, q.shape, fields)
    return tile(q)


def exact(t: TiledTensor) -> Array:
    """The numbers, in float64 without any rounding."""
    if 0 in t.shape:
        return np.zeros(t.shape)
    if len(t.shape) == 3:
        return np.stack([decode_exact(untile(member)) for member in t.matrices()])
    return decode_exact(untile(t))


def product(x: Array, w: Array, alpha: float, levels: int, dtype: str) -> Expected:
    """alpha * x @ w^T.

    M = sum |x||w|, c = 4 + levels + 2 sqrt(K): the scales of tensors and alpha, and sums of K terms in
    float32, whose addends are aligned and cut off rather than rounded, which is up to twice a rounding."""
    with np.errstate(all="ignore"):
        value = alpha * (x @ w.T)
        magnitude = abs(alpha) * (np.abs(x) @ np.abs(w).T)
    return Expected(value, bound(value, dtype, 4.0 + levels + 2.0 * float(np.sqrt(x.shape[1])), magnitude))


def levels(*tensors: Any) -> int:
    """Scale levels of all operands together."""
    return sum(len(t.format.scales) for t in tensors)
