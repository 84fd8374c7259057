"""Groups, banks and bounds of the grouped kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor, decode_exact
from ..formats.bank import stack
from ..formats.packed import PackedTensor, prepack, unpack
from ..formats.sample import random_tensor
from ..reference import DTYPES, Expected, bound
from . import qmm_packed
from ._data import with_large_scales
from .qgemv import roundings
from .qmm import SPREAD


def bank(
    format: Descriptor, shape: tuple[int, int, int], rng: np.random.Generator, plain: bool = False
) -> PackedTensor:
    """Random matrices, each different. plain: of usual scales alone."""
    some = (random_tensor(format, shape[1:], rng, specials=False) for _ in range(shape[0]))
    return stack(prepack(w if plain else with_large_scales(w)) for w in some)


def spread(m: int, experts: int, rng: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Counts and offsets of groups in m rows: in any order, with gaps between some, some of them empty."""
    cuts = np.sort(rng.integers(0, m + 1, 2 * experts))
    starts, ends = cuts[::2], cuts[1::2]
    order = rng.permutation(experts)
    counts, offsets = (ends - starts)[order], starts[order]
    if experts > 1:
        counts[int(rng.integers(experts))] = 0
    return counts.astype(np.int32), offsets.astype(np.int32)


def product(
    x: NDArray[np.float64], weights: PackedTensor, dtype: str, rounded: bool = True
) -> tuple[Any, Any]:
    """x w^T in float64, and the error that a sum may have before it is rounded. rounded: whether scales may
    go into weights, as those of qmm_packed may."""
    q = unpack(weights)
    w = decode_exact(q)
    limit = roundings(q.format, q.shape[1]) * 2.0**-24 * (np.abs(x) @ np.abs(w).T)
    rounded &= not qmm_packed.powers(q.format)
    if rounded or not qmm_packed.enter_whole(q.format, dtype):
        unit, tiny, _ = DTYPES[dtype]
        limit += SPREAD * unit * np.sqrt(np.square(x) @ np.square(np.maximum(np.abs(w), tiny)).T)
    return x @ w.T, limit


def outcome(value: NDArray[np.float64], limit: NDArray[np.float64], dtype: str) -> Expected:
    """Values that are rounded to the output once, each within `limit` before."""
    return Expected(value, bound(value, dtype, 0.0, np.zeros_like(value)) + limit)


def places(counts: NDArray[np.int32], offsets: NDArray[np.int32]) -> Sequence[tuple[int, slice]]:
    """(matrix, rows) of each group that is not empty."""
    return [(g, slice(o, o + c)) for g, (c, o) in enumerate(zip(counts, offsets)) if c > 0]


VARIABLE = (
    {"m": 1, "experts": 1, "n": 5, "k": 40},
    {"m": 0, "experts": 3, "n": 17, "k": 64},
    {"m": 37, "experts": 5, "n": 67, "k": 272},
    {"m": 130, "experts": 2, "n": 40, "k": 528},
    {"m": 90, "experts": 40, "n": 33, "k": 72},
    {"m": 75, "experts": 3, "n": 70, "k": 261},
)
LARGE = (
    {"m": 60, "experts": 3, "n": 136, "k": 1032},
    {"m": 130, "experts": 3, "n": 264, "k": 520},
    {"m": 1000, "experts": 8, "n": 264, "k": 1032},
    {"m": 4096, "experts": 64, "n": 136, "k": 264},
    {"m": 600, "experts": 520, "n": 24, "k": 72},
    {"m": 9000, "experts": 520, "n": 24, "k": 72},
)
BRIEF = (
    {"m": 20, "experts": 3, "n": 18, "k": 272},
    {"m": 90, "experts": 2, "n": 18, "k": 528},
    {"m": 19, "experts": 34, "n": 17, "k": 67},
)
