"""The gated delta rule, token by token in float64, and how far off a kernel may be.

A row of the state that is off by a vector e is off by g e (I - beta k k^T) a token later: at most by r = g
max(1, |1 - beta |k|^2|) times as much, in the 2-norm. So the norms of errors add up as E' = r E + what the
token's own float32 roundings do, and M of y is |q| E + |S| . |q|. A token's own roundings scale with
    |S| g (1 + |log g| (1 + max(-x, 0))), x = a + dt_bias: for g, log g and softplus are off by a few units
    |k| (2 |d| + beta (|v| + g |S| . |k|)): for d, and what is added
    dk 2^-126: for dk products that may be below it
Where a chunk's state is not at hand but as the sum of its parts (form chunk), so is its magnitude: T' = g T +
|d| |k| in the place of |S|.

c counts roundings: of a sum over dk <= 256 numbers by a lone thread 35 (fewer where lanes share it), 15 of d
and its gate; by chunks 16 products of g and 16 sums more, and as many of A. Those of log g are fewer than 50.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..reference import Expected, bound, round_to, to_double
from ._data import activations

Array = NDArray[Any]
TINY = 2.0**-126
ROUNDINGS = {"scan": 50.0, "chunk": 100.0}


def draw(size: Mapping[str, int], dtype: str, state: str, rng: np.random.Generator) -> dict[str, Any]:
    """Keys of length 1, some of them 0 or longer; gates of all sizes, 0 and 1 among them. Every other time
    one v, or one a of several heads, is NaN."""
    lead = (size["s"], size["t"]) if "t" in size else (size["s"],)
    h, hk, dk, dv = (size[name] for name in ("h", "hk", "dk", "dv"))
    q, k = rng.standard_normal((2, *lead, hk, dk))
    q, k = (x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-3) for x in (q, k))
    k *= rng.choice([1.0, 1.0, 1.0, 0.0, 1.3], (*lead, hk, 1))
    v = rng.standard_normal((*lead, h, dv)) * 2.0 ** rng.uniform(-2, 2, (*lead, h, 1))
    a, b = (
        np.where(rng.random((*lead, h)) < 0.1, rng.choice([-200.0, -30.0, 30.0, 200.0], (*lead, h)), x)
        for x in rng.standard_normal((2, *lead, h)) * 2.0
    )
    special = (None, v, None, a if size["s"] * h > 1 else None)[int(rng.integers(4))]
    if special is not None and special.size:
        special.reshape(-1)[int(rng.integers(special.size))] = np.nan
    given: dict[str, Any] = {n: round_to(x, dtype) for n, x in zip("qkvab", (q, k, v, a, b))}
    given["A_log"] = np.log(rng.uniform(0.01, 16.0, h)).astype(np.float32)
    given["dt_bias"] = rng.uniform(-7.0, 0.0, h).astype(np.float32)
    given["state"] = activations((size["s"], h, dv, dk), state, rng)
    return given


def expected(
    operands: Mapping[str, Any], dtype: str, state: str, form: str = "scan"
) -> tuple[Expected, Expected]:
    """y and the state."""
    q, k, v, a, b = (to_double(operands[name], dtype) for name in "qkvab")
    step = v.ndim == 3
    if step:
        q, k, v, a, b = (x[:, None] for x in (q, k, v, a, b))
    q, k = (np.repeat(x, v.shape[2] // max(x.shape[2], 1), axis=2) for x in (q, k))
    x = a + operands["dt_bias"].astype(np.float64)
    with np.errstate(all="ignore"):
        rate = -np.exp(operands["A_log"].astype(np.float64)) * np.logaddexp(0.0, x)
        g, beta = np.exp(rate), np.exp(-np.logaddexp(0.0, -b))
        g_off = g * (1.0 + np.nan_to_num(-rate) * (1.0 + np.maximum(-x, 0.0))) + TINY
    now = to_double(operands["state"], state)
    size, error = np.abs(now), np.zeros(now.shape[:3])
    y, magnitude, least = np.empty_like(v), np.empty_like(v), TINY * q.shape[-1]
    for i in range(v.shape[1]):
        key, query = np.abs(k[:, i]), np.abs(q[:, i])
        length = np.linalg.norm(key, axis=-1)[..., None]
        gate, off, take = g[:, i, :, None], g_off[:, i, :, None], beta[:, i, :, None]
        d = take * (v[:, i] - gate * _times(now, k[:, i]))
        d_off = take * (np.abs(v[:, i]) + (gate + off) * _times(size, key)) + least
        own = off * np.linalg.norm(size, axis=-1) + length * (d_off + 2.0 * np.abs(d))
        now = gate[..., None] * now + d[..., None] * k[:, i, :, None, :]
        parts = gate[..., None] * size + np.abs(d)[..., None] * key[..., None, :]
        size = parts if form == "chunk" else np.abs(now)
        error = gate * np.maximum(1.0, np.abs(1.0 - take * length**2)) * error + own
        error = error + np.linalg.norm(size, axis=-1) + least
        y[:, i] = _times(now, q[:, i])
        magnitude[:, i] = error * np.linalg.norm(query, axis=-1)[..., None] + _times(size, query) + least
    c = ROUNDINGS[form]
    if step:
        y, magnitude = y[:, 0], magnitude[:, 0]
    whole = np.broadcast_to(error[..., None], now.shape)
    return Expected(y, bound(y, dtype, c, magnitude)), Expected(now, bound(now, state, c, whole))


def _times(state: Array, row: Array) -> Array:
    """The product of each state [..., dv, dk] with its row [..., dk]."""
    found: Array = np.einsum("shvk,shk->shv", state, row)
    return found
