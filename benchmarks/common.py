"""What the benchmarks share: launches timed as replays of CUDA graphs, peers in turn, and the report.

A GPU's clock follows the power that is drawn, so that peers are replayed in turn, and ratios are those of
neighbours. A graph holds many launches, on operands that together outgrow the L2 where that matters.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROTATE_BYTES = 400 << 20
"""Of the operands of one graph: eight times the L2 of an H200."""

REPLAYS, WARM = 18, 3
"""Replays of each graph, and how many of them, the first, do not count."""

Launch = Callable[[], object]


class Graph:
    """A CUDA graph of launches in a row; the first two run once before, for what is made at first use."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        for launch in launches[:2]:
            launch()
        torch.cuda.synchronize()
        self._graph, self._count = torch.cuda.CUDAGraph(), len(launches)
        with torch.cuda.graph(self._graph):
            for launch in launches:
                launch()

    def replay(self) -> float:
        """Microseconds of one launch."""
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self._graph.replay()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e3 / self._count


@dataclass(frozen=True)
class Times:
    """us: a launch's median microseconds, of each peer. ratios: the median of its time over the first peer's,
    over the replays."""

    us: tuple[float, ...]
    ratios: tuple[float, ...]


def measure(*peers: Sequence[Launch]) -> Times:
    """Peers, each a graph of its launches, replayed in turn."""
    graphs = [Graph(launches) for launches in peers]
    rounds = [[graph.replay() for graph in graphs] for _ in range(REPLAYS)][WARM:]
    return Times(
        tuple(map(statistics.median, zip(*rounds))),
        tuple(statistics.median(times[i] / times[0] for times in rounds) for i in range(len(graphs))),
    )


def count_for(launch: Launch, us: float) -> int:
    """Launches in a graph of about so many microseconds: 2 to 200."""
    return max(2, min(200, int(us / Graph([launch] * 2).replay())))


def copies_for(size: int, least: int = 4) -> int:
    """Operands of `size` bytes that together outgrow the L2."""
    return max(least, -(-ROTATE_BYTES // size))


def read_bandwidth() -> float:
    """TB/s of a plain device-side reduction over 2 GiB."""
    data = torch.randint(0, 2**31 - 1, (1 << 29,), dtype=torch.int32, device="cuda").view(torch.float32)
    (us,) = measure([lambda: torch.amax(data)] * 3).us
    return data.numel() * 4 / us / 1e6


def distance(got: Any, want: Any) -> float:
    """The relative L2 distance of float64 arrays."""
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def parser(text: str | None) -> argparse.ArgumentParser:
    """With the options that every benchmark has."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--artifacts", help="artifact folder (default: the installed one)")
    made.add_argument("--json", type=Path, help="where to write the report")
    return made


def extents(shapes: str) -> list[tuple[str, list[int]]]:
    """(text, numbers) of each of "14336x4096,..."."""
    return [(shape, [int(extent) for extent in shape.split("x")]) for shape in shapes.split(",")]


def formats(wanted: str, lib: Any) -> Iterable[str]:
    """Those of a list separated by commas, or all."""
    found: Iterable[str] = lib.formats() if wanted == "all" else wanted.split(",")
    return found


def write(path: Path | None, rows: Sequence[dict[str, Any]], **facts: Any) -> None:
    """The report as JSON: the device, the day, torch's version, other facts, and the rows."""
    if path is None:
        return
    report = {
        "device": torch.cuda.get_device_name(0),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        **facts,
        "rows": list(rows),
    }
    path.write_text(json.dumps(report, indent=1) + "\n")
