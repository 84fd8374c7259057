"""Runs ninja: progress out, failures by output, no process left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..plan.name import BUILD_FILE, WORK
from ..scale.measured import MARK

_STATUS = re.compile(r"^\[(\d+)/(\d+)\] (.*)$")
_FAILED = re.compile(r"^FAILED: (?:\[code=(-?\d+)\] )?(.+?)\s*$")
_COST = re.compile(rf"^{MARK} (\S+) ([\d.]+) ([\d.]+) (\d+)$")
_CHATTER = ("ninja: Entering", "ninja: build stopped", "ninja: no work")
_IGNORED_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "MAKEFLAGS")  # would change outputs unseen
_PATIENCE = 10.0  # seconds that ninja gets to stop its compilers

Progress = Callable[[int, int, str], None]
Cost = tuple[float, float, float]
"""What a compile took: seconds of wall, seconds of processors, the most memory of one process in KB."""


@dataclass
class Outcome:
    """What ninja said. `failures`: output -> what its compiler printed; `notes`: what compilers that
    succeeded did; `costs`: output -> what its compile took, whether it succeeded or not."""

    status: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)


def _parse(lines: Iterator[str], outcome: Outcome, progress: Progress) -> None:
    """Lines of ninja's output: a status line for each finished edge, then, where it failed, output and
    command."""
    failed: str | None = None
    command_next = False
    latest = ""
    for line in lines:
        if status := _STATUS.match(line):
            failed, latest = None, status[3]
            progress(int(status[1]), int(status[2]), status[3])
        elif cost := _COST.match(line):
            outcome.costs[cost[1]] = float(cost[2]), float(cost[3]), float(cost[4])
        elif match := _FAILED.match(line):
            failed, command_next = match[2].split(" ")[0], True
            outcome.failures[failed] = ""
        elif command_next:
            command_next = False
        elif failed is not None:
            outcome.failures[failed] += f"{line}\n"
        elif line.strip() and not line.startswith(_CHATTER):
            outcome.notes.append(f"{latest}: {line}" if latest else line)


def run(ninja: str, out: Path, jobs: int, keep: Sequence[int], progress: Progress, outcome: Outcome) -> None:
    """Build the default outputs in `out`, as many as possible. `keep`: descriptors that live as long as ninja
    does. `outcome` is filled in on the way: interrupted, it has what was said until then.

    Ninja has a session of its own, so that an interrupt reaches it once, from here; then it stops its
    compilers.
    """
    environment = {k: v for k, v in os.environ.items() if k not in _IGNORED_VARIABLES}
    environment["NINJA_STATUS"] = "[%f/%t] "
    process = subprocess.Popen(
        [ninja, "-f", BUILD_FILE, "-j", str(jobs), "-k", "0"],
        cwd=out,
        env=environment,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=keep,
    )
    assert process.stdout is not None
    try:
        with process.stdout:
            _parse((line.rstrip("\n") for line in process.stdout), outcome, progress)
        outcome.status = process.wait()
    finally:
        if process.poll() is None:
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def files_read(ninja: str, out: Path) -> set[str]:
    """Every file that the compilers said they read, from ninja's log of dependencies."""
    done = subprocess.run(
        [ninja, "-f", BUILD_FILE, "-t", "deps"],
        cwd=out,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    return {line.strip() for line in done.stdout.splitlines() if line.startswith("    ")}


def seconds(out: Path) -> dict[str, float]:
    """Output -> how long its last compile took, from ninja's log."""
    found = {}
    with contextlib.suppress(OSError):
        for line in (out / WORK / ".ninja_log").read_text(encoding="utf-8", errors="replace").splitlines():
            fields = line.split("\t")
            if len(fields) == 5:
                found[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return found
