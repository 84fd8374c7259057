"""A roofline: operations a second over operations a byte, both as powers of ten, in SVG or by matplotlib."""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, MissingPackageError
from .ceilings import Ceilings
from .rows import Row

WIDTH, HEIGHT, MARGIN = 720, 480, 60
COLOURS = ("#1b6ca8", "#c2410c", "#2f7d32", "#7b3fa0", "#b8860b", "#555555")


@dataclass(frozen=True)
class Point:
    """x: operations a byte; y: TFLOP/s. Of kernels without operations, one is counted a byte."""

    label: str
    group: str
    x: float
    y: float


def points(rows: Sequence[Row]) -> list[Point]:
    """A point a row."""
    return [
        Point(
            f"{row.kernel} {row.format} {row.dtype} {row.size}: {row.us:.2f} us, "
            f"{row.times_floor:.2f} x floor",
            f"{row.kernel} {row.dtype}",
            (row.flops or row.bytes) / row.bytes,
            (row.flops or row.bytes) / row.us / 1e6,
        )
        for row in rows
    ]


def check_format(path: Path | None) -> None:
    """Raises ArgumentError: an ending that is no picture's; MissingPackageError: PNG without matplotlib."""
    if path is None or path.suffix == ".svg":
        return
    if path.suffix != ".png":
        raise ArgumentError(f"--plot {path}: want a name that ends in .svg or .png")
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise MissingPackageError(
            f"--plot {path}: PNG needs matplotlib: pip install 'wootz[bench]', or ask for .svg"
        ) from None


def picture(path: Path, title: str, ceilings: Ceilings, rows: Sequence[Row]) -> bytes:
    """The file's bytes, by the ending of its name."""
    made = points(rows)
    if path.suffix == ".svg":
        return svg(title, ceilings.read_gb_s, ceilings.matrix_tflops, made).encode()
    return _png(title, ceilings.read_gb_s, ceilings.matrix_tflops, made)


def _range(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around them."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


@dataclass(frozen=True)
class _Frame:
    """From powers of ten to places in the picture."""

    x: tuple[int, int]
    y: tuple[int, int]

    def at(self, x: float, y: float) -> tuple[float, float]:
        right, up = (math.log10(x) - self.x[0]) / (self.x[1] - self.x[0]), math.log10(y) - self.y[0]
        up /= self.y[1] - self.y[0]
        return MARGIN + right * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN)


def svg(title: str, read_gb_s: float, rates: dict[str, float], made: Sequence[Point]) -> str:
    """The picture as text: axes, the roof of each dtype, a dot a row with what it is as its title."""
    slope = read_gb_s / 1e3
    xs = [*(p.x for p in made), *(rate / slope for rate in rates.values()), 1.0]
    ys = [*(p.y for p in made), *rates.values(), slope * min(xs)]
    frame = _Frame(_range(xs), _range(ys))
    parts = [*_axes(frame), *_roofs(frame, slope, rates), *_dots(frame, made)]
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            _text(WIDTH / 2, 24, f"{title}: read {read_gb_s:.0f} GB/s", size=14),
            *parts,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", size: int = 11, more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>{escape(text)}</text>'
    )


def _line(a: tuple[float, float], b: tuple[float, float], stroke: str, more: str = "") -> str:
    return f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{stroke}"{more}/>'


def _axes(frame: _Frame) -> list[str]:
    parts = []
    for power in range(frame.x[0], frame.x[1] + 1):
        low, high = frame.at(10.0**power, 10.0 ** frame.y[0]), frame.at(10.0**power, 10.0 ** frame.y[1])
        parts += [_line(low, high, "#dddddd"), _text(low[0], low[1] + 16, f"{10.0**power:g}")]
    for power in range(frame.y[0], frame.y[1] + 1):
        low, high = frame.at(10.0 ** frame.x[0], 10.0**power), frame.at(10.0 ** frame.x[1], 10.0**power)
        parts += [_line(low, high, "#dddddd"), _text(low[0] - 6, low[1] + 4, f"{10.0**power:g}", "end")]
    turned = f' transform="rotate(-90 16 {HEIGHT / 2})"'
    parts.append(_text(WIDTH / 2, HEIGHT - 14, "operations a byte"))
    parts.append(_text(16, HEIGHT / 2, "TFLOP/s", more=turned))
    return parts


def _roofs(frame: _Frame, slope: float, rates: dict[str, float]) -> list[str]:
    low, right = 10.0 ** max(frame.x[0], frame.y[0] - math.log10(slope)), 10.0 ** frame.x[1]
    parts, top = [], max(rates.values(), default=slope * right)
    ridge = min(top / slope, right)
    parts.append(_line(frame.at(low, low * slope), frame.at(ridge, ridge * slope), "black"))
    for dtype, rate in rates.items():
        corner, end = frame.at(rate / slope, rate), frame.at(right, rate)
        parts += [_line(corner, end, "black"), _text(end[0], end[1] - 4, f"{dtype} {rate:.0f}", "end")]
    return parts


def _dots(frame: _Frame, made: Sequence[Point]) -> list[str]:
    groups = list(dict.fromkeys(point.group for point in made))
    parts = []
    for point in made:
        x, y = frame.at(point.x, point.y)
        colour = COLOURS[groups.index(point.group) % len(COLOURS)]
        title = f"<title>{escape(point.label)}</title>"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">{title}</circle>')
    for i, group in enumerate(groups):
        more = f' fill="{COLOURS[i % len(COLOURS)]}"'
        parts.append(_text(MARGIN + 8, MARGIN + 14 + 14 * i, group, "start", more=more))
    return parts


def _png(title: str, read_gb_s: float, rates: dict[str, float], made: Sequence[Point]) -> bytes:
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(9, 6))
    axes = figure.subplots()
    slope = read_gb_s / 1e3
    low, high = min([p.x for p in made] + [1.0]), max([p.x for p in made] + [1.0]) * 10
    for dtype, rate in rates.items():
        ridge = rate / slope
        roof = [low, ridge, max(high, ridge)], [low * slope, rate, rate]
        axes.plot(*roof, label=f"{dtype} {rate:.0f}")
    if not rates:
        axes.plot([low, high], [low * slope, high * slope])
    for group in dict.fromkeys(point.group for point in made):
        some = [point for point in made if point.group == group]
        axes.scatter([p.x for p in some], [p.y for p in some], label=group)
    axes.set(
        xscale="log", yscale="log", xlabel="operations a byte", ylabel="TFLOP/s",
        title=f"{title}: read {read_gb_s:.0f} GB/s",
    )  # fmt: skip
    axes.legend()
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()
