"""Compiled binaries, kept between processes: a file for each key, in one folder.

A file begins with a digest of its key and content, so one that was truncated, edited or renamed is found out,
and deleted. Files appear by renaming, so a reader sees a whole one or none. What cannot be written is kept in
memory for this process.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import ArgumentError

__all__ = ["Cache", "Limits", "cache_folder"]

SUFFIX, TEMPORARY = ".entry", ".tmp"
LIMIT = "WOOTZ_CACHE_BYTES"
_MAGIC = b"wootz-jit 1 "
_log = logging.getLogger("wootz.jit")


def cache_folder() -> Path:
    """jit/ in WOOTZ_CACHE, or else in wootz/ of the user's cache folder (XDG_CACHE_HOME, ~/.cache)."""
    named = os.environ.get("WOOTZ_CACHE")
    root = (
        Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wootz"
    )
    return root / "jit"


@dataclass(frozen=True)
class Limits:
    """bytes: what the folder may hold; the files used least recently go first. abandoned: seconds after which
    a temporary file is taken for one that a process left when it was killed.
    """

    bytes: int = 1 << 30
    abandoned: float = 3600.0

    @classmethod
    def from_environment(cls) -> Limits:
        """With WOOTZ_CACHE_BYTES, where that is set. Raises ArgumentError for one that is no number."""
        text = os.environ.get(LIMIT)
        if not text:
            return cls()
        if not text.isascii() or not text.isdigit():
            raise ArgumentError(f"{LIMIT} is {text!r}; want a number of bytes, as {cls.bytes}")
        return cls(int(text))


class Cache:
    """get, put and remove, each for one key (hexadecimal digits); safe among threads and processes.

    folder: default cache_folder(). limits: default those of the environment. It raises nothing for a folder
    that cannot be used: it warns once, by logging, and keeps what it is given in memory.
    """

    def __init__(self, folder: Path | None = None, limits: Limits | None = None) -> None:
        self.folder = cache_folder() if folder is None else folder
        self.limits = Limits.from_environment() if limits is None else limits
        self._memory: dict[str, bytes] = {}
        self._warned = False

    def held(self, key: str) -> bytes | None:
        """What this process keeps because the folder could not be written."""
        return self._memory.get(key)

    def get(self, key: str) -> bytes | None:
        """The content of a file that is whole, now the one used most recently; a damaged one is deleted."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", error)
            return None
        head = _head(key, data[_HEAD:])
        if data[:_HEAD] != head:
            _log.warning("%s was truncated or changed: it is deleted, and made again", path)
            self.remove(key)
            return None
        with contextlib.suppress(OSError):  # another user's, or a file system without times
            os.utime(path)
        return data[_HEAD:]

    def put(self, key: str, content: bytes) -> int:
        """Keeps content; gives the number of files that had to go for it."""
        import tempfile  # slow to import, and every library imports this module

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(TEMPORARY, ".", self.folder)
            temporary = Path(name)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_head(key, content) + content)
                temporary.replace(self._path(key))
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            self._warn("written", error)
            self._memory[key] = content
            return 0
        return self._evict(self._path(key))

    def remove(self, key: str) -> None:
        """Forgets a key."""
        self._memory.pop(key, None)
        with contextlib.suppress(OSError):  # it may be another process that deletes it
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def _evict(self, kept: Path) -> int:
        """Deletes what is past the limit, never `kept`, and temporary files of killed processes."""
        found = sorted(self._files(), key=lambda each: each[1].st_mtime_ns)
        total, gone = sum(status.st_size for _, status in found), 0
        for path, status in found:
            if path != kept and total > self.limits.bytes:
                with contextlib.suppress(OSError):
                    path.unlink()
                total, gone = total - status.st_size, gone + 1
        return gone

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """The files of keys, with what the file system says of them."""
        now = time.time()
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # deleted since
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(SUFFIX):
                        yield Path(entry.path), status
                    elif entry.name.endswith(TEMPORARY) and now - status.st_mtime > self.limits.abandoned:
                        Path(entry.path).unlink()

    def _warn(self, what: str, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s cannot be %s (%s): what is compiled lasts as long as this process; set WOOTZ_CACHE",
                self.folder, what, error.strerror or error,
            )  # fmt: skip


def _head(key: str, content: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(key.encode() + content).hexdigest().encode() + b"\n"


_HEAD = len(_head("", b""))
