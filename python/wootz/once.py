"""Values that are made once, whichever threads ask first: what a process shares between its threads.

Elsewhere caches are plain dicts: two threads may make the same value twice there, either will do, and a
dict's own operations are safe, with Python's lock and without it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

__all__ = ["Once", "Turns"]

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Turns(Generic[Key]):
    """A lock for each key. The child of a fork has new ones: those that another thread held stay locked."""

    def __init__(self) -> None:
        self._forget()
        _all.add(self)

    def of(self, key: Key) -> threading.Lock:
        with self._lock:
            return self._turns.setdefault(key, threading.Lock())

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[Key, threading.Lock] = {}


class Once(Generic[Key, Value]):
    """A value for each key, made by the first thread that asks; the others wait for that key alone.

    What `make` raises goes to its caller, and the next one tries again.
    """

    def __init__(self) -> None:
        self._made: dict[Key, Value] = {}
        self._turns: Turns[Key] = Turns()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of `key`; make() where there is none yet."""
        try:
            return self._made[key]
        except KeyError:
            pass
        with self._turns.of(key):
            if key in self._made:
                return self._made[key]
            value = self._made[key] = make()
            return value

    def clear(self) -> None:
        """Forgets all values. For tests: nothing else drops what others may still use."""
        self._made.clear()


_all: weakref.WeakSet[Turns[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for each in _all:
        each._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
