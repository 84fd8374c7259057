"""Wheels of artifacts: what `wootz pack` writes, and what wootz.load finds by a name."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename
from wootz.errors import ArtifactError

from gen.build.lock import lock
from gen.cli import main
from gen.commands._shared import UsageError, artifact_folders, artifacts
from gen.wheel import archive
from tests.null import loader_tools as tools

CUBINS = ("gpu80", "gpu90a")
ROOT = Path(__file__).resolve().parents[2]


def folder(path: Path, *targets: str) -> Path:
    """A whole build for some targets."""
    made = tools.Folder(path)
    entries = [entry for each in tools.ENTRIES.values() for entry in each]
    for target in targets:
        source = made.source(f"src/{target}.cpp", f"// {target}\n")
        if target == "cpu":
            files = [made.file("cpu/kernels.so", tools.image(), "baseline")]
        else:
            files = [made.file(f"cubin/{target}.cubin", tools.fake_cubin(entries, target))]
        made.add_all(target, files, **source)
    return made.write()


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("whole") / "artifacts", "cpu", *CUBINS)


@pytest.fixture(scope="module")
def cubins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("cubins") / "artifacts", *CUBINS)


def pack(artifacts: Path, out: Path, *more: str, name: str = "acme", version: str = "1.0") -> list[Path]:
    """The wheels that a command which must succeed has written."""
    options = ["--artifacts", str(artifacts), "--name", name, "--version", version, "--out", str(out)]
    assert main(["pack", *options, *more]) == 0
    return sorted(out.glob("*.whl"))


def refused(capsys: pytest.CaptureFixture[str], artifacts: Path, out: Path, *more: str, **names: str) -> str:
    """What a command that must fail says; it has written nothing."""
    options = {"name": "acme", "version": "1.0", **names}
    named = [word for key, value in options.items() for word in (f"--{key}", value)]
    try:
        status = main(["pack", "--artifacts", str(artifacts), "--out", str(out), *more, *named])
    except SystemExit as end:
        status = int(end.code or 0)
    assert status
    assert not list(out.glob("*"))
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def install(wheel: Path, site: Path) -> None:
    """As an installer does: these wheels hold nothing but packages."""
    zipfile.ZipFile(wheel).extractall(site)


def claim(site: Path, name: str, points: str, version: str = "1.0") -> None:
    """A distribution with entry points, and nothing else."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[wootz.artifacts]\n{points}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are imported from."""
    found = tmp_path / "site"
    found.mkdir()
    monkeypatch.syspath_prepend(str(found))
    return found


def index_of(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (each for each in opened.namelist() if each.endswith("index.json"))
        return dict(json.loads(opened.read(name)))


# ---- what is written


def test_cubins_are_for_any_platform(cubins: Path, tmp_path: Path) -> None:
    (wheel,) = pack(cubins, tmp_path / "dist")
    assert wheel.name == "acme-1.0-py3-none-any.whl"


def test_code_for_the_cpu_is_for_one_platform(everything: Path, tmp_path: Path) -> None:
    (wheel,) = pack(everything, tmp_path / "dist")
    _, _, _, found = parse_wheel_filename(wheel.name)
    (tag,) = found
    assert (tag.interpreter, tag.abi) == ("py3", "none")
    assert tag.platform != "any"
    with zipfile.ZipFile(wheel) as opened:
        said = BytesParser().parsebytes(opened.read("acme-1.0.dist-info/WHEEL"))
    assert (said["Tag"], said["Root-Is-Purelib"]) == (str(tag), "false")


def test_record_and_modes(everything: Path, tmp_path: Path) -> None:
    (tmp_path / "TERMS").write_text("Use it well.\n")
    (wheel,) = pack(everything, tmp_path / "dist", "--licence-file", str(tmp_path / "TERMS"))
    with zipfile.ZipFile(wheel) as opened:
        files = {info.filename: opened.read(info) for info in opened.infolist()}
        assert {info.external_attr >> 16 for info in opened.infolist()} == {0o100644}
        assert {info.date_time for info in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    record = "acme-1.0.dist-info/RECORD"
    assert files["acme-1.0.dist-info/licenses/TERMS"] == b"Use it well.\n"
    rows = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(files[record].decode()))}
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert rows.pop(name) == (("", "") if name == record else (f"sha256={digest}", str(len(data))))
    assert not rows
    names = list(files)
    inside = [name for name in names if name.startswith("acme/")]
    assert inside == sorted(inside) == names[: len(inside)]
    assert names[-1] == record


def test_each_part_has_a_bill_of_its_materials(everything: Path, tmp_path: Path) -> None:
    for wheel in pack(everything, tmp_path / "dist", "--split")[1:]:  # the first has no files
        with zipfile.ZipFile(wheel) as opened:
            names = opened.namelist()
            (bill,) = (name for name in names if "/sboms/" in name)
            document = json.loads(opened.read(bill))
        assert document["metadata"]["component"]["name"] == Path(bill).name.removesuffix(".cdx.json")
        listed = {component["name"] for component in document["components"]}
        assert {f"{cell['kernel']}/{cell['target']}" for cell in index_of(wheel)["cells"]} <= listed


def test_metadata_is_valid(everything: Path, tmp_path: Path) -> None:
    (tmp_path / "TERMS").write_text("")
    more = ["--licence", "Apache-2.0", "--licence-file", str(tmp_path / "TERMS")]
    (wheel,) = pack(everything, tmp_path / "dist", *more, name="Acme_Kernels", version="1.0-RC1")
    with zipfile.ZipFile(wheel) as opened:
        said = Metadata.from_email(opened.read("acme_kernels-1.0rc1.dist-info/METADATA"))
        points = opened.read("acme_kernels-1.0rc1.dist-info/entry_points.txt").decode()
    assert (said.name, str(said.version)) == ("acme-kernels", "1.0rc1")
    assert (said.license_expression, said.license_files) == ("Apache-2.0", ["TERMS"])
    assert [str(each) for each in said.requires_dist or ()] == ["wootz~=0.1"]
    assert points == "[wootz.artifacts]\nacme-kernels = acme_kernels\n"


def test_the_same_bytes_whatever_the_clock(
    everything: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = pack(everything, tmp_path / "a")
    for path in everything.rglob("*.cubin"):
        path.chmod(0o600)
        path.touch()
    (second,) = pack(everything, tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    monkeypatch.setenv(archive.EPOCH, "1700000000")
    (later,) = pack(everything, tmp_path / "c")
    with zipfile.ZipFile(later) as opened:
        assert {info.date_time for info in opened.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_without_sources(everything: Path, tmp_path: Path) -> None:
    (wheel,) = pack(everything, tmp_path / "dist", "--no-sources")
    with zipfile.ZipFile(wheel) as opened:
        inside = {name.split("/")[2] for name in opened.namelist() if name.startswith("acme/artifacts/")}
    assert inside == {"cpu", "cubin", "index.json"}


def test_what_was_not_compiled_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tools.Folder(tmp_path / "a")
    made.add_all("cpu", [made.file("cpu/kernels.so", tools.image(), "baseline")], **made.source("a.cpp", ""))
    made.add_all("gpu80", [], **made.source("a.cu", ""))
    (wheel,) = pack(made.write(), tmp_path / "dist")
    assert [row["key"] for row in index_of(wheel)["targets"]] == ["cpu"]
    assert "gpu80: not compiled on this host: left out" in capsys.readouterr().err


def test_a_split_wheel(everything: Path, tmp_path: Path, site: Path) -> None:
    wheels = {wheel.name.split("-")[0]: wheel for wheel in pack(everything, tmp_path / "dist", "--split")}
    assert list(wheels) == ["acme", "acme_cpu", "acme_gpu80", "acme_gpu90a"]
    assert all(wheels[name].name.endswith("-any.whl") for name in ("acme", "acme_gpu80", "acme_gpu90a"))
    for target in ("cpu", *CUBINS):
        index = index_of(wheels[f"acme_{target}"])
        assert (
            {cell["target"] for cell in index["cells"]}
            == {row["key"] for row in index["targets"]}
            == {target}
        )
        assert (index["generator"], index["nvrtc"]) == ("test", tools.NVRTC)
    with zipfile.ZipFile(wheels["acme"]) as opened:
        said = Metadata.from_email(opened.read("acme-1.0.dist-info/METADATA"))
    parts = [f"acme-{target}==1.0" for target in ("cpu", *CUBINS)]
    assert [str(each) for each in said.requires_dist or ()] == ["wootz~=0.1", *parts]
    for wheel in wheels.values():
        install(wheel, site)
    lib, whole = wootz.load("acme"), wootz.load(everything)
    assert lib.cells() == whole.cells()
    assert (lib.kernels(), lib.formats(), lib.targets) == (whole.kernels(), whole.formats(), whole.targets)
    assert len(lib.parts) == 3
    x, q = tools.random(3, 70), tools.quantized(lib, 5, 70)
    np.testing.assert_allclose(lib.kernel("qgemv", format="toy")(x, q), x @ q.dequantize().T, rtol=1e-4)
    assert len(wootz.load("acme.cpu").cells()) == len(tools.CELLS)
    homes = {cell["target"]: lib.folder(cell).parent.name for cell in lib.cells()}
    assert homes == {target: f"acme_{target}" for target in ("cpu", *CUBINS)}


def test_an_older_wheel_is_replaced(cubins: Path, everything: Path, tmp_path: Path) -> None:
    (wheel,) = pack(cubins, tmp_path / "dist")
    before = wheel.read_bytes()
    wheel.write_bytes(b"an older one")
    assert pack(cubins, tmp_path / "dist") == [wheel]
    assert wheel.read_bytes() == before
    assert [path.name for path in (tmp_path / "dist").iterdir()] == [wheel.name]


# ---- what is refused


def test_an_unfinished_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder(tmp_path / "a", *CUBINS)
    (made / "index.json").unlink()
    assert "there is no index; run: wootz build --out" in refused(capsys, made, tmp_path / "dist")


def test_a_build_at_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder(tmp_path / "a", *CUBINS)
    with lock(made):
        assert "is building or packing here; wait" in refused(capsys, made, tmp_path / "dist")
    assert pack(made, tmp_path / "dist")


def test_a_shard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder(tmp_path / "a", *CUBINS)
    header, rest = (made / "index.json").read_bytes().split(b"\n", 1)
    (made / "index.json").write_bytes(header[:-1] + b',"shard":{"number":1,"of":3},\n' + rest)
    assert "is one shard of a build: merge them first" in refused(capsys, made, tmp_path / "dist")


def test_a_file_that_is_not_the_one_indexed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder(tmp_path / "a", *CUBINS)
    (made / "cubin/gpu80.cubin").write_bytes(b"edited")
    said = refused(capsys, made, tmp_path / "dist")
    assert "cubin/gpu80.cubin is not the file that was indexed (its sha256 differs) (and 4 more)" in said
    (made / "cubin/gpu80.cubin").unlink()
    assert "cubin/gpu80.cubin is missing" in refused(capsys, made, tmp_path / "dist", "--split")


def test_sources_that_are_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder(tmp_path / "a", *CUBINS)
    (made / "src/gpu80.cpp").unlink()
    said = refused(capsys, made, tmp_path / "dist")
    assert "src/gpu80.cpp is missing" in said
    assert "or pack with --no-sources" in said
    assert pack(made, tmp_path / "dist", "--no-sources")


def test_nothing_that_was_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tools.Folder(tmp_path / "a")
    made.add_all("gpu80", [], **made.source("a.cu", ""))
    assert "nothing in it was compiled" in refused(capsys, made.write(), tmp_path / "dist")


def test_a_stub_that_was_not_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tools.Folder(tmp_path / "a")
    stub = {k: v for k, v in made.source("a.stub.cpp", "").items() if k in ("source", "source_sha256")}
    made.add_all("gpu80", [made.file("a.cubin", b"a")], **made.source("a.cu", ""), stub=stub)
    assert "its host stub was not built" in refused(capsys, made.write(), tmp_path / "dist")


def test_something_else_than_a_shared_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tools.Folder(tmp_path / "a")
    made.add_all("cpu", [made.file("cpu/a.so", b"text")], **made.source("a.cpp", ""))
    assert "cpu/a.so: is no 64-bit little-endian ELF file" in refused(capsys, made.write(), tmp_path / "dist")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"name": "a b"}, "'a b' is no name of a distribution: want letters"),
        ({"name": "wootz"}, "would make the package wootz, which is taken"),
        ({"name": "numpy"}, "would make the package numpy, which is taken"),
        (
            {"name": "a.b"},
            "'a.b': a dot leads to a part of a library, as in wootz.load('acme.cpu'): choose a-b",
        ),
        ({"name": "acme.cpu"}, "choose acme-cpu, and load it by that"),
        ({"licence": "foo bar"}, "licence 'foo bar': is no SPDX expression"),
        ({"name": "JSON"}, "would make the package json, which is taken"),
        ({"name": "3d"}, "would make the package 3d, which is no name in Python"),
        ({"name": "class"}, "would make the package class, which is no name in Python"),
        ({"version": "latest"}, "'latest' is no version: want one as 1.0"),
    ],
)
def test_bad_names(
    names: dict[str, str], message: str, cubins: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, cubins, tmp_path / "dist", **names)


def test_a_bad_time(
    cubins: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(archive.EPOCH, "yesterday")
    assert "SOURCE_DATE_EPOCH=yesterday: wanted a whole number" in refused(capsys, cubins, tmp_path / "dist")


def test_a_licence_that_is_not_there(
    cubins: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, cubins, tmp_path / "dist", "--licence-file", str(tmp_path / "none"))
    assert f"{tmp_path}/none: cannot be read" in said


# ---- found by name


def test_a_name_in_any_spelling(cubins: Path, tmp_path: Path, site: Path) -> None:
    install(*pack(cubins, tmp_path / "dist", name="Acme_Kernels"), site)
    for name in ("acme-kernels", "acme_kernels", "ACME-Kernels"):
        assert wootz.load(name).path == site / "acme_kernels/artifacts"
    assert "acme_kernels" not in sys.modules


def test_a_name_comes_before_a_folder(
    cubins: Path, tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = folder(tmp_path / "acme", "gpu80")
    assert wootz.load("acme").path == here
    install(*pack(cubins, tmp_path / "dist"), site)
    assert wootz.load("acme").path == site / "acme/artifacts"
    assert wootz.load("./acme").path == wootz.load(Path("acme")).path == here


def test_nothing_of_that_name(cubins: Path, tmp_path: Path, site: Path) -> None:
    install(*pack(cubins, tmp_path / "dist"), site)
    with pytest.raises(ArtifactError, match=r"no installed package ships .* 'acne'.*did you mean 'acme'"):
        wootz.load("acne")


def test_two_distributions_with_one_name(cubins: Path, tmp_path: Path, site: Path) -> None:
    install(*pack(cubins, tmp_path / "dist"), site)
    claim(site, "rival", "acme = rival", "2.0")
    message = r"acme 1.0 and rival 2.0 both ship artifacts named 'acme': uninstall one"
    with pytest.raises(ArtifactError, match=message):
        wootz.load("acme")


def test_two_parts_with_one_cell(everything: Path, cubins: Path, tmp_path: Path, site: Path) -> None:
    for wheel in (*pack(everything, tmp_path / "a", "--split"), *pack(cubins, tmp_path / "b", version="2.0")):
        install(wheel, site)
    with pytest.raises(ArtifactError, match=r"acme 2.0 and acme-gpu80 1.0 both ship the cell .*/gpu80: unin"):
        wootz.load("acme")


def test_parts_of_different_versions(tmp_path: Path, site: Path) -> None:
    older = tools.Folder(tmp_path / "a")
    older.kernels[1] = {**older.kernels[1], "limits": {"n": [0, 9]}}
    older.add_all("gpu80", [older.file("a.cubin", b"a")], **older.source("a.cu", ""))
    newer = folder(tmp_path / "b", "gpu90a")
    for path, version in ((older.write(), "1.0"), (newer, "1.1")):
        for wheel in pack(path, tmp_path / version, "--split", version=version):
            install(wheel, site)
    with pytest.raises(ArtifactError, match=r"acme-gpu80 1.0 and acme-gpu90a 1.1 define kernel 'copy' diff"):
        wootz.load("acme")


RAISES = "def folder():\n    raise RuntimeError('the disk is on fire')\nbad = 7\nhere = __path__[0]\n"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("raiser:folder", "RuntimeError: the disk is on fire"),
        ("raiser:bad", "TypeError"),
        ("raiser:absent", "AttributeError"),
        ("not_there_at_all", "leads to no folder of artifacts"),
        ("raiser.parts.deep", "ModuleNotFoundError"),
        ("raiser", "leads to no folder of artifacts"),
        ("a b", "cannot be used"),
    ],
)
def test_entry_points_that_lead_nowhere(value: str, message: str, site: Path) -> None:
    (site / "raiser").mkdir()
    (site / "raiser/__init__.py").write_text(RAISES)
    claim(site, "acme-broken", f"acme = {value}", "3.1")
    with pytest.raises(ArtifactError, match=r"acme-broken 3.1: its entry point acme = ") as caught:
        wootz.load("acme")
    assert message in str(caught.value)
    sys.modules.pop("raiser", None)


def test_an_entry_point_with_a_folder(cubins: Path, site: Path) -> None:
    (site / "giver.py").write_text(f"def folder():\n    return {str(cubins)!r}\n")
    claim(site, "acme", "acme = giver:folder")
    assert wootz.load("acme").path == cubins


def test_only_the_package_that_is_asked_for_is_touched(cubins: Path, tmp_path: Path, site: Path) -> None:
    install(*pack(cubins, tmp_path / "dist"), site)
    claim(site, "other", "other = raiser_of_all:folder")
    assert wootz.load("acme").cells()


def test_nothing_is_looked_up_before_a_name_is_asked_for(cubins: Path) -> None:
    code = f"""
import sys, wootz
wootz.load({str(cubins)!r})
print("importlib.metadata" in sys.modules)
"""
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_commands_know_names(
    everything: Path, tmp_path: Path, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wheel in pack(everything, tmp_path / "dist", "--split"):
        install(wheel, site)
    assert main(["info", "--artifacts", "acme"]) == 0
    printed = capsys.readouterr().out
    assert "package  acme: acme-cpu 1.0, acme-gpu80 1.0, acme-gpu90a 1.0\n" in printed
    assert "library  acme-cpu 1.0, acme-gpu80 1.0, acme-gpu90a 1.0: 15 cells" in printed
    assert main(["info", "copy", "--artifacts", "acme", "--dtype", "f16", "--device", "cpu"]) == 0
    assert "cpu/kernels.so" in capsys.readouterr().out
    assert artifact_folders("acme") == [part.folder for part in wootz.load("acme").parts]
    assert artifact_folders("no-such") == [Path("no-such")]
    whole, page = ("--name", "n", "--version", "1"), ("--out", str(tmp_path / "page"))
    assert main(["size", "--artifacts", "acme", "--json"]) == 0
    weighed = json.loads(capsys.readouterr().out)
    assert (set(weighed["groups"]), weighed["kinds"]["index"]["files"]) == ({"cpu", *CUBINS}, 3)
    assert [artifacts("acme.cpu")] == artifact_folders("acme.cpu")
    for read in (["diff", "{}", "{}"], ["sbom", "{}", *whole], ["report", "--artifacts", "{}", *page]):
        assert main([word.format("acme") for word in read]) == 2
        assert "acme is installed in 3 parts: name the folder of one: " in capsys.readouterr().err
    for read in (["diff", "{}", "{}"], ["sbom", "{}", *whole]):
        assert main([word.format("acme.cpu") for word in read]) == 0
    claim(site, "rival", "acme.cpu = rival")
    with pytest.raises(UsageError, match=r"acme-cpu 1.0 and rival 1.0 both ship"):
        artifact_folders("acme")
