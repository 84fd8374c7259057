"""The benchmarks, against a torch that has no device: what is replayed when, the figures, the reports."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wootz.bench import devices, timing

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = ("gemm", "qgemv", "qmm")


class Clock:
    """A torch whose launches take what they say, and what happened. A launch is recorded while captured."""

    def __init__(self) -> None:
        self.now, self.replays, self.capturing = 0.0, [], None  # type: ignore[var-annotated]

    def launch(self, name: str, us: float) -> Any:
        def run() -> None:
            if self.capturing is None:
                self.now += us * 1e-3
            else:
                self.capturing.append((name, us))

        return run

    def module(self) -> Any:
        clock = self

        class CUDAGraph:
            def __init__(self) -> None:
                self.launches: list[tuple[str, float]] = []

            def replay(self) -> None:
                clock.replays.append(self.launches[0][0])
                clock.now += sum(us for _, us in self.launches) * 1e-3

        @contextlib.contextmanager
        def graph(made: CUDAGraph) -> Iterator[None]:
            clock.capturing = made.launches
            yield
            clock.capturing = None

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = clock.now

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, other: Event) -> float:
                return other.at - self.at

        cuda = types.SimpleNamespace(
            CUDAGraph=CUDAGraph, graph=graph, Event=Event, synchronize=lambda: None,
            get_device_name=lambda index: "a device",
        )  # fmt: skip
        torch = types.ModuleType("torch")
        vars(torch).update(cuda=cuda, __version__="2", float8_e4m3fn="e4m3", Tensor=object, dtype=object)
        return torch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setitem(sys.modules, "torch", made.module())
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield made
    for name in {"common", *SCRIPTS} & (set(sys.modules) - before):
        del sys.modules[name]


def test_peers_are_replayed_in_turn(clock: Clock) -> None:
    common = importlib.import_module("common")
    times = common.measure([clock.launch("a", 10.0)] * 4, [clock.launch("b", 25.0)] * 3)
    assert times.us == pytest.approx((10.0, 25.0))
    assert times.ratios == pytest.approx((1.0, 2.5))
    assert clock.replays == ["a", "b"] * timing.REPLAYS


def test_ratios_are_those_of_neighbours(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the device falls to half: each median moves, the ratio does not."""
    graph, slow = timing.Graph, iter([1.0] * 14 + [3.0] * 100)

    def replay(self: Any) -> float:
        return float(graph.replay(self)) * next(slow)

    monkeypatch.setattr(timing, "Graph", type("Slowing", (graph,), {"replay": replay}))
    times = timing.measure([[clock.launch("a", 10.0)], [clock.launch("b", 20.0)]])
    assert times.us == pytest.approx((30.0, 60.0))
    assert times.ratios == pytest.approx((1.0, 2.0))


def test_graphs_are_long_enough_and_operands_many_enough(clock: Clock) -> None:
    common = importlib.import_module("common")
    assert common.count_for(clock.launch("a", 100.0), 6000.0) == 60
    assert common.count_for(clock.launch("a", 1.0), 6000.0) == 200
    assert common.count_for(clock.launch("a", 90000.0), 6000.0) == 2
    assert (common.copies_for(100 << 20), common.copies_for(1 << 30), common.copies_for(1 << 30, 2)) == (
        4,
        4,
        2,
    )
    assert common.copies_for(30 << 20) * 30 << 20 >= devices.GPU_ROTATE


def test_the_report(clock: Clock, tmp_path: Path) -> None:
    common = importlib.import_module("common")
    common.write(None, [])
    common.write(tmp_path / "r.json", [{"us": 1.5}], read_tb_s=4.2)
    report = json.loads((tmp_path / "r.json").read_text())
    assert list(report) == ["device", "date", "torch", "read_tb_s", "rows"]
    assert (report["device"], report["rows"]) == ("a device", [{"us": 1.5}])
    assert common.distance(np.array([3.0, 4.0]), np.array([3.0, 3.0])) == pytest.approx(1 / 18**0.5)
    assert common.extents("2x3,4x5x6") == [("2x3", [2, 3]), ("4x5x6", [4, 5, 6])]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_writes_the_rows_of_the_reports_that_there_are(
    clock: Clock,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """main() with its cases replaced: options, table and report."""
    script, common = importlib.import_module(name), importlib.import_module("common")
    known = json.loads((FOLDER / f"{name}-h200.json").read_text())
    lib = types.SimpleNamespace(formats=lambda: ["a", "b"])
    monkeypatch.setattr(script.wootz, "load", lambda folder: lib)
    monkeypatch.setattr(common, "read_bandwidth", lambda: 4.0)
    one, other = clock.launch("a", 10.0), clock.launch("b", 20.0)
    if name == "gemm":
        made = script.Case(one, other, None, lambda: None)
        monkeypatch.setattr(script, "CASES", {"bf16": lambda *_: made})
        monkeypatch.setattr(script, "error", lambda case: 1e-3)
    else:
        row = {k: v for k, v in known["rows"][0].items() if k != "floor"}
        monkeypatch.setattr(script, "case", lambda *_: dict(row))
    if name == "qgemv":
        monkeypatch.setattr(script, "dense_launches", lambda *_: [other])
    out = tmp_path / "r.json"
    monkeypatch.setattr(
        sys, "argv", [name, "--shapes", "64x32x16" if name == "gemm" else "64x32", "--json", str(out)]
    )
    script.main()
    report = json.loads(out.read_text())
    assert list(report) == list(known)
    assert {frozenset(row) for row in report["rows"]} == {frozenset(row) for row in known["rows"]}
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(report["rows"])


def test_the_documents_have_the_figures_of_the_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    figures = importlib.import_module("figures")
    text = "".join(document.read_text(encoding="utf-8") for document in figures.DOCUMENTS)
    assert len(figures.BLOCK.findall(text)) == len(figures.TABLES)
    assert figures.written(text) == text
    assert figures.written(text.replace("| `softmax` | ", "| `softmax` | 1")) == text
