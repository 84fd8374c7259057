"""Launches timed: replays of CUDA graphs on a GPU, the clock around calls on a CPU; peers in turn.

A GPU's clock follows the power that is drawn, and a CPU's neighbours come and go, so that peers are replayed
in turn and ratios are those of neighbours. A graph holds many launches, on operands that together outgrow the
cache where that matters.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..arrays import parse_device

REPLAYS, WARM = 18, 3
"""Replays of each peer, and how many of them, the first, do not count."""

SLICE_US = 20_000.0
"""Of a replay on the CPU, which ends after the launch that passes it: others then have their turn."""

LEAST_US, MOST_US = 1500.0, 6000.0
"""Of a replay on a GPU, where there are operands for it."""

Launch = Callable[[], object]


class Replay(Protocol):
    """One peer, ready to be timed."""

    def replay(self) -> float:
        """Microseconds of one launch."""


class Graph:
    """A CUDA graph of launches in a row; the first two run once before, for what is made at first use.

    It holds the launches, and through them their arrays, of which the graph has the addresses alone: torch
    gives unused memory back to the driver before it captures the next graph.
    """

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._launches = launches
        cuda = self._torch.cuda
        for launch in launches[:2]:
            launch()
        cuda.synchronize()
        self._graph, self._count = cuda.CUDAGraph(), len(launches)
        with cuda.graph(self._graph):
            for launch in launches:
                launch()

    def replay(self) -> float:
        """Microseconds of one launch."""
        event = self._torch.cuda.Event
        start, stop = event(enable_timing=True), event(enable_timing=True)
        start.record()
        self._graph.replay()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e3 / self._count


class Loop:
    """Calls on the CPU. A replay goes on where the last one ended, so that operands stay cold."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._launches, self._next = launches, 0
        launches[0]()

    def replay(self) -> float:
        """Microseconds of one launch: the median of those that a slice had time for."""
        spent: list[float] = []
        while sum(spent) < SLICE_US and len(spent) < len(self._launches):
            launch = self._launches[self._next]
            self._next = (self._next + 1) % len(self._launches)
            start = time.perf_counter_ns()
            launch()
            spent.append((time.perf_counter_ns() - start) / 1e3)
        return statistics.median(spent)


@dataclass(frozen=True)
class Times:
    """us: a launch's median microseconds, of each peer. ratios: the median of its time over the first peer's,
    over the replays. spread: of the first peer, the quartiles' distance over the median."""

    us: tuple[float, ...]
    ratios: tuple[float, ...]
    spread: float = 0.0


def measure(peers: Sequence[Sequence[Launch]], device: str = "cuda:0", replays: int = REPLAYS) -> Times:
    """Peers, each the launches of one replay, in turn. Launches enqueue to torch's current stream on a GPU,
    and have ended when they return on the CPU. Raises what launches do."""
    return in_turn([replay_of(launches, device) for launches in peers], replays)


def replay_of(launches: Sequence[Launch], device: str) -> Replay:
    """A peer's launches, ready to be timed on a device."""
    return (Graph if parse_device(device)[0] == "cuda" else Loop)(launches)


def in_turn(peers: Sequence[Replay], replays: int = REPLAYS) -> Times:
    """The times of peers that are ready."""
    rounds = [[peer.replay() for peer in peers] for _ in range(replays)][WARM:]
    return Times(
        tuple(map(statistics.median, zip(*rounds))),
        tuple(statistics.median(times[i] / times[0] for times in rounds) for i in range(len(peers))),
        _spread([times[0] for times in rounds]),
    )


def _spread(times: Sequence[float]) -> float:
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / middle if middle else 0.0


def lasting(launches: Sequence[Launch], device: str) -> Sequence[Launch]:
    """Launches of one replay, from one for each set of operands. On a GPU: as many, over and over, as last
    LEAST_US, beside which the start of a graph is nothing; of those that last longer than MOST_US fewer, but
    two. On a CPU those that there are: replays take turns with them."""
    if parse_device(device)[0] != "cuda":
        return launches
    us = max(replay_of([*launches[:2]] * (3 - min(len(launches), 2)), device).replay(), 0.1)
    count = max(int(LEAST_US / us), min(len(launches), max(2, int(MOST_US / us))))
    return [launches[i % len(launches)] for i in range(count)]


def count_for(launch: Launch, us: float, device: str = "cuda:0") -> int:
    """Launches in a replay of about so many microseconds: 2 to 200."""
    return max(2, min(200, int(us / replay_of([launch] * 2, device).replay())))


def copies_for(size: int, least: int, rotate: int) -> int:
    """Operands of `size` bytes that together make up `rotate` bytes, at least so many."""
    return max(least, -(-rotate // max(size, 1)))
