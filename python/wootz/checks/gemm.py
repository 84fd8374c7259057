"""gemm: y[m, n] = activation(alpha * a[m, k] b[n, k]^T + beta * c[m, n] + bias[n]).

i8 is exact. Else M = |alpha| sum |a||b| + |beta c| + |bias|, c = 8 + sqrt(K): float32 sums of K terms that
err as a random walk, and an epilogue of a few roundings whose activations have slopes of about 1 at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected, bound, round_to, to_double

MS = (0, 1, 3, 16, 17, 64, 127, 128, 1000)
"""Rows of activations: none, one, and around the heights of tiles."""

NK = ((520, 264), (77, 55), (1, 1), (136, 1032), (333, 129), (8, 8), (264, 2056), (1023, 72), (1032, 520))
"""(n, k): aligned to 16 bytes or not, shorter than a tile, ragged."""

LARGE = ((1000, 4232, 136), (1000, 4233, 136), (300, 14344, 72))
"""(m, n, k) with more tiles than a GPU has multiprocessors."""

ACTIVATIONS = ("none", "relu", "silu", "gelu")


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    pairs = [(m, *NK[(i + j) % len(NK)]) for i, m in enumerate(MS) for j in (0, 3, 4)]
    return [{"m": m, "n": n, "k": k} for m, n, k in (*pairs, *LARGE)]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((9, 24, 32, 9), (5, 3, 7, 9), (65, 17, 152, 999), (130, 257, 96, 1), (131, 40, 208, 999))
    return [{"m": m, "n": n, "k": k, "sms": sms} for m, n, k, sms in sizes]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    sizes = ((7, 19, 48, 1), (33, 24, 144, 1), (18, 9, 80, 9), (5, 3, 7, 9))
    return [{"m": m, "n": n, "k": k, "sms": sms} for m, n, k, sms in sizes]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    m, n, k = size["m"], size["n"], size["k"]
    if dtype == "i8":
        return {
            name: rng.integers(-128, 128, (rows, k)).astype(np.int8) for name, rows in (("a", m), ("b", n))
        }
    given: dict[str, Any] = {"a": blocks((m, k), dtype, rng), "b": blocks((n, k), dtype, rng)}
    kind = int(rng.integers(8))
    if kind & 1:
        given["c"] = blocks((m, n), output(dtype, options), rng)
        given["beta"] = -1.5
    if kind & 2:
        given["bias"] = blocks((1, n), dtype, rng)[0]
    if kind & 4:
        given["alpha"] = 0.375
        given["activation"] = ACTIVATIONS[int(rng.integers(4))]
    return given


def output(dtype: str, options: Mapping[str, str]) -> str:
    """The dtype of c and y."""
    if dtype == "i8":
        return "i32"
    return dtype if options.get("out", "same") == "same" else options["out"]


def blocks(shape: tuple[int, int], dtype: str, rng: np.random.Generator) -> NDArray[Any]:
    """Random numbers whose mean and spread differ from one block of 8 rows and 8 columns to the next, so that
    a block in another's place shows."""
    rows, columns = shape
    spread = 2.0 ** rng.uniform(-2, 2, (-(-rows // 8), -(-columns // 8)))
    middle = rng.uniform(-1, 1, spread.shape)
    expanded = [np.repeat(np.repeat(x, 8, axis=0), 8, axis=1)[:rows, :columns] for x in (spread, middle)]
    return round_to(rng.standard_normal(shape) * expanded[0] + expanded[1], dtype)


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    a, b = to_double(operands["a"], dtype), to_double(operands["b"], dtype)
    sums = a @ b.T
    if dtype == "i8":
        return Expected(sums, np.zeros_like(sums))
    alpha, beta = operands.get("alpha", 1.0), operands.get("beta", 0.0)
    value, magnitude = alpha * sums, abs(alpha) * (np.abs(a) @ np.abs(b).T)
    if operands.get("c") is not None:
        c = beta * to_double(operands["c"], output(dtype, options))
        value, magnitude = value + c, magnitude + np.abs(c)
    if operands.get("bias") is not None:
        bias = to_double(operands["bias"], dtype)
        value, magnitude = value + bias, magnitude + np.abs(bias)
    value = activate(value, operands.get("activation", "none"))
    return Expected(value, bound(value, output(dtype, options), 8.0 + math.sqrt(a.shape[1]), magnitude))


def activate(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """gelu is the exact one, with erf."""
    if name == "relu":
        return np.maximum(x, 0.0)
    with np.errstate(over="ignore"):
        if name == "silu":
            return np.asarray(x / (1.0 + np.exp(-x)))
    if name == "gelu":
        return np.asarray(0.5 * x * (1.0 + erf(x / math.sqrt(2.0))))
    return x


erf = np.vectorize(math.erf, otypes=[np.float64])
