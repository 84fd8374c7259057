"""Events for the logger "wootz" of the standard library's logging: what was opened, loaded and chosen.

Every record has a message, and as attributes `event` and the fields of EVENTS. None is made by a call after
the first of its kind: launches are not logged. Nothing is shown unless the program configures logging, or
WOOTZ_LOG names a level: then records also go to standard error.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from .errors import ArgumentError

__all__ = ["EVENTS", "Event", "event", "logger"]

ENVIRONMENT = "WOOTZ_LOG"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO}


@dataclass(frozen=True)
class Event:
    """When it happens, its level, and its fields."""

    when: str
    level: int
    fields: tuple[str, ...]


EVENTS = {
    "library_opened": Event("an artifact folder was opened", logging.INFO, ("path", "cells")),
    "driver_initialised": Event(
        "the CUDA driver was first asked about a device", logging.INFO, ("driver", "ptx")
    ),
    "cell_chosen": Event(
        "a kernel was first used on a device", logging.DEBUG, ("cell", "target", "device", "file", "reason")
    ),
    "module_loaded": Event(
        "a binary was read, checked and loaded", logging.DEBUG, ("file", "bytes", "milliseconds", "device")
    ),
    "source_compiled": Event("jit=True compiled a source", logging.INFO, ("file", "arch", "milliseconds")),
    "plan_made": Event("a plan was made", logging.DEBUG, ("cell", "symbol", "shapes", "device")),
    "workspace_made": Event("a plan allocated its workspace", logging.DEBUG, ("cell", "bytes", "device")),
}

logger = logging.getLogger("wootz")
logger.addHandler(logging.NullHandler())


def event(name: str, message: str, **fields: Any) -> None:
    """Logs an event of EVENTS with exactly its fields."""
    level = EVENTS[name].level
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={"event": name, **fields})


def _follow_environment() -> None:
    wanted = os.environ.get(ENVIRONMENT, "").lower()
    if not wanted:
        return
    if wanted not in _LEVELS:
        raise ArgumentError(f"{ENVIRONMENT} is {wanted!r}; want debug or info")
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(_LEVELS[wanted])


_follow_environment()
