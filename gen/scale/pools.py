"""How many compiles run side by side: within the jobs, and within the memory that they are known to take."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
MB = 1_000_000
PEAK = {"cuda": GIB // 2, "cpu": 3 * GIB // 4, "metal": GIB // 2, "cutlass": 8 * GIB, "stub": GIB}
"""The most memory one compile of a pool takes, in bytes, with room to spare, where nobody has measured it."""

_USABLE = 0.8  # of the memory that is free
_ROOM = 1.2  # over what was measured: compilers' versions and machines differ
_LEAST = 128 * MB  # of a pool's peak, whatever was measured
_POOLS = {"lean": "cuda", "air": "metal"}


def pool_of(rule: str) -> str:
    """The pool of a rule of the build graph; most have one of their own."""
    return _POOLS.get(rule, rule)


@dataclass(frozen=True)
class Task:
    """One compile that is to come: its rule, what it is expected to take. megabytes: None where nobody has
    measured one."""

    rule: str
    milliseconds: int = 0
    megabytes: float | None = None


def peaks(tasks: Iterable[Task]) -> dict[str, int]:
    """The most memory of a compile in each pool, in bytes: what was measured, with some room; not below PEAK
    in a pool that has compiles which nobody has measured."""
    found: dict[str, float] = {}
    for task in tasks:
        pool = pool_of(task.rule)
        bytes_ = PEAK[pool] if task.megabytes is None else max(task.megabytes * MB * _ROOM, _LEAST)
        found[pool] = max(found.get(pool, 0), bytes_)
    return {pool: int(peak) for pool, peak in found.items()}


def depths(peaks: Mapping[str, int], jobs: int, memory: int) -> dict[str, int]:
    """How many compiles of each pool may run at once: within the jobs, and a share of the memory, in bytes.
    What a pool of small compiles cannot use goes to the others."""
    left, found = memory * _USABLE, dict[str, int]()
    names = sorted(peaks, key=lambda pool: (peaks[pool], pool))
    for number, pool in enumerate(names):
        share = min(jobs * peaks[pool], left / (len(names) - number))
        left -= share
        found[pool] = max(1, min(jobs, int(share) // peaks[pool]))
    return found


def available_memory() -> int:
    """Bytes that compilers may take: what is free, within the limit of the control group."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        found += [int(limit) - used] if limit.isdigit() else []
    except (OSError, ValueError):
        pass
    return max(min(found), 0) if found else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
