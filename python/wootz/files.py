"""Files that commands write: reports and tables."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ArgumentError

__all__ = ["write"]


def write(path: Path, content: str | bytes) -> None:
    """A file whole, or none. What is there and no regular file (a device, a pipe) is
    written to, not replaced. Raises ArgumentError, naming it.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror or error}; choose another file") from None
