"""Events for the logger "wootz" of the standard library's logging: what was opened, loaded and chosen.

Every record has a message, and as attributes `event` and the fields of EVENTS. None is made by a call after
the first of its kind: launches are not logged. Nothing is shown unless the program configures logging, or
WOOTZ_LOG names a level: then records also go to standard error. A program that has not imported logging has
nowhere to show them, and does not wait for its import.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from .errors import ArgumentError

__all__ = ["EVENTS", "NAME", "Event", "event"]

NAME = "wootz"
ENVIRONMENT = "WOOTZ_LOG"
DEBUG, INFO = 10, 20  # logging's


class Event(NamedTuple):
    """When it happens, its level, and its fields."""

    when: str
    level: int
    fields: tuple[str, ...]


EVENTS = {
    "library_opened": Event("an artifact folder was opened", INFO, ("path", "cells")),
    "driver_initialised": Event("the CUDA driver was first asked about a device", INFO, ("driver", "ptx")),
    "cell_chosen": Event(
        "a kernel was first used on a device", DEBUG, ("cell", "target", "device", "file", "reason")
    ),
    "module_loaded": Event(
        "a binary was read, checked and loaded", DEBUG, ("file", "bytes", "milliseconds", "device")
    ),
    "source_compiled": Event("jit=True compiled a source", INFO, ("file", "arch", "milliseconds")),
    "plan_made": Event("a plan was made", DEBUG, ("cell", "symbol", "shapes", "device")),
    "workspace_made": Event("a plan allocated its workspace", DEBUG, ("cell", "bytes", "device")),
}


def event(name: str, message: str, **fields: Any) -> None:
    """Logs an event of EVENTS with exactly its fields."""
    if "logging" not in sys.modules:
        return
    import logging  # waits for a thread that is still importing it

    logger, level = logging.getLogger(NAME), EVENTS[name].level
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={"event": name, **fields})


def _follow_environment() -> None:
    wanted = os.environ.get(ENVIRONMENT, "").lower()
    if not wanted:
        return
    if wanted not in ("debug", "info"):
        raise ArgumentError(f"{ENVIRONMENT} is {wanted!r}; want debug or info")
    import logging

    logger = logging.getLogger(NAME)
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(wanted.upper())


_follow_environment()
