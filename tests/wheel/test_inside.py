"""What a wheel says of itself: its bill of materials, its licences, one order and one time for all."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from wheel_tools import ROOT, Wheel

sys.path.insert(0, str(ROOT / "backend"))
from wootz_backend import put_in_order

from gen import cli
from gen.wheel import sbom, shipped


def member(wheel: Wheel, end: str) -> bytes:
    (name,) = (name for name in wheel.files if name.endswith(f".dist-info/{end}"))
    return wheel.read(name)


def test_the_bill_of_materials_is_of_these_artifacts(wheel: Wheel) -> None:
    document = json.loads(member(wheel, "sboms/wootz.cdx.json"))
    root = document["metadata"]["component"]
    assert (root["name"], root["version"]) == ("wootz", wheel.metadata["Version"])
    assert root["licenses"] == [{"expression": wheel.metadata["License-Expression"]}]
    found = {each["name"]: each for each in document["components"]}
    groups = {group.name: group for group in sbom.groups(shipped.read(wheel.path))}
    assert set(groups) == {name for name, each in found.items() if each["type"] == "file"}
    assert {name: found[name]["hashes"][0]["content"] for name in groups} == {
        name: group.sha256 for name, group in groups.items()
    }
    files = {file.path for group in groups.values() for file in group.files}
    binaries = {name for name in wheel.artifacts() if not name.startswith("src/")} - {"index.json"}
    assert files == binaries
    compilers = wheel.index["compilers"]
    assert (sbom.CUTLASS.name in found) is ("cutlass" in compilers)
    assert {key for key in sbom.COMPILERS if key in found} == set(compilers) - {"cutlass"}
    assert found["pybind11"]["version"].startswith(("2.", "3."))


def test_the_bill_of_materials_is_that_of_the_command(
    wheel: Wheel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped_text = member(wheel, "sboms/wootz.cdx.json").decode()
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    version = {each["name"]: each for each in json.loads(shipped_text)["components"]}["pybind11"]["version"]
    named = ["--name", "wootz", "--version", wheel.metadata["Version"], "--linked", f"pybind11={version}"]
    licence = ["--licence", wheel.metadata["License-Expression"]]
    assert cli.main(["sbom", str(wheel.path), *named, *licence]) == 0
    assert capsys.readouterr().out == shipped_text


def test_a_wheel_does_not_differ_from_itself(wheel: Wheel, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", str(wheel.path), str(wheel.path)]) == 0
    assert capsys.readouterr().out.endswith(
        f"# cells: 0 added, 0 removed, 0 changed, {len(wheel.index['cells'])} the same\n"
    )


def test_every_licence_that_the_metadata_names_is_there(wheel: Wheel) -> None:
    named = wheel.metadata.get_all("License-File") or []
    assert {"LICENSE", "LICENSES/THIRD-PARTY.md", "LICENSES/CUTLASS.txt"} <= set(named)
    for name in named:
        assert member(wheel, f"licenses/{name}") == (ROOT / name).read_bytes()
        assert name == "LICENSE" or wheel.read(f"wootz/{name}") == (ROOT / name).read_bytes()


@pytest.mark.parametrize(("package", "text"), [("nvidia-cutlass", "CUTLASS"), ("pybind11", "pybind11")])
def test_the_licence_texts_are_those_of_the_packages(package: str, text: str) -> None:
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    (file,) = (file for file in files if file.name.startswith("LICENSE") and "licenses" in file.parts)
    wanted = Path(str(file.locate())).read_text().split()
    assert (ROOT / "LICENSES" / f"{text}.txt").read_text().split() == wanted


# ------------------------------------------------------------ the same bytes


def test_files_have_one_time_and_the_order_of_names(wheel: Wheel) -> None:
    names = list(wheel.files)
    assert len({info.date_time for info in wheel.files.values()}) == 1
    metadata = [name for name in names if name.split("/")[0].endswith(".dist-info")]
    rest = names[: -len(metadata)]
    assert rest == sorted(rest)
    assert metadata[-1].endswith("/RECORD")
    assert metadata[:-1] == sorted(metadata[:-1])


def made(path: Path, names: Iterable[str]) -> Path:
    record = "".join(f"{name},sha256=x,1\n" for name in names) + "a-1.dist-info/RECORD,,\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in (*names, "a-1.dist-info/RECORD"):
            info = zipfile.ZipInfo(name, (2025, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            archive.writestr(info, record if name.endswith("RECORD") else name)
    return path


def test_the_order_of_a_file_system_does_not_show(tmp_path: Path) -> None:
    names = ("a/__init__.py", "a-1.dist-info/licenses/B", "a-1.dist-info/sboms/s", "a-1.dist-info/WHEEL")
    wheels = [made(tmp_path / "1.whl", names), made(tmp_path / "2.whl", (names[0], *reversed(names[1:])))]
    before = {hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels}
    for path in wheels:
        put_in_order(path)
    after = {hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels}
    assert (len(before), len(after)) == (2, 1)
    with zipfile.ZipFile(wheels[0]) as archive:
        assert archive.namelist() == [names[0], *sorted(names[1:]), "a-1.dist-info/RECORD"]
        record = archive.read("a-1.dist-info/RECORD").decode().splitlines()
        assert [line.split(",")[0] for line in record] == archive.namelist()
        assert all(info.external_attr == 0o644 << 16 for info in archive.infolist())
    assert list(tmp_path.glob("*.tmp")) == []
