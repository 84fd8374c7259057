"""Suites of `wootz bench`: what is read, which limits are met, and the suites that the repository has."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import wootz
from wootz.bench import ceilings, cells, command, devices, peers, suite, worker
from wootz.bench.families import family
from wootz.bench.rows import Measuring, Row
from wootz.errors import ArgumentError, MissingPackageError

from gen.plan import cells as plan
from tests.null import loader_tools as tools
from tests.null import sticky

ROOT = Path(__file__).parents[2]


def row(us: float = 2.0, **more: Any) -> Row:
    """4000 bytes and 8000 operations, with a floor of a microsecond."""
    return Row("qmm/a/f16/t", "qmm", "a", "f16", {"m": 1, "n": 2}, us, 4000, 8000, 1.0, **more)


def judged(want: dict[str, Any], of: Row, best: suite._Best | None = None) -> tuple[bool, str]:
    """Whether all limits are met at 2 GB/s, 3 of a copy, and how they stand."""
    roof = ceilings.Ceilings("cpu", {"read": 2.0, "copy": 4.0})
    found = list(suite._judged(want, of, roof, best or suite._Best()))
    return all(met for met, _ in found), "; ".join(text for _, text in found)


@pytest.mark.parametrize(
    ("want", "met", "text"),
    [
        ({"x_floor": 2.0}, True, "x_floor 2 (at most 2)"),
        ({"x_floor": 1.99}, False, "x_floor 2 (at most 1.99)"),
        ({"us": 2.0, "x_floor": 1.0}, False, "us 2 (at most 2); x_floor 2 (at most 1)"),
        ({"tflops": 0.004}, True, "tflops 0.004 (at least 0.004)"),
        ({"tflops": 0.005}, False, ""),
        ({"of_read": 1.0}, True, "of_read 1 (at least 1)"),
        ({"of_copy": 0.51}, False, "of_copy 0.5 (at least 0.51)"),
        ({"of": {"torch": 1.0}}, False, "1.25 of torch's 1.60 us (at most 1)"),
        ({"of": {"torch": 1.25}}, True, ""),
        ({"of": {"humming": 1.0}}, False, "humming was not measured: it is not installed"),
        ({"of": {"cupy": 1.0}}, False, "cupy was not measured: it is no peer of this cell"),
        ({"any": {"us": 1.0, "of": {"torch": 1.3}}}, True, "us 2 (at most 1) or 1.25 of torch's"),
        ({"any": {"us": 1.0, "x_floor": 1.0}}, False, ""),
        ({"like": {"case": "a", "times": 1.15}}, False, "a has no row of these extents"),
    ],
)
def test_limits(want: dict[str, Any], met: bool, text: str) -> None:
    of = row(peers={"torch": 1.6}, ratios={"torch": 0.8}, absent={"humming": "it is not installed"})
    found = judged(want, of)
    assert found[0] == met
    assert text in found[1]


def test_a_limit_by_the_best_of_another_case() -> None:
    best = suite._Best()
    for us in (3.0, 1.8, 2.5):
        best.add("a", row(us))
    assert judged({"like": {"case": "a", "times": 1.15}}, row(2.0), best) == (
        True,
        "x_floor 2 (at most 2.07)",
    )
    assert not judged({"like": {"case": "a", "times": 1.1}}, row(2.0), best)[0]


# ---- files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "no suite: it has no list of cases"),
        ('{"cases": [1]}', "case 1: want a mapping with name and kernels; got int"),
        ('{"cases": [{"name": "a"}]}', "case 1: want a name and kernels"),
        (
            '{"cases": [{"name": "a", "kernels": ["b"], "shape": []}]}',
            "no key 'shape'; did you mean 'shapes'",
        ),
        (
            '{"cases": [{"name": "a", "kernels": ["b"], "want": {"uss": 1}}]}',
            "no limit 'uss'; did you mean 'us'",
        ),
        ("{", "no JSON"),
    ],
)
def test_files_that_are_no_suites(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(ArgumentError) as caught:
        suite.read(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yaml_needs_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("cases: [")
    with pytest.raises(ArgumentError, match="no YAML"):
        suite.read(path)
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(MissingPackageError, match="needs PyYAML"):
        suite.read(path)


@pytest.mark.parametrize("name", ["h200.yaml", "cpu.yaml"])
def test_the_suites_of_the_repository(name: str) -> None:
    """Kernels with their options, formats, types, sizes and peers are those that there are."""
    manifest = plan.load(ROOT / "kernels.yaml")
    cases = suite.read(ROOT / "benchmarks" / name)
    known = {case.name for case in cases}
    assert len(known) == len(cases)
    for case in cases:
        wanted = case.wanted
        kernels = {each.partition(".")[0] for each in wanted.kernels}
        assert kernels <= set(manifest.kernels)
        assert set(wanted.formats) <= set(manifest.formats)
        assert set(case.peers or ()) <= set(peers.names())
        for kernel in kernels:
            for text in wanted.shapes or family(kernel).sizes:
                assert cells._read(kernel, family(kernel).shape, text)
        like = case.want.get("like", {}).get("case")
        assert like is None or like in known


def test_every_format_is_in_the_suite_of_the_h200_once() -> None:
    """Of one row in the packed layout, and of 16, so that none is forgotten."""
    manifest = plan.load(ROOT / "kernels.yaml")
    cases = suite.read(ROOT / "benchmarks" / "h200.yaml")
    for m, pdl in ((1, True), (1, False), (16, True)):
        found = [
            name
            for case in cases
            if case.wanted.kernels == ("qmm_packed",) and case.wanted.m == (m,) and case.pdl == pdl
            if case.wanted.shapes == ("14336x4096",)
            for name in case.wanted.formats
        ]
        assert sorted(found) == sorted(manifest.formats)


# ---- runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tools.cpu_folder(tmp_path_factory.mktemp("suite") / "a", tools.image())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "CPU_READ", 1 << 16)
    monkeypatch.setattr(ceilings, "CPU_SIDE", 32)
    monkeypatch.setattr(devices, "CPU_ROTATE", 1 << 16)


CASES = [
    {"name": "one", "kernels": ["qgemv"], "shapes": ["64x16"], "want": {"us": 1e9}},
    {
        "name": "two",
        "kernels": ["qgemv"],
        "shapes": ["64x16"],
        "m": [1, 2],
        "want": {"us": 1e-9},
        "pdl": False,
    },
    {"name": "three", "kernels": ["gemm"], "want": {"us": 1}},
    {"name": "four", "kernels": ["binary.add"], "extents": {"n": 256}},
    {"name": "five", "kernels": ["qgemv"], "extents": {"m": 2, "k": 5000, "n": 4}},
]


def test_a_suite_is_run_line_by_line(folder: Path, tmp_path: Path, capsys: Any) -> None:
    path, out = tmp_path / "s.json", tmp_path / "r.json"
    path.write_text(json.dumps({"cases": CASES, "title": "t"}))
    argv = ["--suite", str(path), "--artifacts", str(folder), "--replays", "5", "--json", str(out)]
    assert command.main(argv) == 1
    lines = json.loads(out.read_text())["lines"]
    verdicts = [(line["case"], line["verdict"]) for line in lines]
    assert verdicts == [
        ("one", "met"), ("two", "short"), ("two", "short"), ("three", "missing"), ("four", "stated"),
        ("five", "missing"),
    ]  # fmt: skip
    assert "no kernel 'gemm' on cpu" in lines[3]["found"]
    assert "has no variant for" in lines[5]["found"]
    text = capsys.readouterr().out
    assert text.splitlines()[0].startswith("met      one: qgemv/toy/f32/cpu m=1 n=64 k=16: us ")
    assert "three" in text.splitlines()[-3]
    path.write_text(json.dumps({"cases": [CASES[0], CASES[3]]}))
    assert command.main(argv) == 0


def test_a_budget_that_is_spent(folder: Path) -> None:
    device = devices.open_device("cpu")
    how = Measuring(wootz.load(folder), device, ceilings.Ceilings("cpu"), replays=5)
    case = suite.Case("a", cells.Wanted(("copy",), extents={"n": 8}))
    lines = list(suite.run(how, [case], budget=-1.0, note=lambda text: None))
    assert [(line.verdict, line.found[-11:]) for line in lines] == [("missing", "out of time")] * 2


# ---- devices that are lost

FAULTS = [
    {"name": "before", "kernels": ["qgemv"], "shapes": ["12x16"], "want": {"us": 1e9}},
    {"name": "breaks", "kernels": ["qgemv"], "shapes": ["13x16", "15x16"], "want": {"us": 1e9}},
    {"name": "kills", "kernels": ["qgemv"], "shapes": ["14x16"], "want": {"us": 1e9}},
    {"name": "after", "kernels": ["qgemv"], "shapes": ["16x16"], "want": {"us": 1e9}},
]
BROKE = (
    "qgemv/toy/f32/cpu m=1 n=13 k=16: FaultError: the kernel: RuntimeError: " + sticky.FAULT.splitlines()[0]
)


def roof(name: str = "cpu") -> ceilings.Ceilings:
    """Ceilings that need not be measured."""
    return ceilings.Ceilings(name, {"read": 2.0, "copy": 4.0}, {"f32": 1.0})


def test_a_fault_costs_one_row_and_the_report_is_kept(
    folder: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows after a fault, and after a process that is killed, are measured by new processes."""
    path, out = tmp_path / "s.json", tmp_path / "r.json"
    path.write_text(json.dumps({"cases": FAULTS}))
    monkeypatch.setattr(command, "open_device", sticky.open_sticky)
    monkeypatch.setattr(command, "Worker", functools.partial(worker.Worker, open=sticky.open_sticky))
    monkeypatch.setattr(command, "Ceilings", roof)
    argv = ["--suite", str(path), "--artifacts", str(folder), "--replays", "5", "--json", str(out)]
    assert command.main(argv) == 1
    report = json.loads(out.read_text())
    verdicts = [(line["case"], line["verdict"]) for line in report["lines"]]
    assert verdicts == [
        ("before", "met"), ("breaks", "missing"), ("breaks", "met"), ("kills", "missing"), ("after", "met"),
    ]  # fmt: skip
    assert report["lines"][1]["found"] == BROKE
    killed = "qgemv/toy/f32/cpu m=1 n=14 k=16: the process that measured it was ended by signal 9"
    assert report["lines"][3]["found"] == killed
    assert [row["shape"]["n"] for row in report["rows"]] == [12, 15, 16]
    text, error = capsys.readouterr()
    assert f"missing  breaks: {BROKE}\n" in text
    assert "Traceback" not in text + error


def test_ceilings_are_measured_once_by_whom_measures(folder: Path) -> None:
    """What one process has found, the next one is told."""
    how = Measuring(wootz.load(folder), sticky.Sticky(), roof(), replays=5)
    with worker.Worker(how, sticky.open_sticky) as attempt:
        how.ceilings.matrix_tflops.clear()
        cell = how.lib.index.find("cells", "qgemv/toy/f32/cpu")
        assert attempt(how, cell, {"m": 1, "n": 4, "k": 16}).row
        assert how.ceilings.matrix_tflops["f32"] > 0
        assert how.ceilings.read_gb_s == 2.0
        assert attempt(how, cell, {"m": 9, "n": 4, "k": 16}).why.startswith("ArgumentError: m is 9")


def test_without_another_process_the_rest_is_listed(folder: Path) -> None:
    how = Measuring(wootz.load(folder), sticky.Sticky(), roof(), replays=5)
    cases = [suite.Case(each["name"], cells.Wanted(("qgemv",), shapes=each["shapes"])) for each in FAULTS]  # type: ignore[arg-type]
    lines = list(suite.run(how, cases, note=lambda text: None))
    assert [line.verdict for line in lines] == ["stated", *["missing"] * 4]
    assert lines[1].found == BROKE
    assert {line.found.partition(": ")[2] for line in lines[2:]} == {
        "not measured: its process has lost the device"
    }


def test_a_fault_ends_a_plain_run(folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows before it are told; with none before it, the fault alone."""
    monkeypatch.setattr(command, "open_device", sticky.open_sticky)
    monkeypatch.setattr(command, "Ceilings", roof)
    argv = ["--artifacts", str(folder), "--kernels", "qgemv", "--replays", "5", "--shapes"]
    assert command.main([*argv, "12x16,13x16,16x16"]) == 1
    text, error = capsys.readouterr()
    assert "m=1 n=12 k=16" in text
    assert f"{BROKE.replace('FaultError: ', '')}; not measured after it: 1\n" in text
    assert error == ""
    assert command.main([*argv, "13x16,16x16"]) == 2
    text, error = capsys.readouterr()
    assert (text, error.count("\n")) == ("", 1)
    assert "wootz bench: the kernel: RuntimeError: CUDA error" in error
