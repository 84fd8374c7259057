"""quantize_activations: the codes and tiles of y, byte for byte those of wootz.quantize and wootz.tile.

The operands have a tensor to write to, y, whose bytes are all ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor, quantize
from ..formats.tiles import TiledTensor, field_shapes, scaling, tile
from ..reference import Expected, to_double
from ._data import activations, needed

FIELDS = ("codes", "tiles")
"""What the kernel writes; its output's other fields are handed on."""


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    """One element, whole and ragged blocks, padding rows of tiles, several tiles in both directions."""
    sizes = [
        (0, 64),
        (1, 1),
        (3, 32),
        (2, 40),
        (5, 128),
        (129, 17),
        (130, 256),
        (4, 261),
        (300, 1000),
        (17, 4096),
    ]
    return [{"m": m, "k": k} for m, k in sizes]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 131, "k": 134}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"m": 3, "k": 40}, {"m": 130, "k": 64}]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    format = needed(format, "quantize_activations")
    m, k = size["m"], size["k"]
    x = activations((m, k), dtype, rng, specials=True)
    blank: dict[str, Any] = {}
    for name, (kind, shape) in field_shapes(format, (m, k)).items():
        blank[name] = np.full(shape, 255, np.uint8) if kind == "u8" else np.ones(shape, np.float32)
    if scaling(format).globally and x.size:
        blank["scale1"] = _tiled(x, format, dtype).fields["scale1"]
    scale = {"scale1": blank["scale1"]} if scaling(format).globally else {}
    return {"x": x, **scale, "y": TiledTensor(format, (m, k), blank)}


def _tiled(x: Any, format: Descriptor, dtype: str) -> TiledTensor:
    """NaN takes the element's code, or counts as 0 where there is none."""
    nan: Any = "zero" if format.element.nan_code is None else "error"
    return tile(quantize(to_double(x, dtype), format, nan=nan))


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    """The bytes of y.codes and then of y.tiles, as numbers in one row."""
    x, y = operands["x"], operands["y"]
    fields = _tiled(x, y.format, dtype).fields if x.size else y.fields
    value = np.concatenate([np.ravel(fields[name]) for name in FIELDS]).astype(np.float64)
    return Expected(value, np.zeros_like(value))
