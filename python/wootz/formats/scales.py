"""Ranges of blocks, and the scales and zero points that the rules pick from them; see quantize for the
rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..lazy_numpy import np
from .dequantize import combine_scales, on_grid, row_chunks
from .descriptor import Descriptor, Scale, Zero, extent, grid
from .element import Element

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127
FLOAT32_LEAST = 2.0**-149


# ------------------------------------------------------------ reading
@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """The input, read some rows at a time."""

    w: NDArray[Any]
    nan_is_error: bool
    nan_is_zero: bool

    def rows(self, start: int, stop: int) -> NDArray[np.float64]:
        """Rows as float64; NaN is 0, or left where the element has a code for it. ArgumentError names a
        forbidden NaN.
        """
        part = self.w[start:stop].astype(np.float64)
        bad = np.isnan(part)
        if not bad.any():
            return part
        if self.nan_is_zero:
            part[bad] = 0
        elif self.nan_is_error:
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise ArgumentError(
                f"array: NaN at [{start + row}, {column}], and the format has no code for it; "
                'remove it or pass nan="zero"'
            )
        return part


@dataclass(frozen=True, eq=False, repr=False)
class Ranges:
    """By block: the number that sets the scale (largest magnitude, or signed extreme), or the low and high
    end.
    """

    peak: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def block_ranges(source: Source, format: Descriptor) -> Ranges | None:
    if not format.scales and format.zero is None:
        for start, stop in row_chunks(*source.w.shape):
            source.rows(start, stop)  # a NaN must be found here too
        return None
    shape = (source.w.shape[0], source.w.shape[1])
    rows, columns = extent(format.block, shape)
    starts = np.arange(0, shape[1], columns)
    signed = bool(format.scales) and format.scales[0].rule == "signed_absmax"
    # By row first: a block may be taller than what is read at once.
    low, high, first, infinite = (np.empty((shape[0], starts.size)) for _ in range(4))
    for start, stop in row_chunks(*shape):
        part = source.rows(start, stop)
        finite = np.isfinite(part)
        clean = bool(finite.all())
        here = slice(start, stop)
        infinite[here] = (
            0 if clean else np.maximum.reduceat(np.isinf(part).astype(np.float64), starts, axis=1)
        )
        low[here] = np.minimum.reduceat(part if clean else np.where(finite, part, np.inf), starts, axis=1)
        high[here] = np.maximum.reduceat(part if clean else np.where(finite, part, -np.inf), starts, axis=1)
        if signed:
            first[here] = _first_extreme(np.where(finite, part, 0), starts, columns)
    tops = np.arange(0, shape[0], rows)
    low, high = np.minimum.reduceat(low, tops, axis=0), np.maximum.reduceat(high, tops, axis=0)
    low, high = low + 0.0, high + 0.0  # the less of 0 and -0 may be either
    empty = low > high
    low[empty], high[empty] = 0, 0
    peak = np.maximum(np.abs(low), np.abs(high))
    if signed:
        peak = _first_extreme(first.T, tops, rows).T
    only_infinite = (np.maximum.reduceat(infinite, tops, axis=0) > 0) & (low == 0) & (high == 0)
    element = format.element
    peak[only_infinite] = element.low if signed else element.max
    low[only_infinite], high[only_infinite] = element.low, element.high
    return Ranges(peak, low, high)


def _first_extreme(part: NDArray[np.float64], starts: NDArray[np.intp], length: int) -> NDArray[np.float64]:
    """Of each block of columns, the first of the numbers with the largest magnitude."""
    padded = np.zeros((part.shape[0], starts.size * length))
    padded[:, : part.shape[1]] = part
    blocks = padded.reshape(part.shape[0], starts.size, length)
    where = np.abs(blocks).argmax(axis=2)
    return np.take_along_axis(blocks, where[:, :, None], axis=2)[:, :, 0]


# ------------------------------------------------------------ scales
def _power_of_two(rule: str, peak: NDArray[np.float64], element: Element) -> NDArray[np.float64]:
    """The rules that pick a power of two; peak > 0."""
    # frexp gives a mantissa from 1/2 to 1: number = mantissa * 2^exponent.
    if rule in ("floor", "even"):
        mantissa, exponent = np.frexp(peak)
        if rule == "even":
            exponent = exponent + (mantissa + 2.0 ** -(_mantissa_bits(element) + 2) >= 1)
        shift = exponent - np.frexp(element.max)[1]
    else:
        # peak / E = (m / M) * 2^(e - f): compared without dividing, so that no rounding can move it.
        (m, e), (big, f) = np.frexp(peak), np.frexp(element.max)
        low = np.where(m < big, e - f - 1, e - f)  # floor(log2(peak / E))
        rest = np.where(m < big, 2 * m, m)  # rest / big is from 1 to 2
        past = rest > big if rule == "ceil" else rest * rest > 2 * big * big
        shift = low + past
    power: NDArray[np.float64] = np.ldexp(1.0, np.clip(shift, -1000, 1000).astype(np.int32))
    return power


def _mantissa_bits(element: Element) -> int:
    """Bits after the leading one that the element keeps of a large number."""
    top = np.sort(np.abs(element.values[element.usable]))
    octave = np.unique(top[np.frexp(top)[1] == np.frexp(element.max)[1]])
    if octave.size < 2:
        return 0
    return max(0, int(np.frexp(octave[-1])[1] - 1 - np.floor(np.log2(octave[-1] - octave[-2]))))


def _pick(rule: str, ranges: Ranges, element: Element) -> NDArray[np.float64]:
    """What the rule wants for the blocks' scales, before it is rounded to a type; float32 numbers, 0 for
    zeros.
    """
    if rule == "minmax":
        wanted = (ranges.high - ranges.low) / (element.high - element.low or 1.0)
    elif rule == "signed_absmax":
        wanted = ranges.peak / element.low if element.low < 0 else ranges.peak / element.max
    elif rule == "absmax":
        wanted = np.abs(ranges.peak) / element.max
    else:
        peak = np.abs(ranges.peak)
        wanted = np.where(peak > 0, _power_of_two(rule, np.where(peak > 0, peak, 1.0), element), 0.0)
    return _single(wanted)


def _single(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounded to float32, without overflow, and without becoming 0."""
    with np.errstate(under="ignore"):
        near = np.clip(x, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32).astype(np.float64)
    return np.where((near == 0) & (x != 0), np.copysign(FLOAT32_LEAST, x), near)


def _zero_scale(scale: Scale, element: Element) -> float:
    """The scale of a block of zeros: 0, or without a 0 in the type 1 (the least one, if the element has no
    0).
    """
    if scale.element.has_zero:
        return 0.0
    return 1.0 if element.has_zero else scale.element.low


def choose_entries(
    format: Descriptor, ranges: Ranges | None, shape: tuple[int, ...]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64] | None]:
    """Stored entries of scales and zero point by field, and level 0's scales as the rule wanted them."""
    if ranges is None:
        return {}, None
    size = (shape[0], shape[1])
    ranges = _widened(format, ranges)
    entries: dict[str, NDArray[Any]] = {}
    wanted = None
    if format.scales:
        wanted = _scale_entries(format, ranges, size, entries)
    if format.zero is not None:
        scale = combine_scales(format, entries, size, np.float32).astype(np.float64)
        entries["zero"] = _zero_entries(format, format.zero, ranges, scale)
    return entries, wanted


def _scale_entries(
    format: Descriptor, ranges: Ranges, size: tuple[int, int], entries: dict[str, NDArray[Any]]
) -> NDArray[np.float64]:
    """Fill in the entries of all levels; returns what the rule wanted for level 0."""
    above, upper = _upper_levels(format, _pick(format.scales[0].rule, ranges, format.element), size)
    first = format.scales[0]
    wanted = _pick(
        first.rule, Ranges(*(r / above for r in (ranges.peak, ranges.low, ranges.high))), format.element
    )
    idle = _zero_scale(first, format.element)
    # -0 stays: signed_absmax gives it, and so does the program that the rule is from.
    stored = np.where(wanted == 0, wanted if idle == 0 else idle, wanted)
    entries.update(upper, scale=first.element.encode(stored, nonzero=True))
    return wanted


_WIDEST_ZERO = 2.0**15
"""A zero point's magnitude that every wide type holds."""


def _widened(format: Descriptor, ranges: Ranges) -> Ranges:
    """Ranges that hold 0 where a zero point in the code domain, some -low / s, would not fit its type: for
    narrow types always, for wide ones where a block is all but constant."""
    if format.zero is None or format.zero.domain == "value":
        return ranges
    low, high, element = np.minimum(ranges.low, 0), np.maximum(ranges.high, 0), format.element
    if format.zero.element.wide:
        span = element.high - element.low
        narrow = (ranges.high - ranges.low) * _WIDEST_ZERO < span * (high - low)
        low, high = np.where(narrow, low, ranges.low), np.where(narrow, high, ranges.high)
    return Ranges(ranges.peak, low, high)


def _upper_levels(
    format: Descriptor, wanted: NDArray[np.float64], shape: tuple[int, int]
) -> tuple[NDArray[np.float64], dict[str, NDArray[Any]]]:
    """Levels 1 and up: what they multiply level 0 by, on its grid, and their stored entries."""
    levels = format.scales
    targets: list[NDArray[np.float64]] = [wanted]
    for i in range(1, len(levels)):
        peak = _coarser_peak(targets[-1], levels[i - 1], levels[i], shape)
        targets.append(_pick(levels[i].rule, Ranges(peak, -peak, peak), levels[i - 1].element))
    total = np.ones((1, 1))
    entries: dict[str, NDArray[Any]] = {}
    finer = levels[-1].block if levels else (0, 0)
    for i in range(len(levels) - 1, 0, -1):
        level = levels[i]
        total = on_grid(total, finer, level.block, shape) if total.size > 1 else total
        factor = np.where(targets[i] == 0, 1.0, np.abs(targets[i]) / total)
        divide = level.op == "divide"
        entry = level.element.encode(_single(1 / factor) if divide else _single(factor), nonzero=True)
        entries[format.field_name(i)] = entry
        value = level.element.decode(entry).astype(np.float64)
        value = np.where(value == 0, 1.0, value)
        total = total / value if divide else total * value
        finer = level.block
    return (on_grid(total, finer, format.block, shape) if total.size > 1 else total), entries


def _coarser_peak(
    values: NDArray[np.float64], fine: Scale, coarse: Scale, shape: tuple[int, int]
) -> NDArray[np.float64]:
    """Largest magnitude of one level's numbers within each block of the next."""
    rows, columns = grid(coarse.block, shape)
    r0, c0 = extent(fine.block, shape)
    r1, c1 = extent(coarse.block, shape)
    tops = np.arange(rows) * (r1 // r0 or 1)
    starts = np.arange(columns) * (c1 // c0 or 1)
    return np.maximum.reduceat(np.maximum.reduceat(np.abs(values), starts, axis=1), tops, axis=0)


def _zero_entries(format: Descriptor, zero: Zero, ranges: Ranges, scale: NDArray[np.float64]) -> NDArray[Any]:
    element = format.element
    scale = np.broadcast_to(scale, ranges.low.shape)
    if zero.domain == "value":
        wanted = ranges.low - element.low * scale
    else:
        quotient = np.divide(ranges.low, scale, out=np.zeros_like(ranges.low), where=scale != 0)
        wanted = element.low - quotient
    return zero.element.encode(wanted - (1 if zero.minus_one else 0))
