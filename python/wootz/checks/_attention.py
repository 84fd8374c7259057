"""Attention in float64, with a bound for float32's errors; random operands that several checks share.

With w[j] the weights of the keys (a sink's among them), y = sum of w[j] v[j]. An error E[j] of a weight's
power, relative to it, moves y by w[j] E[j] (v[j] - y), so that
    |error| <= sum of w[j] E[j] (|v[j]| + |y|).
E[j] is u times
    (10 + sqrt(d)) A[j], A[j] = |scale| sum |q||k|: the score, whose products, sums (a random walk, see qgemv)
        and scale are rounded,
    |score[j] - largest|: the difference; partial maxima split it into parts that add up to the same,
    10 + sqrt(n): exponentials, and the sums of n powers and of n weighed values.
Powers below float32's normal numbers may be 0: 2^-126 sum |v[j]|.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..reference import U32, Expected, bound, round_to, to_double
from ._data import activations

Doubles = NDArray[np.float64]
Keys = tuple[Doubles, Doubles, NDArray[np.bool_]]
"""k and v of [hk, n, d], and which of the n keys there are."""


def queries(size: Mapping[str, int], dtype: str, rng: np.random.Generator) -> dict[str, Any]:
    """q, and some of sinks and scalars. Scores of most heads are small, of some up to about 1e4."""
    b, h, s, d = (size[axis] for axis in ("b", "h", "s", "d"))
    q = rng.standard_normal((b, h, s, d))
    kind = int(rng.integers(16))
    if kind & 1:
        q *= np.where(rng.random((b, h, 1, 1)) < 0.3, 2000.0, 1.0)
    given: dict[str, Any] = {"q": round_to(q, dtype)}
    if kind & 2:
        sinks = rng.standard_normal(h) * 3.0
        given["sinks"] = np.where(rng.random(h) < 0.3, -np.inf, sinks).astype(np.float32)
    if kind & 4:
        given["causal"] = 1
    if kind & 8:
        given["window"] = int(rng.choice([1, 2, 7, 40]))
    if rng.random() < 0.3:
        given["scale"] = float(np.float32(rng.uniform(0.02, 0.3)))
    return given


def dense(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> dict[str, Any]:
    """Keys and values."""
    return {name: activations(shape, dtype, rng) for name in ("k", "v")}


def poison(operands: dict[str, Any], unseen: NDArray[np.bool_], dtype: str) -> None:
    """NaN in the keys and values that no query may read: what is behind a cache's end was never written."""
    for name in ("k", "v"):
        operands[name][unseen] = round_to(np.array(np.nan), dtype)


def attend(operands: Mapping[str, Any], keys: Sequence[Keys], dtype: str, decoding: float = 0.0) -> Expected:
    """keys: of each batch entry. decoding: roundings of each of their numbers."""
    q = to_double(operands["q"], dtype)
    b, h, s, d = q.shape
    scale = operands.get("scale", 0) or 1.0 / np.sqrt(d)
    sinks = operands.get("sinks")
    value, wide = np.zeros_like(q), np.zeros_like(q)
    for entry in range(b):
        for head in range(h):
            group = h // keys[entry][0].shape[0]
            k, v = (each[head // group] for each in keys[entry][:2])
            seen = visible(s, k.shape[0], operands) & keys[entry][2]
            sink = -np.inf if sinks is None else float(sinks[head])
            value[entry, head], wide[entry, head] = _head(q[entry, head], k, v, scale, seen, sink, decoding)
    return Expected(value, bound(value, dtype, 1.0, wide))


def visible(s: int, n: int, operands: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Which of n keys each of s queries sees."""
    place, j = np.arange(s)[:, None] + (n - s), np.arange(n)[None, :]
    window = operands.get("window", 0)
    seen = np.ones((s, n), bool)
    if operands.get("causal"):
        seen &= j <= place
    return seen & (np.abs(place - j) < window) if window else seen


def _head(
    q: Doubles, k: Doubles, v: Doubles, scale: float, seen: NDArray[np.bool_], sink: float, decoding: float
) -> tuple[Doubles, Doubles]:
    """Rows of one head, and the magnitude of their errors in units of u."""
    n, d = k.shape
    scores = np.where(seen, q @ k.T * scale, -np.inf)
    size = np.abs(scale) * (np.abs(q) @ np.abs(k).T)
    top = np.maximum(scores.max(axis=1, initial=-np.inf), sink)[:, None]
    top = np.where(np.isneginf(top), 0.0, top)
    power = np.exp(scores - top)
    total = power.sum(axis=1, keepdims=True) + np.exp(sink - top)
    weight = power / np.where(total == 0.0, 1.0, total)
    y = weight @ v
    away = np.where(seen, np.abs(scores - top), 0.0)
    off = (10.0 + np.sqrt(n)) + decoding + (10.0 + decoding + np.sqrt(d)) * size + np.minimum(away, 200.0)
    wide = (weight * off) @ np.abs(v) + (weight * off).sum(axis=1, keepdims=True) * np.abs(y)
    if np.isfinite(sink):  # the sink's own error, in the sum
        share = np.exp(sink - top) / total * (12.0 + np.minimum(np.abs(sink - top), 200.0) + np.abs(sink))
        wide += share * np.abs(y)
    return y, wide + 2.0**-126 / U32 * (seen @ np.abs(v))
