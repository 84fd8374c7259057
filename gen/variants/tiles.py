"""The tile lattice of a template: every combination of its tile's sides, stages and so on, and which of them
a target's limits allow, each refusal with its reason.

A template says what a point costs; the limits are those of the target's row. Plain arithmetic: nothing is
compiled here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Union

from ..manifest.target import Target

Point = Mapping[str, int]
MOST_REGISTERS = 255
"""Registers that an instruction can name."""


@dataclass(frozen=True)
class Cost:
    """What a block of a point takes. registers: of a thread, estimated; shared: bytes, as asked for at
    launch."""

    threads: int
    registers: int
    shared: int


@dataclass(frozen=True)
class Lattice:
    """axes: the values of each axis, best first. cost: what a point takes, or why the template has not got
    it."""

    axes: Mapping[str, tuple[int, ...]]
    cost: Callable[[Point], Union[Cost, str]]


@dataclass(frozen=True)
class Candidate:
    """A point of a lattice. reason: why it is left out, "" for one that a target allows."""

    point: Point
    cost: Cost | None
    reason: str = ""


def candidates(lattice: Lattice, target: Target) -> Iterator[Candidate]:
    """Every point, in the order of the axes; the first axis varies slowest."""
    for values in product(*lattice.axes.values()):
        point = dict(zip(lattice.axes, values))
        cost = lattice.cost(point)
        if isinstance(cost, str):
            yield Candidate(point, None, cost)
        else:
            yield Candidate(point, cost, _beyond(cost, target))


def allowed(lattice: Lattice, target: Target) -> list[Candidate]:
    """The points that a target allows."""
    return [candidate for candidate in candidates(lattice, target) if not candidate.reason]


def _beyond(cost: Cost, target: Target) -> str:
    """The first limit that a point is beyond."""
    for what, taken, most in (
        ("threads a block", cost.threads, target.max_threads),
        ("bytes of shared memory a block", cost.shared, target.shared_max),
        ("registers a thread", cost.registers, MOST_REGISTERS),
        ("registers a block", cost.registers * cost.threads, target.registers or 1 << 62),
    ):
        if taken > most:
            return f"{taken} {what}, the target has {most}"
    return ""
