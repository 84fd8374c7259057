"""Numbers in a kernel's dtypes, and how far from the float64 value of a reference a result may be.

What each kernel should give is in `checks/`, one file a kernel; a bound there is
    u * |y| + c * 2^-24 * M + u * tiny
element by element, with u the output dtype's unit roundoff (the one rounding at the end) and tiny its least
normal number, M the magnitude that the kernel's own float32 roundings scale with, and c how many of them
there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DtypeError
from .formats.bits import from_bf16, to_bf16

U32 = 2.0**-24
# dtype -> unit roundoff, least normal number, NumPy storage (bf16, e4m3, e5m2, bool: bits). Integers: exact.
DTYPES: dict[str, tuple[float, float, Any]] = {
    "f16": (2.0**-11, 2.0**-14, np.float16),
    "bf16": (2.0**-8, 2.0**-126, np.uint16),
    "f32": (U32, 2.0**-126, np.float32),
    "e4m3": (2.0**-4, 2.0**-6, np.uint8),
    "e5m2": (2.0**-3, 2.0**-14, np.uint8),
    "bool": (0.0, 1.0, np.uint8),
    "i8": (0.0, 1.0, np.int8),
    "u8": (0.0, 1.0, np.uint8),
    "u16": (0.0, 1.0, np.uint16),
    "i32": (0.0, 1.0, np.int32),
    "u32": (0.0, 1.0, np.uint32),
}
ROUNDED = ("f16", "bf16", "f32")
_BYTE_FLOATS = {"e4m3": (4, 3, False), "e5m2": (5, 2, True)}  # exponent bits, mantissa bits, has infinities


def round_to(x: NDArray[np.float64], dtype: str) -> NDArray[Any]:
    """float64 -> f16, f32 or raw bf16, one rounding to nearest even, overflow to infinity. DtypeError for
    anything else: NumPy would cut numbers off that it takes for codes."""
    if dtype not in ROUNDED:
        raise DtypeError(f"dtype: wanted one of {', '.join(ROUNDED)} to round to; got {dtype!r}")
    storage = _dtype(dtype)[2]
    with np.errstate(all="ignore"):
        return to_bf16(np.asarray(x, dtype=np.float64)) if dtype == "bf16" else np.asarray(x).astype(storage)


def to_double(array: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """An array of storage elements (or of ml_dtypes' types) -> float64, exact."""
    _dtype(dtype)
    if dtype in _BYTE_FLOATS:
        return _byte_values(dtype)[np.asarray(array, order="C").view(np.uint8)]
    with np.errstate(invalid="ignore"):  # of NaN that signals
        if dtype == "bf16":
            return from_bf16(np.asarray(array, order="C").view(np.uint16)).astype(np.float64)
        return array.astype(np.float64)


@cache
def _byte_values(dtype: str) -> NDArray[np.float64]:
    """The number of each code: OCP's 8-bit floats, E4M3 without infinities, E5M2 as in IEEE 754."""
    exponent_bits, mantissa_bits, infinities = _BYTE_FLOATS[dtype]
    codes = np.arange(256)
    mantissa, exponent = codes % (1 << mantissa_bits), (codes >> mantissa_bits) % (1 << exponent_bits)
    bias, top = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    fraction = mantissa / (1 << mantissa_bits) + (exponent > 0)
    value = fraction * 2.0 ** (np.maximum(exponent, 1) - bias)
    if infinities:
        value = np.where(exponent == top, np.where(mantissa == 0, np.inf, np.nan), value)
    else:
        value = np.where(codes % 128 == 127, np.nan, value)
    return np.where(codes < 128, value, -value)


def _dtype(dtype: str) -> tuple[float, float, Any]:
    if dtype not in DTYPES:
        raise DtypeError(f"dtype: wanted one of {', '.join(DTYPES)}; got {dtype!r}")
    return DTYPES[dtype]


@dataclass(frozen=True)
class Expected:
    """value and bound: float64 arrays of the output's shape; |y - value| <= bound is correct."""

    value: NDArray[np.float64]
    bound: NDArray[np.float64]


def bound(
    value: NDArray[np.float64], dtype: str, roundings: float, magnitude: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The bound of the module's docstring; `roundings` is c."""
    unit, tiny, _ = _dtype(dtype)
    with np.errstate(all="ignore"):
        return unit * np.abs(value) + roundings * U32 * magnitude + unit * tiny


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


def _stored(x: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Numbers as a dtype holds them, for where they are infinite: of others than floats, themselves."""
    return to_double(round_to(x, dtype), dtype) if dtype in ROUNDED else x


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
    with np.errstate(invalid="ignore"):
        ends = [_stored(value + step, dtype) for step in (-bound, bound)]
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
