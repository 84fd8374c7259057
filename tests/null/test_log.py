"""The logger "wootz": each event has its fields, a call after the first has none."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import wootz
from wootz import log, modules
from wootz.errors import ArgumentError
from wootz.select import Device

from tests.null import loader_tools as tools

ROOT = Path(__file__).resolve().parents[2]
STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in STANDARD}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Its binary is one that this process has not loaded yet."""
    return tools.cpu_folder(tmp_path / "a", tools.image() + str(tmp_path).encode())


def test_a_first_call_says_what_it_did_and_a_second_is_silent(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "wootz")
    copy = wootz.load(folder).kernel("copy", dtype="f16")
    x, y = np.ones(8, np.float16), np.zeros(8, np.float16)
    copy(x, out=y)
    opened, chosen, loaded = map(fields, caplog.records)
    assert opened == {"event": "library_opened", "path": str(folder), "cells": len(tools.CELLS)}
    assert chosen == {
        "event": "cell_chosen", "cell": "copy/-/f16/cpu", "target": "cpu", "device": "cpu",
        "file": "cpu/kernels.so", "reason": "the best target for cpu",
    }  # fmt: skip
    milliseconds = loaded.pop("milliseconds")
    assert isinstance(milliseconds, float)
    assert 0 < milliseconds < 1e4
    size = (folder / "cpu/kernels.so").stat().st_size
    assert loaded == {"event": "module_loaded", "file": "cpu/kernels.so", "bytes": size, "device": "cpu"}
    for record in caplog.records:
        event = log.EVENTS[record.event]  # type: ignore[attr-defined]
        assert set(fields(record)) == {"event", *event.fields}
        assert (record.name, record.levelno) == ("wootz", event.level)
        assert record.getMessage()
    caplog.clear()
    copy(x, out=y)
    copy(np.ones(9, np.float16))
    assert not caplog.records


def test_a_better_target_without_the_kernel_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "wootz")
    device = Device("cuda", 0, "Fake GPU", (9, 0))
    modules.note_choice(
        {"key": "copy/-/f16/gpu80", "target": "gpu80"}, {"file": "a"}, device,
        [{**row, "capability": [9, 0]} for row in tools.TARGETS],
    )  # fmt: skip
    (record,) = caplog.records
    assert fields(record)["reason"] == "the best target after gpu90a, which have no binary of it"


def test_every_event_in_the_code_is_in_the_table() -> None:
    code = "".join(path.read_text() for path in (ROOT / "python").rglob("*.py"))
    used = set(re.findall(r"\bevent\(\s*\"(\w+)\"", code))
    assert {"library_opened", "cell_chosen", "module_loaded", "driver_initialised"} <= used <= set(log.EVENTS)


def child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip


@pytest.mark.parametrize(("level", "shown"), [("", False), ("info", True), ("DEBUG", True)])
def test_the_environment_shows_events(folder: Path, level: str, shown: bool) -> None:
    done = child(f"import wootz; wootz.load({str(folder)!r})", WOOTZ_LOG=level)
    assert done.returncode == 0
    assert done.stderr == (f"{folder}: {len(tools.CELLS)} cells\n" if shown else "")


def test_a_level_that_is_none() -> None:
    done = child("import wootz; wootz.load", WOOTZ_LOG="loud")
    assert f"{ArgumentError.__name__}: WOOTZ_LOG is 'loud'; want debug or info" in done.stderr
    assert child("import wootz, sys; assert 'wootz.log' not in sys.modules", WOOTZ_LOG="loud").returncode == 0
