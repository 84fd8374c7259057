"""A cache of build products, by the hash of what they are made from, that a test session's processes share.

The folder is WOOTZ_EXEC_CACHE (conftest sets it, so that pytest-xdist's workers share one), else a temporary
folder of this process.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

VARIABLE = "WOOTZ_EXEC_CACHE"


@functools.cache
def _own_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="wootz-exec-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def folder() -> Path:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else _own_folder()


def digest(parts: Iterable[str]) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode()
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.hexdigest()[:32]


def product(parts: Iterable[str], make: Callable[[Path], None]) -> Path:
    """The folder that `make` filled for these parts; made once, whichever process asks first.

    make is given an empty folder. Where it raises, nothing is kept and the exception passes on.
    """
    place = folder() / digest(parts)
    if (place / ".done").exists():
        return place
    folder().mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / ".done").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            make(place)
            (place / ".done").touch()
    return place
