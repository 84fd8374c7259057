"""Convolutions: sizes, data, and the float64 value of y[b, o, ...] = sum of weight * x over a receptive
field, x being zero outside, plus bias (the definition of torch.nn.functional.conv3d).

M = sum |w||x| + |bias|, c = 4 + levels + sqrt(K) with K numbers of a field: as qgemv. An infinity or NaN in a
field is in its sum; zeros of the padding times an infinite weight are NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..reference import Expected, bound, round_to, to_double
from ._data import activations

AXES = ("d", "h", "w")
Triple = tuple[int, int, int]
Double = NDArray[np.float64]
ONES: Triple = (1, 1, 1)
NONE: Triple = (0, 0, 0)


@dataclass(frozen=True)
class Case:
    """A convolution, by the axes d, h, w. axes: how many of them the arrays have. odd: NaN and infinities are
    among x."""

    b: int
    c: int
    o: int
    size: Triple
    kernel: Triple
    stride: Triple = ONES
    padding: Triple = NONE
    dilation: Triple = ONES
    groups: int = 1
    axes: int = 3
    bias: bool = False
    odd: bool = False

    @property
    def shape(self) -> dict[str, int]:
        """The extents that the operands bind: what tells cases apart."""
        sizes = {**dict(zip(AXES, self.size)), **{f"kernel_{a}": n for a, n in zip(AXES, self.kernel)}}
        return {"b": self.b, "c": self.c, "o": self.o, **sizes}

    @property
    def channels(self) -> int:
        """Of a group."""
        return self.c // self.groups

    @property
    def field(self) -> int:
        return self.channels * int(np.prod(self.kernel))

    @property
    def scalars(self) -> dict[str, int]:
        named = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return {f"{name}_{a}": n for name, some in named.items() for a, n in zip(AXES, some)} | {
            "groups": self.groups
        }


CASES = (
    Case(2, 3, 5, (1, 9, 11), (1, 3, 3), padding=(0, 1, 1), axes=2, bias=True),
    Case(1, 4, 18, (1, 1, 1060), (1, 1, 3), padding=(0, 0, 2), axes=1),
    Case(1, 2, 3, (4, 5, 6), (2, 3, 2), (1, 2, 2), (1, 1, 0), (1, 1, 2), bias=True),
    Case(2, 6, 6, (1, 8, 9), (1, 3, 3), (1, 2, 2), (0, 1, 1), groups=6, axes=2, bias=True),
    Case(1, 3, 3, (1, 1, 600), (1, 1, 4), groups=3, axes=1),
    Case(1, 6, 9, (1, 7, 7), (1, 2, 2), dilation=(1, 2, 3), groups=3, axes=2),
    Case(1, 70, 17, (1, 5, 5), (1, 2, 2), (1, 3, 3), (0, 1, 1), axes=2, odd=True),
    Case(0, 3, 5, (1, 9, 11), (1, 3, 3), axes=2),
    Case(1, 1, 1, (1, 1, 1), (1, 1, 1), padding=(0, 1, 2), axes=2),
    Case(1, 8, 130, (1, 3, 3), (1, 2, 2), padding=(0, 3, 3), axes=2),
    Case(1, 5, 2, (3, 3, 3), (3, 3, 3), axes=3),
)  # fmt: skip
"""Ragged rows, positions and fields; every number of axes; groups and depthwise; a stride past the kernel;
positions whose whole field is padding; none."""
LARGE = (
    Case(2, 64, 96, (1, 28, 28), (1, 3, 3), padding=(0, 1, 1), axes=2, bias=True),
    Case(1, 3, 40, (1, 65, 64), (1, 7, 7), (1, 2, 2), (0, 3, 3), axes=2),
    Case(2, 256, 256, (1, 15, 17), (1, 3, 3), padding=(0, 1, 1), groups=256, axes=2),
    Case(1, 80, 100, (1, 1, 1500), (1, 1, 3), (1, 1, 2), (0, 0, 1), axes=1, bias=True),
)
BRIEF = (CASES[1], CASES[2], CASES[4])
_KNOWN = {tuple(case.shape.values()): case for case in (*CASES, *LARGE)}


def case_of(size: Mapping[str, int]) -> Case:
    return _KNOWN[tuple(size[name] for name in CASES[0].shape)]


def inputs(case: Case, dtype: str, rng: np.random.Generator) -> dict[str, Any]:
    """x, bias where there is one, and scalars."""
    x = rng.standard_normal((case.b, case.c, *case.size[3 - case.axes :]))
    if case.odd:
        x = np.where(rng.random(x.shape) < 0.002, rng.choice([np.nan, np.inf, -np.inf], x.shape), x)
    values: dict[str, Any] = {"x": round_to(x, dtype), **case.scalars}
    return {**values, "bias": activations((case.o,), dtype, rng)} if case.bias else values


def expected(
    operands: Mapping[str, Any], weights: Double, kernel: tuple[int, ...], dtype: str, levels: int
) -> Expected:
    """weights: [o, field]; kernel: of all axes."""
    x = to_double(operands["x"], dtype)
    lacking = 5 - x.ndim
    x = x.reshape(*x.shape[:2], *(1,) * lacking, *x.shape[2:])
    each = [tuple(operands[f"{n}_{a}"] for a in AXES) for n in ("stride", "padding", "dilation")]
    groups = operands["groups"]
    w = weights.reshape(len(weights), -1, *kernel)
    bias = to_double(operands["bias"], dtype) if operands.get("bias") is not None else np.zeros(len(w))
    column = bias.reshape(-1, 1, 1, 1)
    with np.errstate(all="ignore"):
        value = convolve(x, w, groups, *each) + column
        magnitude = convolve(np.abs(x), np.abs(w), groups, *each) + np.abs(column)
        limit = bound(value, dtype, roundings(weights.shape[1], levels), magnitude)
    shape = (*value.shape[:2], *value.shape[2 + lacking :])
    return Expected(value.reshape(shape), limit.reshape(shape))


def roundings(field: int, levels: int) -> float:
    """c of a sum over a field of weights with `levels` of scales."""
    return 4.0 + levels + float(np.sqrt(field))


def convolve(
    x: Double,
    w: Double,
    groups: int,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Double:
    """x[b, c, d, h, w] and w[o, c / groups, ...], tap by tap."""
    out = [
        (n + 2 * p - r * (k - 1) - 1) // s + 1
        for n, p, r, k, s in zip(x.shape[2:], padding, dilation, w.shape[2:], stride)
    ]
    padded = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    every: tuple[Any, ...] = (slice(None), slice(None))
    total = np.zeros((len(x), groups, len(w) // groups, int(np.prod(out))))
    for tap in product(*map(range, w.shape[2:])):
        steps = [slice(t * r, t * r + (n - 1) * s + 1, s) for t, r, n, s in zip(tap, dilation, out, stride)]
        part, factors = padded[every + tuple(steps)], w[every + tap]
        factors = factors.reshape(groups, len(w) // groups, -1)
        total += factors @ part.reshape(len(x), groups, w.shape[1], int(np.prod(out)))
    return total.reshape(len(x), len(w), *out)
