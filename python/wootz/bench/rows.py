"""One cell at one size, measured: what it took, its floor, and its peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import cells, peers, room
from .ceilings import Ceilings
from .checking import MismatchError, check
from .devices import Bench, FaultError, summed, watched
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
        return sized(self.shape)

    def to_json(self) -> dict[str, Any]:
        """Times in microseconds, sizes in bytes."""
        return {
            "cell": self.cell, "kernel": self.kernel, "format": self.format, "dtype": self.dtype,
            "shape": dict(self.shape), "us": self.us, "bytes": self.bytes, "flops": self.flops,
            "floor_us": self.floor_us, "share": self.share, "peers": dict(self.peers),
            "ratios": dict(self.ratios), "absent": dict(self.absent), "symbol": self.symbol,
            "pdl": self.pdl, "cold": self.cold, "spread": self.spread, "error": self.error,
        }  # fmt: skip


def sized(shape: Mapping[str, int]) -> str:
    """Extents in words."""
    return " ".join(f"{name}={n}" for name, n in shape.items())


@dataclass(frozen=True, eq=False)
class Measuring:
    """Where and how: a library, a device, its ceilings; names of peers (None: no peers, none: all). pdl:
    whether launches may begin before the one before them has ended, where the index says so."""

    lib: Any
    device: Bench
    ceilings: Ceilings
    peers: Sequence[str] | None = None
    replays: int = REPLAYS
    pdl: bool = True


@dataclass(frozen=True)
class Attempt:
    """What came of measuring a row: the row, or why there is none. wrong: its result is. fault: the process
    that tried has lost the device."""

    row: Row | None = None
    why: str = ""
    wrong: bool = False
    fault: bool = False


def attempt(how: Measuring, cell: cells.Cell, size: Mapping[str, int]) -> Attempt:
    """`row_of`, whatever comes of it; memory that is unused then is given back."""
    if how.device.lost():
        return Attempt(why="not measured: its process has lost the device", fault=True)
    try:
        found = Attempt(row_of(how, cell, size))
    except Exception as error:  # the next rows are still to be measured
        found = Attempt(None, summed(error), isinstance(error, MismatchError), how.device.lost())
    if not found.fault:
        how.device.free()
    return found


@dataclass(frozen=True)
class _Watched:
    """A replay whose faults have its name."""

    of: Replay
    device: Bench
    what: str

    def replay(self) -> float:
        with watched(self.device, self.what):
            return self.of.replay()


KERNEL, PEER = "the kernel", "peer {}"
"""What messages call those that run."""


def row_of(how: Measuring, cell: cells.Cell, size: Mapping[str, int]) -> Row:
    """A cell at a size, checked and then timed. Raises MismatchError, ArgumentError, NoKernelError, what the
    device says, and FaultError, which names the kernel or the peer; what else peers raise is theirs alone."""
    device, options = how.device, cell.get("options") or {}
    lib = how.lib if how.pdl else cells.apart(how.lib)
    if device.name == "cpu":
        room.check(lib, cell, size)
    problem = operands_for(lib, cell, size)
    kernel = lib._kernel(cell["kernel"], problem.format, cell["dtype"], device.name, options)
    with watched(device, "operands"):
        placed = place(problem, device)
    with watched(device, KERNEL):
        runs = prepare(kernel, placed, device)
        found = check(problem, runs, device, kernel)
        ours = replay_of(lasting(runs.launches, device.name), device.name)
    others, absent = _others(how, cell, problem, placed, runs)
    named = {KERNEL: ours, **{PEER.format(name): each for name, each in others.items()}}
    times = in_turn([_Watched(each, device, what) for what, each in named.items()], how.replays)
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
        try:
            with watched(how.device, PEER.format(peer.name)):
                made = peers.ready(peer, given)
                if not made.why:
                    replays[peer.name] = replay_of(lasting(made.launches, how.device.name), how.device.name)
        except FaultError:
            raise
        except Exception as error:  # a library that cannot be captured
            made = peers.Ready(peer, why=summed(error))
        if made.why:
            absent[peer.name] = made.why
    return replays, absent
