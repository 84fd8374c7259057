"""Files that commands write: reports and tables."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ArgumentError

__all__ = ["check", "write"]


def write(path: Path, content: str | bytes) -> None:
    """A file whole, or none. What is there and no regular file (a device, a pipe) is
    written to, not replaced; so is what a link leads to. Raises ArgumentError, naming it.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        place = path.resolve() if path.is_symlink() else path
        if place.exists() and not place.is_file():
            place.write_bytes(data)
            return
        temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(data)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise _refused(path, error) from None


def check(path: Path | None) -> None:
    """Before a run that is long: whether a file could be written. None is one that nobody wants. Raises
    ArgumentError, naming it.
    """
    try:
        if path is None or (path.exists() and not path.is_file() and not path.is_dir()):
            return  # a pipe waits for its reader
        there = path.exists()
        with open(path, "a", encoding="utf-8"):
            pass
        if not there:
            path.unlink()
    except (OSError, RuntimeError) as error:
        raise _refused(path, error) from None


def _refused(path: Path | None, error: Exception) -> ArgumentError:
    return ArgumentError(
        f"cannot write {path}: {getattr(error, 'strerror', None) or error}; choose another file"
    )
