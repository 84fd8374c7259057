"""index.json: the line structure that the loader bisects, evidence, and the validator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gen.build import index
from gen.emit.provenance import BuildError, write, write_lines


def _cell(folder: Path, key: str) -> dict[str, Any]:
    source, artifact = f"src/{key.replace('/', '_')}.cpp", f"cpu/{key.replace('/', '_')}.so"
    for file in (source, artifact):
        write(folder / file, f"{file}\n")
    digest = index.sha256(f"{artifact}\n".encode())
    return {
        "key": key,
        "kernel": "k",
        "dtype": "f32",
        "target": "cpu",
        "files": [{"file": artifact, "size": 1, "sha256": digest, "isa": ""}],
        "source": source,
        "source_sha256": index.sha256(f"{source}\n".encode()),
        "evidence": ["emitted"],
        "entries": [{"symbol": "s"}],
    }


def _folder(tmp_path: Path) -> dict[str, list[dict[str, Any]]]:
    keys = ["k/b/f32/cpu", "k/a/f32/cpu", "k.add/-/f32/cpu", "k/a/bf16/cpu"]
    sections = {
        "targets": [{"key": "cpu"}],
        "kernels": [{"key": "k"}],
        "formats": [{"key": "b"}, {"key": "a"}],
        "cells": [_cell(tmp_path, key) for key in keys],
    }
    write_lines(tmp_path / "index.json", index.lines({"nvcc": "13.0"}, sections))
    return sections


def test_a_record_is_a_line_and_sections_are_sorted(tmp_path: Path) -> None:
    _folder(tmp_path)
    text = (tmp_path / "index.json").read_text()
    lines = text.split("\n")
    whole = json.loads(text)
    assert lines[0].startswith('{"wootz_index":2,"generator":"')
    assert lines[0].endswith('"count":{"formats":2,"kernels":1,"targets":1,"cells":4},')
    assert lines[1] == '"targets":['
    assert lines[-2:] == ['],"spans":' + json.dumps(whole["spans"], separators=(",", ":")) + "}", ""]
    for section in index.SECTIONS:
        start = next(i for i, line in enumerate(lines) if line.endswith(f'"{section}":['))
        first, end = whole["spans"][section]
        assert json.loads(f"[{text[first:end]}]") == whole[section]
        records = whole[section]
        for i, record in enumerate(records):
            line = lines[start + 1 + i]
            assert line.startswith(f'{{"key":"{record["key"]}"')
            assert json.loads(line.rstrip(",")) == record
        keys = [record["key"] for record in records]
        assert keys == sorted(keys)
    assert index.validate(tmp_path) == []


def test_empty_sections_are_valid_json() -> None:
    text = "".join(index.lines({}, {section: [] for section in index.SECTIONS}))
    assert json.loads(text)["cells"] == []


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda f: (f / "cpu/k_a_f32_cpu.so").write_text("edited"), "its sha256 differs"),
        (lambda f: (f / "cpu/k_a_f32_cpu.so").unlink(), "is missing"),
        (lambda f: (f / "src/k_a_f32_cpu.cpp").write_text("edited"), "its sha256 differs"),
        (lambda f: _edit(f, '"entries":[{"symbol":"s"}]', '"entries":[]'), "has no entry"),
    ],
)
def test_the_validator_finds_damage(tmp_path: Path, damage: Any, expected: str) -> None:
    _folder(tmp_path)
    damage(tmp_path)
    assert any(expected in problem for problem in index.validate(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"src/k_a_f32_cpu.cpp"', '"../k_a_f32_cpu.cpp"', "names ../k_a_f32_cpu.cpp, which is outside the"),
        ('"src/k_a_f32_cpu.cpp"', '"/etc/passwd"', "names /etc/passwd, which is outside the folder"),
        ('"cells":4', '"cells":5', "count says 5, there are 4"),
        ('"count":{', '"counts":{', "count says None, there are 1"),
        ('"key":"k/a/f32/cpu"', '"key":"k/c/f32/cpu"', "not sorted"),
        ('"file":"cpu/k_a_f32_cpu.so"', '"file":3', "has a file that has file of type int, wanted str"),
        ('{"key":"k"}', '{"key":"k","check":{"file":"../c.py","sha256":""}}', "names ../c.py, which is out"),
        ('{"key":"k"}', '{"key":"k","check":3}', "has a check that is int, no record"),
        ('"evidence":["emitted"]', '"stub":{},"evidence":["emitted"]', "has a host stub that lacks source"),
        ('"target":"cpu"', '"target":"tpu"', "is for tpu, which is no target of it"),
    ],
)
def test_no_reader_takes_an_index_whose_structure_is_damaged(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    _folder(tmp_path)
    _edit(tmp_path, old, new)
    with pytest.raises(index.ArtifactsError, match=expected):
        index.read(tmp_path / "index.json")
    with pytest.raises(index.ArtifactsError, match=expected):
        index.validate(tmp_path)


def _edit(folder: Path, old: str, new: str) -> None:
    path = folder / "index.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"wootz_index":1}'])
def test_what_is_no_index_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(BuildError, match=r"index\.json"):
        index.read(tmp_path / "index.json")
    with pytest.raises(BuildError, match="wootz build"):
        index.read(tmp_path / "none" / "index.json")


def test_evidence_counts_while_the_source_is_the_same(tmp_path: Path) -> None:
    def report(device: str, *cells: tuple[str, str, bool]) -> str:
        rows = [{"cell": cell, "source_sha256": sha, "pass": ok} for cell, sha, ok in cells]
        return json.dumps({"device": device, "cells": rows})

    (tmp_path / "a.json").write_text(
        report("NVIDIA H200", ("x", "11", True), ("y", "22", False), ("z", "old", True))
    )
    (tmp_path / "b.json").write_text(report("cpu", ("x", "11", True)))
    found = index.read_evidence(tmp_path)
    assert index.evidence_of("x", ("11", ""), True, found) == [
        "emitted",
        "compiled",
        "executed:NVIDIA H200",
        "executed:cpu",
    ]
    assert index.evidence_of("y", ("22", ""), True, found) == ["emitted", "compiled"]  # it did not pass
    assert index.evidence_of("z", ("new", ""), False, found) == ["emitted"]  # another source
    assert index.read_evidence(tmp_path / "none") == {}


def test_evidence_of_a_shipped_check_counts_while_the_check_is_the_same(tmp_path: Path) -> None:
    cell = {"cell": "x", "source_sha256": "11", "check_sha256": "cc", "pass": True}
    (tmp_path / "a.json").write_text(json.dumps({"device": "cpu", "cells": [cell]}))
    found = index.read_evidence(tmp_path)
    assert index.evidence_of("x", ("11", "cc"), True, found) == ["emitted", "compiled", "executed:cpu"]
    assert index.evidence_of("x", ("11", "dd"), True, found) == ["emitted", "compiled"]
    assert index.evidence_of("x", ("11", ""), True, found) == ["emitted", "compiled"]


@pytest.mark.parametrize("text", ["{", "[]", '{"device": "cpu"}', '{"device": "cpu", "cells": [{}]}'])
def test_bad_evidence_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(BuildError, match=r"broken\.json: is no evidence file"):
        index.read_evidence(tmp_path)
