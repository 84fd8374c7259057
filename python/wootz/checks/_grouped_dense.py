"""Operands and bounds of the grouped kernels of dense weights: each group as gemm, or as gemm_fp8."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected, to_double
from . import _grouped, gemm, gemm_fp8, grouped_qmm_indexed, grouped_qmm_paired

Operands = dict[str, Any]


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


def numbers(operands: Mapping[str, Any], name: str, dtype: str) -> NDArray[np.float64]:
    """x or a bank, with its scales if there are any."""
    found = to_double(operands[name], dtype)
    if f"scale_{name}" in operands:
        found = found * operands[f"scale_{name}"].astype(np.float64)[..., None]
    return found


def _scaled(dtype: str, of_x: tuple[int, ...], of_w: tuple[int, ...], rng: np.random.Generator) -> Operands:
    """The scales of e4m3's rows; other types have none."""
    return {"scale_x": scales(of_x, rng), "scale_w": scales(of_w, rng)} if dtype == "e4m3" else {}


def variable_operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> Operands:
    m, experts, n, k = (size[name] for name in ("m", "experts", "n", "k"))
    counts, offsets = _grouped.spread(m, experts, rng)
    matrices = {"x": blocks((m, k), dtype, rng), "w": blocks((experts, n, k), dtype, rng)}
    return matrices | _scaled(dtype, (m,), (experts, n), rng) | {"counts": counts, "offsets": offsets}


def paired_operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> Operands:
    given = variable_operands(format, size, dtype, options, rng)
    shape = (size["experts"], size["n"])
    if dtype == "e4m3":
        given["scale_v"] = scales(shape, rng)
    kind = gemm.ACTIVATIONS[int(rng.integers(4))]
    return given | {"v": blocks((*shape, size["k"]), dtype, rng), "activation": kind}


def indexed_operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> Operands:
    groups, rows, experts, n, k = (size[name] for name in ("groups", "rows", "experts", "n", "k"))
    matrices = {"x": blocks((groups, rows, k), dtype, rng), "w": blocks((experts, n, k), dtype, rng)}
    chosen = {"indices": grouped_qmm_indexed.indices(groups, experts, rng)}
    return matrices | _scaled(dtype, (groups, rows), (experts, n), rng) | chosen


def variable(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w = (numbers(operands, name, dtype) for name in ("x", "w"))
    value = np.full((x.shape[0], w.shape[1]), np.nan)
    limit = np.zeros_like(value)
    for g, rows in _grouped.places(operands["counts"], operands["offsets"]):
        value[rows], limit[rows] = product(x[rows], w[g], dtype)
    return _grouped.outcome(value, limit, options.get("out", dtype))


def paired(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w, v = (numbers(operands, name, dtype) for name in ("x", "w", "v"))
    value = np.full((x.shape[0], w.shape[1]), np.nan)
    limit = np.zeros_like(value)
    for g, rows in _grouped.places(operands["counts"], operands["offsets"]):
        sums = (*product(x[rows], w[g], dtype), *product(x[rows], v[g], dtype))
        value[rows], limit[rows] = grouped_qmm_paired.gated(*sums, operands.get("activation", "silu"))
    return _grouped.outcome(value, limit, options.get("out", dtype))


def indexed(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x, w = (numbers(operands, name, dtype) for name in ("x", "w"))
    value = np.full((*x.shape[:2], w.shape[1]), np.nan)
    limit = np.zeros_like(value)
    for g, index in enumerate(operands["indices"]):
        if 0 <= index < w.shape[0]:
            value[g], limit[g] = product(x[g], w[index], dtype)
    return _grouped.outcome(value, limit, options.get("out", dtype))
