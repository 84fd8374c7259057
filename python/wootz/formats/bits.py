"""Bits and bytes: rounding to bfloat16, single-rounding fma, and packing of code streams.

Everything here is format-free: a packing is a table of bit offsets (`layout.positions` of a descriptor),
turned once into a few `Move`s, each of which moves one run of bits of many elements with one NumPy
expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Index = slice | NDArray[np.intp]


# ------------------------------------------------------------ rounding
def round_to_odd(x: NDArray[np.float64]) -> NDArray[np.float32]:
    """float64 -> float32, rounding inexact results to an odd mantissa.

    A second rounding to fewer bits then gives what one direct rounding gives (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums", IEEE ToC 2008). Overflow becomes the largest finite
    float32, still inexact.
    """
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        near = x.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    towards_zero = bits - (np.abs(back) > np.abs(x)).astype(np.uint32)
    inexact = (back != x) & ~np.isnan(x)
    return np.where(inexact, towards_zero | np.uint32(1), bits).astype(np.uint32).view(np.float32)


def to_bf16(x: NDArray[Any]) -> NDArray[np.uint16]:
    """Any float array -> raw bfloat16, one rounding to nearest even; NaN keeps its sign and becomes quiet."""
    x = np.asarray(x)
    single = round_to_odd(x) if x.dtype == np.float64 else x.astype(np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    raw: NDArray[np.uint16] = np.where(np.isnan(single), quiet, rounded).astype(np.uint16)
    return raw


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Raw bfloat16 -> float32, exact."""
    single: NDArray[np.float32] = (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return single


def fma32(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
    """fma(a, b, c) of float32 arrays with one rounding, as C's fmaf gives it.

    The product is exact in float64; the sum is rounded to odd there, so that the rounding to float32 is the
    only one.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.asarray(product + addend)
        shift = total - product
        rest = (product - (total - shift)) + (addend - shift)
    step = np.where((rest < 0) == (total < 0), 1, -1)
    odd = (total.view(np.int64) & 1).astype(bool) | (rest == 0) | ~np.isfinite(rest)
    exact = np.where(odd, total.view(np.int64), total.view(np.int64) + step).view(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return exact.astype(np.float32)


# ------------------------------------------------------------ packing
@dataclass(frozen=True, eq=False, repr=False)
class Move:
    """Bits [source, source + count) of the entries `items` go to bits [target, ...) of the bytes `bytes`."""

    items: Index
    bytes: Index
    source: int
    target: int
    count: int


def _index(numbers: Sequence[int]) -> Index:
    """A slice when the numbers are an increasing arithmetic progression, which NumPy moves fastest."""
    steps = {b - a for a, b in pairwise(numbers)}
    if len(steps) <= 1 and (not steps or min(steps) > 0):
        step = steps.pop() if steps else 1
        return slice(numbers[0], numbers[-1] + 1, step)
    return np.array(numbers, dtype=np.intp)


def _runs(offsets: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """(source bit, byte, bit in byte, length) of the longest contiguous runs that stay inside one byte."""
    runs: list[tuple[int, int, int, int]] = []
    for bit, offset in enumerate(offsets):
        if runs:
            source, byte, target, count = runs[-1]
            if offset == 8 * byte + target + count and offset % 8 != 0:
                runs[-1] = (source, byte, target, count + 1)
                continue
        runs.append((bit, offset // 8, offset % 8, 1))
    return runs


def plan_moves(positions: Sequence[Sequence[int]]) -> tuple[Move, ...]:
    """Moves that pack entry j's bit i to bit `positions[j][i]` of a unit; each byte occurs once in a move."""
    groups: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for item, offsets in enumerate(positions):
        for source, byte, target, count in _runs(offsets):
            groups.setdefault((source, target, count), []).append((item, byte))
    return tuple(
        Move(_index([i for i, _ in pairs]), _index([b for _, b in pairs]), source, target, count)
        for (source, target, count), pairs in sorted(groups.items())
    )


def scatter(out: NDArray[np.uint8], entries: NDArray[Any], moves: Sequence[Move]) -> None:
    """Or the entries [U, items] (unsigned integers) into the bytes [U, unit_bytes] of their units."""
    for move in moves:
        part = entries[:, move.items]
        if move.source:
            part = part >> part.dtype.type(move.source)
        part = (part & part.dtype.type((1 << move.count) - 1)).astype(np.uint8)
        out[:, move.bytes] |= part << np.uint8(move.target)


def gather(data: NDArray[np.uint8], items: int, dtype: Any, moves: Sequence[Move]) -> NDArray[Any]:
    """The inverse of scatter: entries [U, items] of the given unsigned dtype."""
    out = np.zeros((data.shape[0], items), dtype=dtype)
    kind = np.dtype(dtype).type
    for move in moves:
        part = (data[:, move.bytes] >> np.uint8(move.target)) & np.uint8((1 << move.count) - 1)
        out[:, move.items] |= part.astype(dtype) << kind(move.source)
    return out


def stream_pitch(columns: int, bits: int) -> int:
    """Bytes a row of an LSB-first stream takes; widths that straddle bytes get a guard byte, always zero."""
    return -(-columns * bits // 8) + (0 if 8 % bits == 0 else 1)


def pack_stream(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """[R, C] codes -> [R, stream_pitch(C, bits)] bytes, LSB first."""
    rows, columns = codes.shape
    flat = np.unpackbits(codes[:, :, None], axis=2, count=bits, bitorder="little").reshape(
        rows, columns * bits
    )
    packed = np.packbits(flat, axis=1, bitorder="little")
    out = np.zeros((rows, stream_pitch(columns, bits)), dtype=np.uint8)
    out[:, : packed.shape[1]] = packed
    return out


def unpack_stream(data: NDArray[np.uint8], columns: int, bits: int) -> NDArray[np.uint8]:
    """The inverse of pack_stream; the guard byte is not read."""
    flat = np.unpackbits(data, axis=1, count=columns * bits, bitorder="little")
    return np.packbits(flat.reshape(data.shape[0], columns, bits), axis=2, bitorder="little")[:, :, 0]
