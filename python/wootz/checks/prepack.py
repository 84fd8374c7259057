"""prepack: the units of a packed tensor, byte for byte those of wootz.prepack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..formats.packed import PackedTensor, Packing, prepack
from ..formats.sample import random_tensor
from ..reference import Expected
from ._data import block_rows, columns, needed


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    """One element, ragged units, whole ones, several blocks of rows and columns."""
    format = needed(format, "prepack")
    unit = Packing.of(format).unit_k
    sizes = [(1, 1), (16, unit), (17, unit + 1), (35, 2 * unit - 8), (block_rows(format) + 2, 7)]
    sizes += [(5, k) for k in columns(format)]
    return [{"n": n, "k": k} for n, k in (*sizes, (301, 8 * unit))]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": 33, "k": 521}]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"n": 19, "k": 261}]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    w = random_tensor(needed(format, "prepack"), (size["n"], size["k"]), rng, specials=True)
    packing = Packing.of(w.format)
    blank = {"units": np.full(packing.units((size["n"], size["k"])), 255, np.uint8)}
    blank |= {name: w.fields[name] for name in packing.tensors}
    return {"w": w, "y": PackedTensor(w.format, w.shape, blank)}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    """The bytes of y.units, as numbers in one row."""
    units = np.ravel(prepack(operands["w"]).fields["units"]).astype(np.float64)
    return Expected(units, np.zeros_like(units))
