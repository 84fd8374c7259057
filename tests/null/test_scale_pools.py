"""Pools by memory, what a compile takes, and how long a build would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gen.scale import measured, pools, simulate
from gen.scale.pools import Task

GIB = 1 << 30


def depths(rules: list[str], jobs: int, memory: int) -> dict[str, int]:
    return pools.depths(pools.peaks(map(Task, rules)), jobs, memory)


@pytest.mark.parametrize(
    ("memory", "jobs", "expected"),
    [
        (64 << 30, 4, {"cpu": 4, "cuda": 4}),  # the jobs are the limit
        (8 << 30, 64, {"cpu": 4, "cuda": 6}),  # 0.8 * 8 / 2 = 3.2 GiB for each backend
        (0, 64, {"cpu": 1, "cuda": 1}),  # one at a time always
    ],
)
def test_pools_are_sized_by_memory(memory: int, jobs: int, expected: dict[str, int]) -> None:
    assert depths(["cuda", "cpu", "lean"], jobs, memory) == expected


@pytest.mark.parametrize(
    ("memory", "jobs", "expected"),
    [
        (28, 2, {"cuda": 2, "cpu": 2, "stub": 2, "cutlass": 2}),
        (24, 2, {"cuda": 2, "cpu": 2, "stub": 2, "cutlass": 1}),  # 0.8 * 24 - 4.5 GiB: one of 8
        (4, 16, {"cuda": 1, "cpu": 1, "stub": 1, "cutlass": 1}),
        (256, 16, {"cuda": 16, "cpu": 16, "stub": 16, "cutlass": 16}),
    ],
)
def test_large_compiles_get_what_small_ones_leave(memory: int, jobs: int, expected: dict[str, int]) -> None:
    assert depths(list(expected), jobs, memory << 30) == expected


def test_measured_memory_replaces_the_constants() -> None:
    small = [Task("cutlass", 0, 1000.0), Task("cutlass", 0, 2000.0)]
    assert pools.peaks(small) == {"cutlass": 2_400_000_000}
    assert pools.peaks([Task("cuda", 0, 1.0)]) == {"cuda": 128_000_000}  # never next to nothing
    assert pools.peaks([*small, Task("cutlass")])["cutlass"] == 8 * GIB  # one that nobody has measured
    assert pools.peaks([Task("cuda", 0, 4000.0), Task("lean")])["cuda"] == 4_800_000_000
    assert pools.depths(pools.peaks(small), 16, 24 * GIB) == {"cutlass": 8}
    assert depths(["cutlass"], 16, 24 * GIB) == {"cutlass": 2}


def test_memory_is_known() -> None:
    assert 1 << 28 < pools.available_memory() < 1 << 50


def measure(*command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-I", "-S", str(Path(measured.__file__)), "a/b.so", *command]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def test_a_compile_is_measured_with_what_it_starts() -> None:
    burn = "b = bytearray(80_000_000); [i * i for i in range(2_000_000)]; print(1)"
    done = measure("sh", "-c", f"{sys.executable} -c '{burn}'; exit 3")
    said, cost = done.stdout.splitlines()
    assert (done.returncode, said) == (3, "1")
    mark, output, wall, processor, kilobytes = cost.split()
    assert (mark, output) == (measured.MARK, "a/b.so")
    assert float(wall) > 0.01
    assert float(processor) > 0.01
    assert 80_000 < int(kilobytes) < 400_000


def test_a_compiler_that_dies_or_is_not_there_is_told_as_a_shell_tells_it() -> None:
    assert measure("sh", "-c", "kill -9 $$").returncode == 128 + 9
    missing = measure("/no/such/compiler")
    assert (missing.returncode, missing.stderr) == (127, "/no/such/compiler: No such file or directory\n")


@pytest.mark.parametrize(
    ("tasks", "jobs", "room", "expected"),
    [
        ([], 2, {}, 0),
        ([("cpu", 5)] * 4, 2, {"cpu": 2}, 10),
        ([("cpu", 5)] * 4, 4, {"cpu": 1}, 20),  # the pool is the limit
        ([("cpu", 2), ("cpu", 2), ("cpu", 3), ("cpu", 3), ("cpu", 2)], 2, {"cpu": 2}, 7),
        ([("cutlass", 10)] * 3 + [("cuda", 5)] * 6, 4, {"cutlass": 1, "cuda": 4}, 30),
        ([("lean", 4), ("cuda", 4)], 2, {"cuda": 1}, 8),  # two rules of one pool
    ],
)
def test_lists_are_scheduled_as_ninja_does(
    tasks: list[tuple[str, int]], jobs: int, room: dict[str, int], expected: int
) -> None:
    assert simulate.makespan([Task(*task) for task in tasks], jobs, room) == expected
