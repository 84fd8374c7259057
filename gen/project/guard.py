"""Runs a project's code: under a time limit, and with every failure said as file, line and cause."""

from __future__ import annotations

import math
import os
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from .own import ProjectError

T = TypeVar("T")
LIMIT = "WOOTZ_KERNEL_SECONDS"
DEFAULT_SECONDS = 30.0
_AGAIN = 0.5  # seconds until code that swallowed the first alarm gets the next


class _Late(BaseException):
    """The time is over: no `except Exception` of a project holds it up."""

    def __init__(self, frame: FrameType | None) -> None:
        self.frame = frame


def limit() -> float:
    """Seconds that a function of a project may run. ProjectError for a setting that is no such number."""
    text = os.environ.get(LIMIT, "")
    try:
        seconds = float(text) if text else DEFAULT_SECONDS
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ProjectError(f"{LIMIT}={text}: wanted a number of seconds above 0")
    return seconds


def run(what: str, file: Path, function: Callable[..., T], *args: Any) -> T:
    """function(*args), which is code of the project's `file`.

    Raises ProjectError for whatever it raises, naming its innermost line in the file's folder, and where it
    has not ended in time. Main thread only: that is where the alarm goes off.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ProjectError(f"{file}: a project's kernels are read in the main thread only")
    seconds, active = limit(), True

    def late(number: int, frame: FrameType | None) -> None:
        if active:
            raise _Late(frame)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        return function(*args)
    except ProjectError:
        raise
    except _Late as end:
        why = f"{what} did not end within {seconds:g} seconds; {LIMIT} sets the limit"
        raise ProjectError(f"{_place(file, _lines(end.frame))}: {why}") from None
    except (Exception, SystemExit) as error:
        raise ProjectError(
            f"{_where(file, error)}: {what}: {type(error).__name__}: {_said(error)}"
        ) from error
    finally:
        active = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _said(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(text.split()) or "it says no more"


def _where(file: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return _place(file, [(frame.filename, frame.lineno or 0) for frame in reversed(frames)])


def _lines(frame: FrameType | None) -> list[tuple[str, int]]:
    """(file, line) of a frame and its callers."""
    found = []
    while frame:
        found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def _place(file: Path, frames: list[tuple[str, int]]) -> str:
    """The first of (file, line), innermost first, that is in the file's folder; else the file."""
    inside = (f"{path}:{line}" for path, line in frames if Path(path).parent == file.parent)
    return next(inside, str(file))
