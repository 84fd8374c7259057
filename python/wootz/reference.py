"""What every kernel should give, in float64, and how far from it a correct kernel may be.

Errors are bounded element by element by
    u * |y| + c * 2^-24 * M + u * tiny
with u the output dtype's unit roundoff (the one rounding at the end) and tiny its least normal number, M the
magnitude that the kernel's own float32 roundings scale with, and c how many of them there are:

copy, min, max   bit for bit; NaN propagates, as in numpy.minimum.
add, sub, mul    M = |y|, c = 0 for float32 output (one correctly rounded operation), 1 for f16 and bf16,
                 which are rounded twice.
div              M = |y|, c = 4: 2.5 ulp, which every backend's float32 division keeps.
dequant          M = |y|, c = 2 (1 ulp) where scale levels or a zero point are combined, and no error at all
                 before the output's rounding for one scale alone: the reference is the contract's own float32
                 order, not float64.
qgemv            M = sum |w||x|, c = 4 + levels + sqrt(K): decode and scaling, and float32 sums of K terms.
                 Errors of a sum add up as a random walk (Higham and Mary, "A new approach to probabilistic
                 rounding error analysis", SISC 2019); the worst case, K, would hide a float16 accumulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError, DtypeError
from .formats import Descriptor, QuantizedTensor, decode, decode_exact
from .formats.bits import from_bf16, to_bf16

U32 = 2.0**-24
# dtype -> unit roundoff, least normal number, NumPy storage (bf16: raw bits)
DTYPES: dict[str, tuple[float, float, Any]] = {
    "f16": (2.0**-11, 2.0**-14, np.float16),
    "bf16": (2.0**-8, 2.0**-126, np.uint16),
    "f32": (U32, 2.0**-126, np.float32),
}
BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}
KERNELS = ("copy", "binary", "dequant", "qgemv")


def round_to(x: NDArray[np.float64], dtype: str) -> NDArray[Any]:
    """float64 -> f16, f32 or raw bf16, one rounding to nearest even, overflow to infinity."""
    storage = _dtype(dtype)[2]
    with np.errstate(all="ignore"):
        return to_bf16(np.asarray(x, dtype=np.float64)) if dtype == "bf16" else np.asarray(x).astype(storage)


def to_double(array: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """An f16, f32, raw bf16 or ml_dtypes bfloat16 array -> float64, exact."""
    _dtype(dtype)
    if dtype == "bf16":
        return from_bf16(np.ascontiguousarray(array).view(np.uint16)).astype(np.float64)
    return array.astype(np.float64)


def _dtype(dtype: str) -> tuple[float, float, Any]:
    if dtype not in DTYPES:
        raise DtypeError(f"dtype: wanted one of {', '.join(DTYPES)}; got {dtype!r}")
    return DTYPES[dtype]


@dataclass(frozen=True)
class Expected:
    """value and bound: float64 arrays of the output's shape; |y - value| <= bound is correct."""

    value: NDArray[np.float64]
    bound: NDArray[np.float64]


def copy(x: NDArray[Any], dtype: str) -> Expected:
    """y = x."""
    value = to_double(x, dtype)
    return Expected(value, np.zeros_like(value))


def binary(op: str, a: NDArray[Any], b: NDArray[Any], dtype: str) -> Expected:
    """y = a op b, elementwise; op one of add, sub, mul, div, min, max. ArgumentError for any other."""
    if op not in BINARY:
        raise ArgumentError(f"op: wanted one of {', '.join(BINARY)}; got {op!r}")
    with np.errstate(all="ignore"):
        value: NDArray[np.float64] = BINARY[op](to_double(a, dtype), to_double(b, dtype))
    if op in ("min", "max"):
        return Expected(value, np.zeros_like(value))
    roundings = 4.0 if op == "div" else 0.0 if dtype == "f32" else 1.0
    return Expected(value, _bound(value, dtype, roundings, np.abs(value)))


def dequant(q: QuantizedTensor, dtype: str) -> Expected:
    """y[n, k] = the number that w[n, k] stands for."""
    value = decode(q).astype(np.float64)
    extra = 2.0 if len(q.format.scales) > 1 or q.format.zero else 0.0
    if dtype == "f32" and not extra:
        return Expected(value, np.zeros_like(value))
    magnitude = np.abs(value)
    if q.format.zero is not None and q.format.zero.domain == "value" and len(q.format.scales) > 1:
        magnitude = magnitude + 2 * np.abs(_zeros(q))  # s is rounded before v * s and z cancel
    bound = _bound(value, dtype, extra, magnitude)
    return Expected(value, bound if dtype != "f32" else extra * U32 * magnitude + U32 * 2.0**-126)


def qgemv(x: NDArray[Any], q: QuantizedTensor, dtype: str) -> Expected:
    """y[m, n] = sum over k of x[m, k] * w[n, k]."""
    activations, weights = to_double(x, dtype), decode_exact(q)
    with np.errstate(all="ignore"):
        value = activations @ weights.T
        magnitude = np.abs(activations) @ np.abs(weights).T
    return Expected(value, _bound(value, dtype, qgemv_roundings(q.format, q.shape[1]), magnitude))


def qgemv_roundings(format: Descriptor, k: int) -> float:
    """c of a sum over k, in float32 unit roundoffs of sum |w||x|."""
    return 4.0 + len(format.scales) + float(np.sqrt(k))


def _zeros(q: QuantizedTensor) -> NDArray[np.float64]:
    from .formats.dequantize import expand, zero_values
    from .formats.tensor import side_entries

    zero = zero_values(q.format, side_entries(q))
    if zero is None:
        return np.zeros(q.shape)
    return expand(zero.astype(np.float64), q.format.block, q.shape, 0, q.shape[0])


def _bound(
    value: NDArray[np.float64], dtype: str, roundings: float, magnitude: NDArray[np.float64]
) -> NDArray[np.float64]:
    unit, tiny, _ = _dtype(dtype)
    with np.errstate(all="ignore"):
        return unit * np.abs(value) + roundings * U32 * magnitude + unit * tiny


def expect(kernel: str, options: dict[str, str], operands: dict[str, Any], dtype: str) -> Expected:
    """The reference of a kernel by name; operands by their names in the index. ArgumentError for an unknown
    kernel.
    """
    if kernel == "copy":
        return copy(operands["x"], dtype)
    if kernel == "binary":
        return binary(options["op"], operands["a"], operands["b"], dtype)
    if kernel == "dequant":
        return dequant(operands["w"], dtype)
    if kernel == "qgemv":
        return qgemv(operands["x"], operands["w"], dtype)
    raise ArgumentError(f"kernel: wanted one of {', '.join(KERNELS)}; got {kernel!r}, which has no reference")


@dataclass(frozen=True)
class Comparison:
    """The worst element, both numbers relative to max(|value|, tiny): error within tolerance is a pass."""

    error: float
    tolerance: float
    passed: bool

    def worst(self, other: Comparison) -> Comparison:
        """The failed one; else the one that used more of its tolerance."""
        if self.passed != other.passed:
            return other if self.passed else self
        return max(self, other, key=lambda c: (c._used, c.tolerance))

    @property
    def _used(self) -> float:
        if np.isnan(self.error):
            return float("inf")
        return self.error / self.tolerance if self.tolerance else (0.0 if self.error == 0 else float("inf"))


def compare(actual: NDArray[Any], expected: Expected, dtype: str) -> Comparison:
    """Compare a kernel's output with what is expected.

    NaN must be where NaN is expected, infinities where the expected number rounds to one (or may, within
    its bound). A mismatch there, or in the shape, is an error of infinity.
    """
    _, tiny, _ = _dtype(dtype)
    y = to_double(actual, dtype)
    if y.shape != expected.value.shape:
        return Comparison(float("inf"), 0.0, False)
    if y.size == 0:
        return Comparison(0.0, 0.0, True)
    value, bound = expected.value, np.nan_to_num(expected.bound, nan=0.0, posinf=0.0)
    ends = [to_double(round_to(value + step, dtype), dtype) for step in (-bound, bound)]
    same = (np.isnan(y) & np.isnan(value)) | (np.isinf(y) & ((y == ends[0]) | (y == ends[1])))
    finite = np.isfinite(y) & np.isfinite(value)
    with np.errstate(all="ignore"):
        off = np.where(same, 0.0, np.where(finite, np.abs(y - value), np.inf))
        scale = np.maximum(np.where(np.isfinite(value), np.abs(value), 0.0), tiny)
        used = np.where(off == 0, 0.0, np.where(bound > 0, off / np.where(bound > 0, bound, 1.0), np.inf))
    at = np.unravel_index(int(np.argmax(used)), y.shape)
    # Where nothing is off, the tolerance shown is the largest.
    tolerance = float(bound[at] / scale[at]) if used[at] > 0 else float((bound / scale).max())
    return Comparison(float(off[at] / scale[at]), tolerance, bool(used[at] <= 1.0))
