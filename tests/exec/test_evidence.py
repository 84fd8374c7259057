"""The evidence of executed texts: what is written, and what a second run does again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cells
import pytest

import evidence
from gen.plan import cells as plan

SMALL = """\
version: 1
targets:
  sm_80: {backend: cuda, capability: [8, 0], features: [f16, bf16]}
  sm_90: {backend: cuda, capability: [9, 0], features: [f16, bf16, f16_pairs, mma]}
kernels: {copy: {dtypes: [f16, f32]}}
profiles: {release: {}}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(cells, "repository", lambda: plan.load(path))


def run(out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[dict[str, Any], str]:
    """The report and what was printed; one process, which sees what a test puts in the place of things."""
    assert evidence.main(["--out", str(out), "-j", "1", *more]) == 0
    return json.loads(out.read_text()), capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_only_what_is_not_known_to_have_passed_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "e.json"
    first, said = run(out, capsys)
    keys = [cell["cell"] for cell in first["cells"]]
    assert keys == [f"copy/-/{dtype}/{target}" for dtype in ("f16", "f32") for target in ("sm_80", "sm_90")]
    assert all(cell["pass"] for cell in first["cells"])
    assert "copy---cuda: pass (4 run, 0 known" in said
    assert "(0 run, 4 known" in run(out, capsys)[1]
    assert "(4 run, 0 known" in run(out, capsys, "--again")[1]

    with monkeypatch.context() as other:
        other.setattr(cells, "checker", lambda kernel: "another check")
        assert "(4 run, 0 known" in run(tmp_path / "other.json", capsys)[1]
        assert "(0 run, 4 known" in run(tmp_path / "other.json", capsys)[1]
    assert "(4 run, 0 known" in run(tmp_path / "other.json", capsys)[1]

    first["cells"][1]["source_sha256"] = "0" * 64  # of another text than it has now
    first["cells"][2]["pass"] = False
    first["cells"].append({**first["cells"][0], "cell": "gone/-/f16/sm_80"})
    out.write_text(json.dumps(first))
    partial, _ = run(out, capsys, "--kernels", "copy")
    assert [c["cell"] for c in partial["cells"]] == [*keys, "gone/-/f16/sm_80"]  # not asked for, not touched
    assert all(c["pass"] for c in partial["cells"])
    whole, _ = run(out, capsys)
    assert [c["cell"] for c in whole["cells"]] == keys


def test_a_kernel_s_checker_is_its_own_files() -> None:
    names = {path.stem for path in cells._check_files("geglu")}
    assert {"__init__", "geglu", "swiglu"} <= names
    assert "gemm" not in names
    assert cells.checker("geglu") == cells.checker("geglu") != cells.checker("gemm")


@pytest.mark.usefixtures("small")
def test_a_launch_of_another_kind_is_another_proof() -> None:
    (subject,) = cells.subjects(cells.repository())
    (text,) = cells.texts(subject)
    records = {r.cell: r.to_json() for r in cells.run_text(subject, text)}
    assert cells.known(subject, text, records)
    assert not cells.known(subject, text, {})
    wider = {cell: tuple(replace(e, grid=(9, 1, 1)) for e in some) for cell, some in text.entries.items()}
    assert not cells.known(subject, replace(text, entries=wider), records)


@pytest.mark.usefixtures("small")
def test_a_stopped_run_leaves_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = evidence.Outcome("a", ({"cell": "a", "source_sha256": "1", "pass": True},), 1, 0.0, "")

    def stopped(*_: object) -> Any:
        yield done
        raise KeyboardInterrupt

    monkeypatch.setattr(evidence, "outcomes", stopped)
    with pytest.raises(KeyboardInterrupt):
        evidence.main(["--out", str(tmp_path / "e.json"), "-j", "1"])
    assert list(evidence.passed(tmp_path / "e.json")) == ["a"]


def test_a_failed_cell_is_written_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"cell": "a", "source_sha256": "1", "pass": False, "message": "wrong"}
    monkeypatch.setattr(
        evidence, "outcomes", lambda *_: iter([evidence.Outcome("a", (failed,), 1, 0.0, "a: wrong")])
    )
    assert evidence.main(["--out", str(tmp_path / "e.json"), "--kernels", "copy"]) == 1
    assert "a: a: wrong" in capsys.readouterr().out
    assert json.loads((tmp_path / "e.json").read_text())["cells"] == [failed]
    assert evidence.passed(tmp_path / "e.json") == {}


def test_every_kernel_with_text_for_a_cpu_is_a_subject() -> None:
    """What no CPU can run has tensor maps (test_warpgroup.py runs those), a stub, or CUTLASS in every unit;
    nothing else is left out."""
    source = cells.repository()
    formats = ("int4", "nvfp4", "mxfp4", "-")  # every kernel takes one of them
    request = plan.Request("release", formats=formats)
    candidates = {each.kernel for each in cells.candidates(source, request)}
    assert candidates == set(source.kernels)
    able = {each.kernel for each in cells.subjects(source, request)}
    mapped = {"grouped_qmm", "grouped_qmm_indexed"}
    assert candidates - able == {"scaled_gemm", "scaled_gemm_mixed", "scaled_grouped_gemm", *mapped}
