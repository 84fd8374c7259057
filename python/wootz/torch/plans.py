"""The plans of problems that come again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from ..plan import Plan

__all__ = ["Plans"]

_KEPT = 128
"""Most problems that are remembered: a plan keeps its workspace."""


class Plans:
    """Plans by problem, the last used of them. A problem gets one when it is met the second time: most
    numbers of rows of a prompt are met once. Threads may share one.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept, self._lock = kept, threading.Lock()
        self._known: OrderedDict[Hashable, Plan | None] = OrderedDict()

    def find(self, problem: Hashable, make: Callable[[], Plan | None]) -> Plan | None:
        """The problem's plan, or None at the first time. Raises what `make` raises."""
        with self._lock:
            met, plan = problem in self._known, self._known.get(problem)
        if met and plan is None:
            plan = make()
        with self._lock:
            self._known[problem] = plan
            self._known.move_to_end(problem)
            if len(self._known) > self._kept:
                self._known.popitem(last=False)
        return plan
