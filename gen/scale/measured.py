"""Runs a compiler and says on standard output what it took: `python -I -S measured.py OUTPUT COMMAND...`.

A program of its own, which imports next to nothing: it stands before every compile. The last line that it
prints is MARK, OUTPUT, seconds of wall and of processors, and peak memory in KB (10^3 bytes) of the largest
process. Its exit status is the command's.
"""

from __future__ import annotations

import os
import signal
import sys
import time

MARK = "@wootz-cost"
_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss


def script() -> str:
    """A shell script that runs its arguments, OUTPUT COMMAND..., through this file."""
    import shlex  # not on the way of every compile
    from pathlib import Path

    return f'exec {shlex.join([sys.executable, "-I", "-S", str(Path(__file__).resolve())])} "$@"\n'


def run(output: str, command: list[str]) -> int:
    """The command's status, as a shell gives it: 128 and the signal's number where a signal ended it."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for each in signals:  # they reach the whole group: the compiler ends by them, and this after it
        signal.signal(each, signal.SIG_IGN)
    started = time.monotonic()
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setsigdef=signals)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    _, status, usage = os.wait4(child, 0)
    wall = time.monotonic() - started
    kilobytes = usage.ru_maxrss * _UNIT // 1000
    print(f"{MARK} {output} {wall:.3f} {usage.ru_utime + usage.ru_stime:.3f} {kilobytes}", flush=True)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
