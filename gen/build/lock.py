"""One build at a time in a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from ..emit import provenance
from ..emit.provenance import BuildError
from ..plan import name


@contextlib.contextmanager
def lock(out: Path) -> Iterator[int]:
    """Hold the folder for this process; gives the lock's descriptor. BuildError where another one holds it.

    The system lets go of the lock when this process ends, however it ends, and with it the programs that it
    handed the descriptor to. A process that ends in order lets go itself: a compiler that is still dying
    holds up nobody."""
    provenance.make_folder(out / name.WORK)
    path = out / name.WORK / "lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise BuildError(f"{path}: cannot lock: {error.strerror}; choose another --out") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise BuildError(
                f"{out}: another wootz (process {holder}) is building or packing here; "
                "wait, or use another --out"
            ) from error
        with contextlib.suppress(OSError):  # the number is for the message above only
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # for all that share the descriptor
        os.close(descriptor)
