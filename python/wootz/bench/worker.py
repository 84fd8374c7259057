"""Rows measured by another process: a fault of a device, or a crash, costs that process and one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from ..library import Library
from .ceilings import Ceilings
from .cells import Cell
from .devices import Bench, open_device
from .rows import Attempt, Measuring, attempt

__all__ = ["Worker"]

GRACE = 5.0
"""Seconds in which a process that has lost its device is to end by itself."""


@dataclass(frozen=True)
class _Task:
    """What a Measuring has beside library and device, and a row to measure."""

    ceilings: Ceilings
    peers: Any
    replays: int
    pdl: bool
    cell: Cell
    size: Mapping[str, int]


class Worker:
    """`attempt` in a process that lives as long as its device does; the next row after a fault or a crash has
    a new one. A context manager: the process ends with it.

    how: whose library and device it opens again; its ceilings are what the process found. open: opens the
    device there, by name.
    """

    def __init__(self, how: Measuring, open: Callable[[str], Bench] = open_device) -> None:
        self._arguments, self._context = (how.lib.parts, how.device.name, open), get_context("spawn")
        self._process: Any = None
        self._pipe: Any = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, how: Measuring, cell: Cell, size: Mapping[str, int]) -> Attempt:
        if self._process is None:
            self._start()
        try:
            self._pipe.send(_Task(how.ceilings, how.peers, how.replays, how.pdl, cell, size))
            found, ceilings = self._pipe.recv()
        except (EOFError, OSError):
            return Attempt(why=f"the process that measured it {self._end()}", fault=True)
        how.ceilings.take(ceilings)
        if found.fault:
            self._end()
        return found  # type: ignore[no-any-return]

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()

    def _end(self) -> str:
        """How the process did."""
        process, self._process = self._process, None
        if process is None:
            return ""
        self._pipe.close()
        process.join(GRACE)
        if process.exitcode is None:
            process.kill()
            process.join()
        code = process.exitcode
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"


def _serve(pipe: Any, parts: Any, name: str, open: Callable[[str], Bench]) -> None:
    lib, device = Library(parts), open(name)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        how = Measuring(lib, device, task.ceilings, task.peers, task.replays, task.pdl)
        found = attempt(how, task.cell, task.size)
        pipe.send((found, how.ceilings))
        if found.fault:
            return
