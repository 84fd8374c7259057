"""Launch geometry against a target's limits. What is known when a kernel is emitted is refused then; what
depends on a problem's sizes, the loader refuses at launch."""

from __future__ import annotations

from collections.abc import Sequence

from ..manifest.target import Target
from .family import Formula

MOST_CLUSTER = 16
"""Blocks of a cluster, with leave."""


class Beyond(ValueError):
    """A launch that no device of the target takes: it names the kernel, the value and the limit."""


def check(
    symbol: str,
    target: Target,
    threads: int,
    grid: Sequence[Formula],
    shared: Formula = 0,
    static_shared: int = 0,
    cluster: Sequence[int] = (1, 1, 1),
) -> None:
    """Raises Beyond. shared: bytes asked for at launch; static_shared: bytes that the code declares."""
    blocks = cluster[0] * cluster[1] * cluster[2]
    _within(symbol, "threads of a block", threads, 1, target.max_threads)
    for axis, extent, most in zip("xyz", grid, target.grid):
        _within(symbol, f"blocks along {axis}", extent, 1, most)
    _within(symbol, "static bytes of shared memory", static_shared, 0, target.shared_bytes)
    if isinstance(shared, int) and shared:
        _within(symbol, "bytes of shared memory", shared + static_shared, 0, target.shared_max)
    _within(symbol, "blocks of a cluster", blocks, 1, MOST_CLUSTER)


def _within(symbol: str, what: str, value: Formula, least: int, most: int) -> None:
    if isinstance(value, int) and not least <= value <= most:
        raise Beyond(f"{symbol}: {value} {what}; the target takes {least} to {most}")
