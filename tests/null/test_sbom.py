"""Bills of materials: what is in them, that they are the same each time, and how they grow."""

from __future__ import annotations

import datetime
import hashlib
import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from gen import cli
from gen.emit.provenance import BuildError
from gen.wheel import archive, inside, sbom, shipped

sys.path.insert(0, str(Path(__file__).resolve().parent))
from artifact_folders import cell, folder, text

CELLS = (cell("copy"), cell("copy", "metal3.1", size=0), cell("gemm", "sm_90a", kind="cutlass"))
NOON = datetime.datetime(2025, 1, 1, 12, tzinfo=datetime.timezone.utc)


def read(*cells: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text(*cells))
    return found


def parsed(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sbom.document(read(*cells), "theirs", "2.0", **more))
    return found


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {component["name"]: component for component in document["components"]}


def needs(document: dict[str, Any]) -> dict[str, list[str]]:
    return {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}


def test_the_parts_of_a_wheel_of_others() -> None:
    document = parsed(*CELLS, licence="MIT OR Apache-2.0")
    root = document["metadata"]["component"]
    assert (root["name"], root["version"], root["purl"]) == ("theirs", "2.0", "pkg:pypi/theirs@2.0")
    assert root["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
    found = by_name(document)
    assert set(found) == {"wootz", "CUTLASS", sbom.CUDA.name, "c++", "nvcc", "copy/cpu", "gemm/sm_90a"}
    assert found["CUTLASS"]["version"] == "4.2.0"
    assert found["CUTLASS"]["purl"] == "pkg:github/nvidia/cutlass@v4.2.0"
    assert found["CUTLASS"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    assert found["nvcc"]["scope"] == "excluded"
    gemm = needs(document)["gemm/sm_90a"]
    assert {name.split("@")[0] for name in gemm} == {"wootz", "CUTLASS", sbom.CUDA.name}
    assert {name.split("@")[0] for name in needs(document)["copy/cpu"]} == {"wootz"}
    assert not any("compiler" in name for name in needs(document)["theirs@2.0"])


def test_what_is_not_in_it_is_not_named() -> None:
    assert set(by_name(parsed(cell("copy")))) == {"wootz", "c++", "nvcc", "copy/cpu"}
    assert "pybind11" in by_name(parsed(cell("copy"), linked={"pybind11": "3.0"}))
    with pytest.raises(shipped.ShippedError, match="boost: not known to be linked; known: pybind11"):
        parsed(cell("copy"), linked={"boost": "1"})


def test_a_group_has_the_hash_that_sha256sum_gives() -> None:
    gemm = cell("gemm", "sm_90a", kind="cutlass")
    (binary,) = gemm["files"]
    gemm["files"].append({**binary, "file": "a/first by name", "size": 3, "sha256": "ab" * 32})
    files = [gemm["files"][1], binary, gemm["stub"]]
    lines = "".join(f"{f['sha256']}  {f['file']}\n" for f in files)
    found = by_name(parsed(gemm))["gemm/sm_90a"]
    assert found["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(lines.encode()).hexdigest()}]
    properties = {p["name"]: p["value"] for p in found["properties"]}
    assert properties == {"wootz:bytes": "110", "wootz:files": "3"}


def test_the_same_input_gives_the_same_bytes() -> None:
    first, second = (sbom.document(read(*CELLS), "theirs", "2.0", time=NOON) for _ in range(2))
    assert first == second
    assert sbom.document(read(*reversed(CELLS)), "theirs", "2.0", time=NOON) == first
    other = parsed(cell("copy", code="other"), *CELLS[1:], time=NOON)
    assert other["serialNumber"] != json.loads(first)["serialNumber"]
    assert json.loads(first)["metadata"]["timestamp"] == "2025-01-01T12:00:00+00:00"
    assert "timestamp" not in parsed(*CELLS)["metadata"]


def test_it_grows_by_the_kernel_and_not_by_the_file() -> None:
    """3,000 files of 60 kernels, as a large wheel has."""
    kernels = [f"kernel_{i}" for i in range(60)]
    cells = []
    for kernel in kernels:
        for i in range(50):
            each = cell(kernel, code=f"{kernel} {i}")
            each["files"][0]["file"] = f"bin/{kernel}/{i}"
            cells.append({**each, "key": f"{kernel}/format_{i}/f32/cpu"})
    start = time.monotonic()
    document = sbom.document(read(*cells), "theirs", "2.0")
    assert time.monotonic() - start < 60
    assert len(zlib.compress(document)) < 16 << 10
    properties = [p["value"] for p in by_name(json.loads(document))[kernels[0] + "/cpu"]["properties"]]
    assert "50" in properties


def test_the_licence_texts_are_of_what_is_inside() -> None:
    assert list(inside.texts(read(*CELLS))) == ["CUTLASS.txt"]
    assert inside.texts(read(cell("copy"), cell("copy", "sm_90a"))) == {}


def test_the_files_of_a_data_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    found = inside.files(read(*CELLS), "theirs", "2.0", "MIT")
    assert list(found) == ["sboms/theirs.cdx.json", "licenses/CUTLASS.txt"]
    assert found["sboms/theirs.cdx.json"] == sbom.document(read(*CELLS), "theirs", "2.0", "MIT")
    assert b"NVIDIA" in found["licenses/CUTLASS.txt"]


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1735732800")
    artifacts, out = folder(tmp_path, text(*CELLS)), tmp_path / "sboms/theirs.cdx.json"
    named = [str(artifacts), "--name", "theirs", "--version", "2.0"]
    assert cli.main(["sbom", *named, "--out", str(out)]) == 0
    assert out.read_bytes() == sbom.document(read(*CELLS), "theirs", "2.0", time=NOON)
    assert cli.main(["sbom", *named]) == 0
    assert capsys.readouterr().out == out.read_text()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--linked", "boost=1"], "boost: not known to be linked; known: pybind11"),
        (["--linked", "pybind11"], "pybind11: wanted NAME=VERSION"),
        (["--licence", "mine, all mine"], "licence 'mine, all mine': is no SPDX expression"),
    ],
)
def test_bad_options(more: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifacts = str(folder(tmp_path, text(*CELLS)))
    try:
        got = cli.main(["sbom", artifacts, "--name", "n", "--version", "1", *more])
    except SystemExit as stop:
        got = int(str(stop.code))
    assert got == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("epoch", ["yesterday", "-1", "9" * 30])
def test_a_time_that_is_none(epoch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(BuildError, match=f"SOURCE_DATE_EPOCH={epoch}: wanted a whole number of seconds"):
        archive.epoch()


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--name", "", "'' is no name of a distribution"),
        ("--name", "a b", "'a b' is no name of a distribution"),
        ("--version", "x y", "'x y' is no version: want one as 1.0"),
        ("--licence", "foo bar", "licence 'foo bar': is no SPDX expression"),
    ],
)
def test_names_have_the_rules_of_wheels(
    option: str, value: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = str(folder(tmp_path / "a", text(*CELLS)))
    named = {"--name": "theirs", "--version": "2.0", option: value}
    with pytest.raises(SystemExit) as end:
        cli.main(["sbom", made, *(word for pair in named.items() for word in pair)])
    printed = capsys.readouterr()
    assert (end.value.code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert says in printed.err
    with pytest.raises(shipped.ShippedError, match=says.partition(":")[0]):
        sbom.document(read(*CELLS), *(named.get(key, "") for key in ("--name", "--version", "--licence")))
