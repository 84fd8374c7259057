"""One cell at one size, measured: what it took, its floor, and its peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import cells, peers, room
from .ceilings import Ceilings
from .checking import check
from .devices import Bench
from .problems import Problem, Runs, operands_for, place, prepare
from .timing import REPLAYS, Replay, in_turn, lasting, replay_of
from .work import bytes_of, floor_us, flops_of


@dataclass(frozen=True)
class Row:
    """A result. us: of a launch. bytes, flops: what it has to move and compute at least; floor_us: what that
    takes at the device's ceilings; share: floor_us / us. peers: their microseconds; ratios: the medians of
    theirs over ours; absent: why a peer was not measured. pdl: launches may begin before the one before them
    has ended. cold: operands outgrew the cache. spread: the quartiles' distance over the median. error: the
    largest relative one, that the check found."""

    cell: str
    kernel: str
    format: str
    dtype: str
    shape: Mapping[str, int]
    us: float
    bytes: int
    flops: int
    floor_us: float
    symbol: str = ""
    pdl: bool = False
    cold: bool = True
    spread: float = 0.0
    error: float = 0.0
    peers: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float:
        return self.floor_us / self.us

    @property
    def times_floor(self) -> float:
        """How often the floor fits into what it took."""
        return self.us / self.floor_us

    @property
    def gb_s(self) -> float:
        return self.bytes / self.us / 1e3

    @property
    def tflops(self) -> float:
        return self.flops / self.us / 1e6

    @property
    def size(self) -> str:
        """The extents in words."""
        return " ".join(f"{name}={n}" for name, n in self.shape.items())

    def to_json(self) -> dict[str, Any]:
        """Times in microseconds, sizes in bytes."""
        return {
            "cell": self.cell, "kernel": self.kernel, "format": self.format, "dtype": self.dtype,
            "shape": dict(self.shape), "us": self.us, "bytes": self.bytes, "flops": self.flops,
            "floor_us": self.floor_us, "share": self.share, "peers": dict(self.peers),
            "ratios": dict(self.ratios), "absent": dict(self.absent), "symbol": self.symbol,
            "pdl": self.pdl, "cold": self.cold, "spread": self.spread, "error": self.error,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Measuring:
    """Where and how: a library, a device, its ceilings; names of peers (None: no peers, none: all)."""

    lib: Any
    device: Bench
    ceilings: Ceilings
    peers: Sequence[str] | None = None
    replays: int = REPLAYS


def row_of(how: Measuring, cell: cells.Cell, size: Mapping[str, int]) -> Row:
    """A cell at a size, checked and then timed. Raises MismatchError, ArgumentError, NoKernelError and what
    the device says; what peers raise is theirs alone."""
    device, options = how.device, cell.get("options") or {}
    if device.name == "cpu":
        room.check(how.lib, cell, size)
    problem = operands_for(how.lib, cell, size)
    kernel = how.lib._kernel(cell["kernel"], problem.format, cell["dtype"], device.name, options)
    placed = place(problem, device)
    runs = prepare(kernel, placed, device)
    found = check(problem, runs, device, kernel)
    ours = replay_of(lasting(runs.launches, device.name), device.name)
    others, absent = _others(how, cell, problem, placed, runs)
    times = in_turn([ours, *others.values()], how.replays)
    size_bytes, flops = bytes_of(problem, runs.out_bytes), flops_of(problem)
    rate = how.ceilings.tflops(_dtype(problem)) if flops else 1.0
    return Row(
        str(cell["key"]), cells.stem(cell), str(cell.get("format") or "-"), problem.dtype, dict(size),
        times.us[0], size_bytes, flops, floor_us(size_bytes, flops, how.ceilings.read_gb_s, rate),
        runs.symbol, runs.early, placed.cold, times.spread, found.error,
        dict(zip(others, times.us[1:])), dict(zip(others, times.ratios[1:])), absent,
    )  # fmt: skip


def _dtype(problem: Problem) -> str:
    """Of the first operand that a product multiplies."""
    first = problem.signature.operands[0]
    return problem.types[first.name] if first.kind == "array" else problem.dtype


def _others(
    how: Measuring, cell: cells.Cell, problem: Problem, placed: Any, runs: Runs
) -> tuple[dict[str, Replay], dict[str, str]]:
    """Peers that can be replayed, and why others cannot."""
    replays: dict[str, Replay] = {}
    absent: dict[str, str] = {}
    if how.peers is None:
        return replays, absent
    format = str(cell.get("format") or "-")
    fitting = peers.of(cells.stem(cell), format, problem.dtype, how.device.name, how.peers)
    for peer in fitting:
        given = peers.Given(problem, placed, how.device, tuple(runs.outputs[0].shape))
        made = peers.ready(peer, given)
        try:
            if not made.why:
                replays[peer.name] = replay_of(lasting(made.launches, how.device.name), how.device.name)
        except Exception as error:  # a library that cannot be captured
            made = peers.Ready(peer, why=f"{type(error).__name__}: {error}")
        if made.why:
            absent[peer.name] = made.why
    return replays, absent
