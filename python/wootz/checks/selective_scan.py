"""selective_scan: h = exp(delta A) h + delta x B; y = (C . h + D x) silu(z), token by token in float64.

Errors of h shrink as h does, so that their bound is
    E' = exp(delta A) E + |h| exp(delta A) (1 + |delta A|) w + |delta x B| w
M of h being E + |h|, and that of y |C| . (E + |h|) + |D x|, times |silu(z)|; w is 1 + max(-u, 0) where delta
is softplus(u), which is off by so much more, else 1. c counts roundings: 35 of a sum over n <= 256 by a lone
thread, and fewer than 30 of softplus, exp2, its argument and silu.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Descriptor
from ..reference import Expected, bound, round_to, to_double
from ._data import activations

TINY = 2.0**-126
NAMES = ("s", "t", "c", "n")
SIZES = (
    (0, 3, 4, 16), (2, 0, 4, 16), (1, 1, 1, 1), (2, 9, 37, 16), (3, 5, 8, 7), (1, 20, 9, 64), (2, 33, 5, 10),
    (1, 12, 6, 200), (2, 6, 3, 255), (1, 70, 33, 16), (2, 300, 512, 16), (1, 64, 130, 128),
)  # fmt: skip
"""None; no token; rows of all variants, ragged; longer ones."""


def _sizes(*chosen: int) -> list[dict[str, int]]:
    return [dict(zip(NAMES, SIZES[i])) for i in chosen]


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return _sizes(*range(len(SIZES)))


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return []


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return _sizes(3, 4, 5, 7)


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Optional operands and softplus come and go; steps of all sizes, 0 among them. At times one x is NaN."""
    s, t, c, n = (size[name] for name in NAMES)
    x = rng.standard_normal((s, t, c))
    if x.size and rng.integers(3) == 0:
        x.reshape(-1)[int(rng.integers(x.size))] = np.nan
    smooth, kind = bool(rng.integers(2)), int(rng.integers(8))
    if smooth:
        step = np.where(
            rng.random(x.shape) < 0.1, rng.choice([-60.0, 40.0], x.shape), rng.normal(-2, 2, x.shape)
        )
    else:
        step = np.where(rng.random(x.shape) < 0.1, 0.0, 2.0 ** rng.uniform(-8, 2, x.shape))
    given: dict[str, Any] = {"x": round_to(x, dtype), "delta": round_to(step, dtype)}
    given["A"] = -rng.uniform(0.0, 16.0, (c, n)).astype(np.float32)
    given |= {name: activations((s, t, n), dtype, rng) for name in "BC"}
    given["state"] = activations((s, c, n), "f32", rng)
    if kind & 1:
        given["D"] = activations((c,), "f32", rng)
    if kind & 2:
        given["z"] = activations((s, t, c), dtype, rng)
    if kind & 4:
        given["dt_bias"] = np.abs(activations((c,), "f32", rng))
    return given | ({"softplus": 1} if smooth else {})


def _expected(operands: Mapping[str, Any], dtype: str) -> tuple[Expected, Expected]:
    x, delta, into, out = (to_double(operands[name], dtype) for name in ("x", "delta", "B", "C"))
    raw = delta + np.asarray(operands.get("dt_bias", 0.0), np.float64)
    smooth = bool(operands.get("softplus", 0))
    step, off = (np.logaddexp(0.0, raw), 1.0 + np.maximum(-raw, 0.0)) if smooth else (raw, np.ones_like(raw))
    rate, h = operands["A"].astype(np.float64), operands["state"].astype(np.float64)
    through = np.asarray(operands.get("D", 0.0), np.float64)
    y, magnitude, error = np.empty_like(x), np.empty_like(x), np.zeros_like(h)
    for i in range(x.shape[1]):
        power = step[:, i, :, None] * rate
        keep, wide = np.exp(power), off[:, i, :, None]
        add = (step[:, i] * x[:, i])[..., None] * into[:, i, None, :]
        error = keep * error + wide * (keep * (1.0 + np.abs(power)) * np.abs(h) + np.abs(add)) + TINY
        h = keep * h + add
        c, skip = out[:, i, None, :], through * x[:, i]
        y[:, i] = (c * h).sum(-1) + skip
        magnitude[:, i] = (np.abs(c) * (error + np.abs(h))).sum(-1) + np.abs(skip)
    if "z" in operands:
        z = to_double(operands["z"], dtype)
        opened = z * np.exp(-np.logaddexp(0.0, -z))
        y, magnitude = y * opened, magnitude * np.abs(opened)
    return Expected(y, bound(y, dtype, 64.0, magnitude)), Expected(
        h, bound(h, "f32", 64.0, error + np.abs(h))
    )


def updated(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> dict[str, Expected]:
    return {"state": _expected(operands, dtype)[1]}


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    return _expected(operands, dtype)[0]
