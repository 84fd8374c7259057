"""Operands and bounds of the grouped kernels of dense weights: each group as gemm, or as gemm_fp8."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..reference import Expected, to_double
from . import _grouped, gemm, gemm_fp8


def blocks(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> NDArray[Any]:
    """Numbers of x or of the bank; e4m3 as its codes."""
    flat = (math.prod(shape[:-1]), shape[-1])
    made = gemm_fp8.codes(flat, dtype, rng) if dtype == "e4m3" else gemm.blocks(flat, dtype, rng)
    return made.reshape(shape)


def scales(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    return (2.0 ** rng.uniform(-3, 3, shape)).astype(np.float32)


def product(x: NDArray[np.float64], w: NDArray[np.float64], dtype: str) -> tuple[Any, Any]:
    """x w^T and the error that a sum may have before it is rounded."""
    c = 8.0 + math.sqrt(x.shape[1]) + (gemm_fp8.CHOPPED if dtype == "e4m3" else 0.0)
    return x @ w.T, c * 2.0**-24 * (np.abs(x) @ np.abs(w).T)


def numbers(operands: Mapping[str, Any], dtype: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """x and the bank, with their scales if there are any."""
    x, w = to_double(operands["x"], dtype), to_double(operands["w"], dtype)
    if "scale_x" in operands:
        x = x * operands["scale_x"].astype(np.float64)[..., None]
        w = w * operands["scale_w"].astype(np.float64)[..., None]
    return x, w


def variable(operands: Mapping[str, Any], dtype: str, out: str) -> Expected:
    x, w = numbers(operands, dtype)
    value = np.full((x.shape[0], w.shape[1]), np.nan)
    limit = np.zeros_like(value)
    for g, rows in _grouped.places(operands["counts"], operands["offsets"]):
        value[rows], limit[rows] = product(x[rows], w[g], dtype)
    return _grouped.outcome(value, limit, out)


def indexed(operands: Mapping[str, Any], dtype: str, out: str) -> Expected:
    x, w = numbers(operands, dtype)
    value = np.full((*x.shape[:2], w.shape[1]), np.nan)
    limit = np.zeros_like(value)
    for g, index in enumerate(operands["indices"]):
        if 0 <= index < w.shape[0]:
            value[g], limit[g] = product(x[g], w[index], dtype)
    return _grouped.outcome(value, limit, out)
