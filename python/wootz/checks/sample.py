"""sample: a column of each row, drawn by softmax(logits / temperature) after top_k and top_p. Exact.

The kernel's weights are whole numbers that a few float32 operations of one rounding each give, and its sums
are exact: here they are the same, by a sort in place of a search, in integers. tests/null/test_sample.py has
how far weights are from powers, and drawn frequencies from probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Descriptor
from ..reference import Expected, round_to, to_double

SIZES = ((0, 8), (1, 1), (3, 7), (2, 1000), (2, 4097), (101, 4096), (13, 32003), (2, 262147))
"""(b, v): none; one column; fewer than threads; what a block reads at once, and more; vocabularies."""
SCALE = 39
EXP2 = (1.0, 0.693147004, 0.240222424, 0.0555073358, 0.00967151299, 0.00132647261)


def shapes(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"b": b, "v": v} for b, v in SIZES]


def small(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"b": b, "v": v} for b, v in ((4, 24), (3, 40), (3, 33), (2, 1032), (2, 301))]


def brief(format: Descriptor | None) -> list[dict[str, int]]:
    return [{"b": 2, "v": v} for v in (24, 40, 33, 301, 4104)]


def operands(
    format: Descriptor | None,
    size: Mapping[str, int],
    dtype: str,
    options: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Rows of normal numbers, of a few with many ties, of equal ones, with infinities and NaN, of none. Where
    all that is left is as likely, one too many moves half the draws."""
    b, v = size["b"], size["v"]
    x = rng.standard_normal((b, v)) * rng.choice([0.5, 3.0, 8.0], (b, 1)) + rng.uniform(-20, 20, (b, 1))
    for row, kind in enumerate(rng.integers(8, size=b)):
        if kind == 0:
            x[row] = np.round(x[row])
        elif kind == 1:
            x[row] = rng.choice([0.0, -0.0, 1.5], v)
        elif kind == 2:
            x[row, rng.random(v) < 0.5] = -np.inf
            x[row, rng.random(v) < 0.2] = np.nan
        elif kind == 3:
            x[row, rng.random(v) < 2.0 / v] = np.inf
        elif kind == 4 and row % 2:
            x[row] = rng.choice([-np.inf, np.nan], v)
    given: dict[str, Any] = {"logits": round_to(x, dtype)}
    if rng.random() < 0.5:
        given["streams"] = rng.integers(-(2**31), 2**31, b).astype(np.int32)
    if rng.random() < 0.5:
        given["steps"] = rng.integers(-(2**31), 2**31, b).astype(np.int32)
    heat = rng.choice([0.0, 0.25, 1.0, 1.7, 1e20], b, p=[0.1, 0.2, 0.25, 0.2, 0.25])
    p = rng.uniform(0, 2.5, b)
    k = np.where(rng.random(b) < 0.5, 0, np.minimum(2.0 ** rng.uniform(0, 9, b), 1.2 * v).astype(int))
    if v % 3 == 1:
        given["settings"] = np.stack([heat, k, p], 1).astype(np.float32)
    elif b:
        given |= {"temperature": float(np.float32(max(heat[0], 0.1))), "top_k": int(k[0])}
        given |= {"top_p": float(np.float32(p[0]))} if rng.random() < 0.7 else {}
    given |= {"seed": int(rng.integers(2**32)), "step": int(rng.integers(2**32))}
    return given


def expect(operands: Mapping[str, Any], dtype: str, options: Mapping[str, str]) -> Expected:
    x = to_double(operands["logits"], dtype)
    rows = len(x)
    settings = operands.get("settings")
    if settings is None:
        given = [operands.get("temperature", 1.0), operands.get("top_k", 0), operands.get("top_p", 1.0)]
        settings = np.tile(np.array(given, np.float64), (rows, 1))
    streams, steps = operands.get("streams"), operands.get("steps")
    streams = np.arange(rows) if streams is None else streams
    steps = np.zeros(rows, int) if steps is None else steps
    value = np.empty(rows)
    for row, (heat, k, p) in enumerate(settings):
        counter = ((operands.get("step", 0) + int(steps[row])) % 2**32, 0, 0, 0)
        words = philox(counter, (operands.get("seed", 0), int(streams[row]) % 2**32))
        value[row] = token(x[row], np.float32(heat), int(k), np.float32(p), words[0] << 32 | words[1])
    return Expected(value, np.zeros_like(value))


def token(x: NDArray[np.float64], heat: np.float32, k: int, p: np.float32, random: int) -> int:
    """The column that 64 random bits choose; -1 where there is nothing to choose."""
    there = np.flatnonzero(x > -np.inf)
    order = there[np.argsort(-x[there], kind="stable")]  # the largest first, of equal ones the first
    if not len(order):
        return -1
    if not heat >= np.float32(2.0**-126) or k == 1:
        return int(order[0])
    order = order[: k or None]
    mass = weights(x[order], x[order[0]], heat)
    if p < 1:
        share = int(np.float64(max(p, np.float32(0.0))) * 2.0**32)
        wanted = max(-(-int(mass.sum()) * share // 2**32), 1)
        order = order[: int(np.searchsorted(np.cumsum(mass), np.uint64(wanted))) + 1]
    order = np.sort(order)
    running = np.cumsum(weights(x[order], x[order].max(), heat))
    return int(order[np.searchsorted(running, np.uint64(random * int(running[-1]) >> 64), "right")])


def weights(x: NDArray[np.float64], largest: float, heat: np.float32) -> NDArray[np.uint64]:
    """floor(e^((x - largest) / heat) * 2^SCALE), as float32 operations give it."""
    with np.errstate(all="ignore"):
        below = x.astype(np.float32) - np.float32(largest)
        slope = np.float32(np.log2(np.e)) / heat
        shifted = fma(below, slope, np.float32(1.5 * 2.0**23))
        whole = shifted - np.float32(1.5 * 2.0**23)
        part = fma(below, slope, -whole)
        power = np.full_like(part, EXP2[-1])
        for coefficient in EXP2[-2::-1]:
            power = fma(power, part, np.float32(coefficient))
        live = whole > -SCALE - 1
        scaled = np.ldexp(power.astype(np.float64), SCALE + np.where(live, whole, 0).astype(int))
        return np.where(x == largest, 2.0**SCALE, np.where(live, np.floor(scaled), 0.0)).astype(np.uint64)


def fma(
    a: NDArray[np.float32], b: NDArray[np.float32] | np.float32, c: NDArray[np.float32] | np.float32
) -> NDArray[np.float32]:
    """a * b + c with one rounding: the sum in float64 rounded to odd, which the next rounding keeps right."""
    product, other = a.astype(np.float64) * np.float64(b), np.float64(c)
    total = product + other
    back = total - product
    error = (product - (total - back)) + (other - back)
    bits = total.view(np.int64)
    odd = np.where((error > 0) == (total > 0), bits + 1, bits - 1)
    inexact = np.isfinite(error) & (error != 0) & (bits % 2 == 0)
    found: NDArray[np.float32] = np.where(inexact, odd, bits).view(np.float64).astype(np.float32)
    return found


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = second >> 32 ^ b ^ k, second % 2**32, first >> 32 ^ d ^ m, first % 2**32
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return a, b, c, d
