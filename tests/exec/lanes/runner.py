"""The Python end of a runner process: sends launches, reads results, and makes a dead process's report
readable.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import build, tools

_REQUEST, _REPLY, _NULL = 0x514E414C, 0x524E414C, 2
_GRACE = 15.0  # seconds beyond a launch's own limit until a process that does not answer is killed

_OPTIONS = {
    "ASAN_OPTIONS": ("detect_leaks=0", "detect_stack_use_after_return=0"),
    "UBSAN_OPTIONS": ("print_stacktrace=1",),
    "TSAN_OPTIONS": (
        "halt_on_error=1", "history_size=2", "atexit_sleep_ms=0", "report_signal_unsafe=0",
        "handle_segv=0", "handle_sigbus=0", "handle_sigfpe=0", "handle_sigill=0",  # the runner reports those
    ),
}  # fmt: skip

# The first pattern that a report matches names the kind of failure.
KINDS: dict[str, str] = {
    "thread": r"WARNING: ThreadSanitizer",
    "address": r"ERROR: AddressSanitizer",
    "undefined": r"runtime error: |lanes: error: undefined behaviour",
    "timeout": r"lanes: error: timed out",
    "memory": r"lanes: error: (?:bad access|access outside|memory outside|the input|stack overflow)",
    "lanes": r"lanes: error: ",
    "crash": r"",
}


class RunnerDied(Exception):
    """The process ended, or was ended, during a launch. kind: a key of KINDS; the message is the report."""

    def __init__(self, kind: str, report: str) -> None:
        super().__init__(report)
        self.kind = kind


@dataclass(frozen=True)
class Buffer:
    """Device memory of one argument, scalars included. data None: a null pointer."""

    name: str
    writable: bool
    data: bytes | None


def _string(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


def request(
    symbol: str, grid: Sequence[int], block: Sequence[int], order: int, seconds: int,
    arrays: Sequence[tuple[int, int]], buffers: Sequence[Buffer],
) -> bytes:  # fmt: skip
    """One launch in the form that runtime/runner.cpp reads."""
    parts = [struct.pack("<I", _REQUEST), _string(symbol), struct.pack("<8I", *grid, *block, order, seconds)]
    parts.append(struct.pack("<I", len(arrays)))
    parts += [struct.pack("<QQ", offset, size) for offset, size in arrays]
    parts.append(struct.pack("<I", len(buffers)))
    for buffer in buffers:
        data, kind = (b"", _NULL) if buffer.data is None else (buffer.data, int(buffer.writable))
        parts += [_string(buffer.name), struct.pack("<IQ", kind, len(data)), data]
    return b"".join(parts)


def _environment() -> dict[str, str]:
    symbolizer = f"external_symbolizer_path={tools.symbolizer()}"
    return {**os.environ, **{name: ":".join((*options, symbolizer)) for name, options in _OPTIONS.items()}}


def _symbolize(report: str) -> str:
    """Adds function and source line to "at LIBRARY+0xoffset"."""

    def place(match: re.Match[str]) -> str:
        command = [tools.symbolizer(), f"--obj={match[1]}", "--output-style=GNU", "--pretty-print", match[2]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "  at " + "\n     ".join(done.stdout.split("\n")).strip()

    return re.sub(r"^  at (\S+)\+(0x[0-9a-f]+)$", place, report, flags=re.M)


class Runner:
    """A process that has one library loaded. Started when first used, and again after it died."""

    def __init__(self, library: Path, sanitizer: str | None) -> None:
        self._command = [str(build.runner(sanitizer)), str(library)]
        self._process: subprocess.Popen[bytes] | None = None
        self._report = tempfile.TemporaryFile()  # noqa: SIM115 (until close)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._report.seek(0)
            self._report.truncate()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._report,
                env=_environment(),
            )
        return self._process

    def launch(
        self, message: bytes, sizes: Sequence[int], seconds: int
    ) -> tuple[tuple[int, ...], list[bytes]]:
        """(threads, switches, barriers, collectives) and the contents of the writable buffers. RunnerDied."""
        process = self._start()
        assert process.stdin is not None
        deadline = time.monotonic() + seconds + _GRACE
        try:
            process.stdin.write(message)
            process.stdin.flush()
            head = struct.unpack("<IQQQQ", self._read(36, deadline))
            if head[0] != _REPLY:
                raise EOFError("not a reply")
            return head[1:], [self._read(size, deadline) for size in sizes]
        except (BrokenPipeError, EOFError, TimeoutError) as error:
            raise self._died(error) from None

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        parts = bytearray()
        while len(parts) < size:
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the runner does not answer")
            part = os.read(descriptor, size - len(parts))
            if not part:
                raise EOFError("the runner ended")
            parts += part
        return bytes(parts)

    def _died(self, error: Exception) -> RunnerDied:
        process = self._process
        assert process
        if isinstance(error, TimeoutError):
            process.kill()
        status = process.wait()
        self._stop()
        self._report.seek(0)
        report = self._report.read().decode(errors="replace")
        kind = next(kind for kind, pattern in KINDS.items() if re.search(pattern, report))
        if isinstance(error, TimeoutError) and kind == "crash":
            kind = "timeout"
        return RunnerDied(kind, f"{error}, status {status}\n{_symbolize(report)[:12000]}")

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process:
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            process.wait()

    def close(self) -> None:
        """Ends the process, for good."""
        self._stop()
        self._report.close()
