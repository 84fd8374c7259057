"""How long a build takes that nobody has run: its compiles, as they are expected to cost, on some machines.

Each machine gets its shard, emits its texts, and then works as ninja does: the longest compile first, at most
`jobs` at once, each pool within its share of the memory. What is left out: audits, and the merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from ..plan.cells import Unit
from . import pools, shards
from .costs import EMIT, Costs
from .pools import Task, pool_of


@dataclass(frozen=True)
class Estimate:
    """Of a build on `machines`. seconds: of the slowest shard; work: of everything, one after the other;
    busy: the share of the time of all jobs in which one runs; recorded: the share of units of whose kernel
    something was recorded."""

    machines: int
    seconds: float
    work: float
    busy: float
    recorded: float


def makespan(tasks: Iterable[Task], jobs: int, depths: Mapping[str, int]) -> int:
    """Milliseconds until the last of the tasks has ended, on one machine (list scheduling, longest first)."""
    waiting: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: task.milliseconds):
        waiting.setdefault(pool_of(task.rule), []).append(task)
    room = {pool: depths[pool] for pool in waiting}
    running: list[tuple[int, str]] = []
    now = 0
    while waiting or running:
        ready = [pool for pool in waiting if room[pool]] if len(running) < jobs else []
        if not ready:
            now, pool = heappop(running)
            room[pool] += 1
            continue
        pool = max(ready, key=lambda pool: waiting[pool][-1].milliseconds)
        heappush(running, (now + waiting[pool].pop().milliseconds, pool))
        room[pool] -= 1
        if not waiting[pool]:
            del waiting[pool]
    return now


def estimate(units: Sequence[Unit], costs: Costs, machines: int, jobs: int, memory: int) -> Estimate:
    """jobs, and memory in bytes, of each machine."""
    parts = shards.split(units, costs, machines)
    longest = max(_machine(part, costs, jobs, memory) for part in parts)
    work = sum(shards.milliseconds(unit, costs) for unit in units)
    busy = work / (longest * jobs * machines) if longest else 0.0
    recorded = sum(unit.kernel.name in costs.table for unit in units) / max(len(units), 1)
    return Estimate(machines, longest / 1000, work / 1000, round(busy, 4), round(recorded, 4))


def _machine(units: Sequence[Unit], costs: Costs, jobs: int, memory: int) -> int:
    """Milliseconds: every text first, then the compiles."""
    emits = [Task(EMIT, costs.emission(unit)) for unit in units]
    tasks = [task for unit in units for task in costs.tasks(unit)]
    compiling = makespan(tasks, jobs, pools.depths(pools.peaks(tasks), jobs, memory))
    return makespan(emits, jobs, {EMIT: jobs}) + compiling
