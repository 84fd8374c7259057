"""Rooflines as SVG: performance over arithmetic intensity, both on logarithmic axes, under the ceilings that
the device was measured at. Williams, Waterman, Patterson: Roofline, CACM 52 (4), 2009."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .bench import Bench, Row

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 20, 48


@dataclass(frozen=True)
class Mark:
    """A point of the plot: pixels, the series that it is of, and what it says."""

    x: float
    y: float
    series: int
    text: str


@dataclass(frozen=True)
class Label:
    """Where a ceiling's name stands: pixels, SVG's text-anchor, degrees."""

    x: float
    y: float
    anchor: str
    angle: float = 0.0


@dataclass(frozen=True)
class Line:
    """A ceiling: pixels of its ends, and its name."""

    x1: float
    y1: float
    x2: float
    y2: float
    text: str

    @property
    def at(self) -> Label:
        """Level lines have their name above the right end, the diagonal along its middle."""
        if self.y1 == self.y2:
            return Label(self.x2 - 6, round(self.y2 - 5, 1), "end")
        x, y = round((self.x1 + self.x2) / 2, 1), round((self.y1 + self.y2) / 2 - 7, 1)
        return Label(x, y, "middle", round(math.degrees(math.atan2(self.y2 - self.y1, self.x2 - self.x1)), 1))


@dataclass(frozen=True)
class Tick:
    """A decade: its pixel and its label."""

    at: float
    text: str


@dataclass(frozen=True)
class Plot:
    """Everything that the page draws. series: names, in the order of their marks."""

    xs: tuple[Tick, ...]
    ys: tuple[Tick, ...]
    roofs: tuple[Line, ...]
    marks: tuple[Mark, ...]
    series: tuple[str, ...]


_STEPS = (1, 2, 5)
_MANY = 3.0  # decades from which on only whole ones have a tick


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis: its ends, and their pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + part * (self.end - self.start), 1)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        steps = _STEPS if math.log10(self.high / self.low) < _MANY else _STEPS[:1]
        return tuple(Tick(self.at(v), f"{v:,g}") for v in _round(self.low, self.high) if _lead(v) in steps)


def _round(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, from the last at most `low` to the first at least `high`."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found = [step * 10.0**e for e in range(first, last + 1) for step in _STEPS]
    start = max(i for i, v in enumerate(found) if v <= low * 1.0001)
    stop = min(i for i, v in enumerate(found) if v >= high * 0.9999)
    return found[start : stop + 1]


def _lead(value: float) -> int:
    """The first digit."""
    return round(value / 10.0 ** math.floor(math.log10(value) + 1e-9))


def _axis(values: Sequence[float], start: float, end: float) -> _Axis:
    low = min(values) / 1.1
    ends = _round(low, max(max(values) * 1.1, 9 * low))  # about a decade, or more
    return _Axis(ends[0], ends[-1], start, end)


_MOST = 12  # series with their formats; where there are more, kernels


def plot(bench: Bench) -> Plot | None:
    """The roofline of a file; None where no row says both its bytes and its operations."""
    rows = [row for row in bench.rows if row.intensity and row.tflops]
    if not rows:
        return None
    slope = bench.read_gb_s / 1000 if bench.read_gb_s else None  # TFLOP/s at one operation a byte
    peaks = dict(sorted(bench.matrix_tflops.items(), key=lambda item: item[1]))
    knees = [peak / slope for peak in peaks.values()] if slope else []
    x = _axis([*(row.intensity or 0.0 for row in rows), *knees], LEFT, WIDTH - RIGHT)
    above = [min([slope * (row.intensity or 1), *list(peaks.values())[-1:]]) for row in rows] if slope else []
    y = _axis([*(row.tflops or 0.0 for row in rows), *above, *peaks.values()], HEIGHT - BOTTOM, TOP)
    names = [_series(row) for row in rows]
    if len(set(names)) > _MOST:
        names = [row.kernel for row in rows]
    series = tuple(sorted(set(names)))
    marks = (
        Mark(x.at(row.intensity or 1), y.at(row.tflops or 1), series.index(own), said(row))
        for row, own in zip(rows, names)
    )
    return Plot(x.ticks, y.ticks, tuple(_roofs(slope, peaks, x, y)), tuple(marks), series)


def _series(row: Row) -> str:
    return " ".join(part for part in (row.kernel, row.format) if part)


def _roofs(slope: float | None, peaks: Mapping[str, float], x: _Axis, y: _Axis) -> Iterator[Line]:
    """The diagonal, as far as the plot or the highest peak; a level line from it for each peak."""
    left, right, top = x.low, x.high, max(peaks.values(), default=y.high)
    if slope:
        first, last = max(left, y.low / slope), min(right, top / slope, y.high / slope)
        if first < last:
            text = f"{figure(slope * 1000)} GB/s read"
            yield Line(x.at(first), y.at(first * slope), x.at(last), y.at(last * slope), text)
    for names, peak in _levels(peaks):
        start = max(left, peak / slope) if slope else left
        if start < right:
            yield Line(x.at(start), y.at(peak), x.at(right), y.at(peak), f"{names} TFLOP/s")


def _levels(peaks: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Peaks from the lowest; those within a tenth of each other are one line."""
    groups: list[list[str]] = []
    for name, peak in peaks.items():
        if groups and peak < 1.1 * peaks[groups[-1][0]]:
            groups[-1].append(name)
        else:
            groups.append([name])
    for group in groups:
        yield ", ".join(f"{name} {figure(peaks[name])}" for name in group), peaks[group[-1]]


def figure(value: float) -> str:
    """A measured number, to three digits or to the unit."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def said(row: Row) -> str:
    """A row in words."""
    shape = ", ".join(f"{axis} {size}" for axis, size in row.shape.items())
    parts = [_series(row), row.dtype, shape, f"{figure(row.us)} µs"]
    parts += [f"{figure(row.tflops)} TFLOP/s"] if row.tflops else []
    parts += [f"{figure(row.gb_s)} GB/s"] if row.gb_s else []
    return "; ".join(part for part in parts if part)


_SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.5-4.5h9v9h-9z",
    "M0-5.5 5.5 4.5h-11z",
    "M0-6 6 0 0 6-6 0z",
    "M0 5.5-5.5-4.5h11z",
    "M-1.8-5.5h3.6v3.7h3.7v3.6h-3.7v3.7h-3.6v-3.7h-3.7v-3.6h3.7z",
)
"""Outlines about the origin: circle, square, triangle, diamond, triangle, cross."""


def symbol(series: int) -> str:
    """The outline of a series' marks; one beyond the sixth has the shape of an earlier one, and the colour of
    another (page.css has six)."""
    return _SHAPES[(series + series // 6) % 6]
