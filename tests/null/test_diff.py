"""wootz diff: what has changed between two artifact folders or wheels."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gen import cli
from gen.wheel import diff, shipped

sys.path.insert(0, str(Path(__file__).resolve().parent))
from artifact_folders import MEMBER, cell, folder, text, wheel

CHAPTER = Path(__file__).resolve().parents[2] / "docs/projects.md"
OLD = (cell("copy"), cell("copy", dtype="f16"), cell("gemm", "sm_90a", kind="cutlass"))


def compared(old: str, new: str) -> diff.Difference:
    return diff.compare(shipped.parse(old.encode(), "old"), shipped.parse(new.encode(), "new"))


def changes(**told: Any) -> dict[str, tuple[str, ...]]:
    """The aspects that differ after the kernel copy has become this."""
    new = (cell("copy", **told), cell("copy", dtype="f16", **told), OLD[2])
    return {change.cell: change.aspects for change in compared(text(*OLD), text(*new)).changed}


def test_the_same() -> None:
    found = compared(text(*OLD), text(*OLD))
    assert found.same
    assert found.unchanged == 3
    assert found.totals["cpu"] == diff.Total((2, 2), (1, 1), (100, 100))  # a file that two cells share, once
    assert found.totals["sm_90a"] == diff.Total((1, 1), (2, 2), (107, 107))  # with its stub


@pytest.mark.parametrize(
    ("told", "aspects"),
    [
        ({"source": "other"}, ("source",)),
        ({"code": "other"}, ("code",)),
        ({"code": "other", "size": 150}, ("code", "size")),
        ({"evidence": ["emitted", "compiled", "executed:H200"]}, ("evidence",)),
        ({"grid": 2}, ("record",)),
        ({"size": 0}, ("code", "size", "record")),
    ],
)
def test_each_aspect_is_told(told: dict[str, Any], aspects: tuple[str, ...]) -> None:
    assert changes(**told) == {"copy/-/f32/cpu": aspects, "copy/-/f16/cpu": aspects}


def test_cells_that_come_and_go() -> None:
    found = compared(text(*OLD), text(*OLD[:2], cell("scan", size=40)))
    assert (found.added, found.removed) == ({"scan/-/f32/cpu": 40}, {"gemm/-/f32/sm_90a": 107})
    assert found.sections["kernels"] == diff.Keys(("scan",), ("gemm",), ())
    assert found.totals["sm_90a"] == diff.Total((1, 0), (2, 0), (107, 0))
    assert not found.same


def test_another_compiler_is_a_difference() -> None:
    found = compared(text(*OLD), text(*OLD, compilers={"c++": "g++ 12.2.0", "nvcc": "13.1.0"}))
    assert found.tools == {"nvcc": ("13.0.88", "13.1.0"), "cutlass": ("4.2.0", "")}
    assert not found.same


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """A wheel, and a folder of the next release."""
    new = cell("copy", code="new", size=150, evidence=["emitted", "executed:H200"])  # comes after f16
    old = wheel(tmp_path / "mine-1-py3-none-any.whl", **{MEMBER: text(*OLD), "mine/x/index.json": "[1]"})
    return old, folder(tmp_path / "new", text(new, *OLD[1:]))


def test_the_command(sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    old, new = map(str, sides)
    assert cli.main(["diff", old, old]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "# cells: 0 added, 0 removed, 0 changed, 3 the same"
    assert cli.main(["diff", old, new]) == 1
    assert capsys.readouterr().out == (
        "~ copy/-/f32/cpu  code, size 100 -> 150 (+50.0%), evidence +executed:H200 -compiled\n"
        "target  cells  files  bytes\n"
        "cpu     2      1      100 -> 150 (+50.0%)\n"
        "sm_90a  1      2      107\n"
        "# cells: 0 added, 0 removed, 1 changed, 2 the same\n"
    )


def test_the_command_as_json(sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "--json", *map(str, sides)]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert set(facts) == {
        *("same", "tools", "targets", "kernels", "formats"),
        *("added", "removed", "changed", "unchanged", "totals"),
    }
    assert facts["same"] is False
    assert facts["changed"] == [
        {
            "cell": "copy/-/f32/cpu",
            "aspects": ["code", "size", "evidence"],
            "size": [100, 150],
            "gained": ["executed:H200"],
            "lost": ["compiled"],
            "percent": 50.0,
        }
    ]


def test_the_example_of_the_chapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the chapter shows is what the command prints of such a change."""
    found = re.search(r"^```\n\$ wootz diff (\S+) (\S+)\n(.*?)^```$", CHAPTER.read_text(), re.M | re.S)
    assert found
    ran = ["emitted", "compiled", "executed:NVIDIA H200"]
    copies = (cell("copy", size=13840), cell("copy", "sm_90a", size=4000, evidence=ran))
    new = (copies[0], cell("copy", "sm_90a", size=4100, code="new"), cell("scan", size=18008))
    compilers = {"c++": "g++ 12.2.0", "nvcc": "13.0.88"}
    old = wheel(tmp_path / found[1], **{MEMBER: text(*copies, compilers=compilers)})
    folder(tmp_path / found[2], text(*new, compilers={**compilers, "nvcc": "13.1.12"}))
    assert cli.main(["diff", str(old), str(tmp_path / found[2])]) == 1
    assert capsys.readouterr().out == found[3]


def damaged(at: Path) -> Path:
    """A wheel whose index has one wrong byte in its compressed data."""
    path = wheel(at / "damaged.whl", **{MEMBER: text(*OLD)})
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(MEMBER)
    data = bytearray(path.read_bytes())
    data[info.header_offset + 30 + len(MEMBER) + info.compress_size // 2] ^= 0xFF
    path.write_bytes(data)
    return path


def without(record: str, field: str) -> str:
    return record.replace(f'"{field}"', f'"no {field}"', 1)


def fewer(content: str) -> str:
    """The index without its first cell."""
    lines = content.split("\n")
    del lines[next(i for i, line in enumerate(lines) if line.endswith('"cells":[')) + 1]
    return "\n".join(lines)


def leading_out(path: str) -> str:
    """An index that names a file which is not the folder's."""
    binary = {"file": path, "size": 1, "sha256": "0" * 64, "isa": ""}
    return text({**cell("copy"), "files": [binary]})


BAD = {
    "no such folder or wheel": lambda at: at / "nowhere",
    "holds no index.json": lambda at: wheel(at / "a.whl").parent,
    "is no wheel": lambda at: folder(at, "text") / "index.json",
    "no index of artifacts": lambda at: wheel(at / "a.whl", **{"x/index.json": "{}"}),
    "there is 2 of them": lambda at: wheel(at / "a.whl", **{MEMBER: text(*OLD), "x/index.json": text(*OLD)}),
    "wheel": damaged,
    "its index is damaged": lambda at: folder(at, text(*OLD)[:-200]),
    "is none of wootz": lambda at: folder(at, "[]"),
    "has version 1": lambda at: folder(at, text(*OLD).replace('"wootz_index":2', '"wootz_index":1')),
    "no list of compilers": lambda at: folder(at, text(*OLD).replace('"compilers":{', '"compiler":{')),
    "section 'kernels'": lambda at: folder(at, text(*OLD).replace('"kernels":[', '"kernel":[')),
    "section 'cells': keys are not sorted and unique": lambda at: folder(at, text(OLD[0], OLD[0])),
    "section 'cells': count says 3, there are 2": lambda at: folder(at, fewer(text(*OLD))),
    "no record": lambda at: folder(at, text(*OLD).replace('"files":[{', '"files":[3,{', 1)),
    "names ../../etc/hostname, which is outside": lambda at: folder(at, leading_out("../../etc/hostname")),
    "names /etc/hostname, which is outside": lambda at: folder(at, leading_out("/etc/hostname")),
    "cell gemm/-/f32/sm_90a lacks evidence": lambda at: folder(at, without(text(OLD[2]), "evidence")),
    "cell gemm/-/f32/sm_90a has a file that lacks sha256": lambda at: folder(
        at, without(text(OLD[2]), "sha256")
    ),
    "has evidence of type str, wanted list": lambda at: folder(at, text(cell("copy", evidence="emitted"))),
    "is for cpu, which is no target": lambda at: folder(at, text(*OLD).replace('{"key":"cpu"', '{"key":"a"')),
    "has a file that has size of type str, wanted int": lambda at: folder(at, text(cell("copy", size="1"))),
}


@pytest.mark.parametrize("says", BAD)
def test_bad_input_is_told_in_a_line(says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = str(folder(tmp_path / "good", text(*OLD)))
    bad = str(BAD[says](tmp_path / "bad") if (tmp_path / "bad").mkdir() is None else "")
    site = tmp_path / "site"
    for command in (
        ["diff", bad, good],
        ["diff", good, bad],
        ["sbom", bad, "--name", "n", "--version", "1"],
        ["report", "--artifacts", bad, "--out", str(site)],
    ):
        assert cli.main(command) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(f"wootz: {bad}: ")
        assert says in printed.err
        assert printed.err.count("\n") == 1
    assert not site.exists()


DAMAGED = {
    "no such folder": None,
    "is damaged": text(*OLD)[:-200],
    "count says 3, there are 2": fewer(text(*OLD)),
    "has file of type int, wanted str": text({**cell("copy"), "files": [{"file": 3}]}),
    "names ../../etc/hostname, which is outside the folder": leading_out("../../etc/hostname"),
}


@pytest.mark.parametrize("says", DAMAGED)
def test_the_same_fault_has_the_same_status_everywhere(
    says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, out = DAMAGED[says], str(tmp_path / "out")
    bad = str(folder(tmp_path / "bad", content) if content else tmp_path / "bad")
    named = ["--name", "n", "--version", "1"]
    for command in (
        ["diff", bad, bad],
        ["sbom", bad, *named],
        ["report", "--artifacts", bad, "--out", out],
        ["size", "--artifacts", bad],
        ["pack", "--artifacts", bad, *named, "--out", out],
        ["merge", bad, "--out", out],
        ["list", "--artifacts", bad, "--kernels", "copy", "--targets", "cpu"],
        *([["explain", "copy", "-", "cpu", "--artifacts", bad]] if content else []),
    ):
        assert (command, cli.main(command)) == (command, 2)
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("\n")) == ("", 1)
        assert says in printed.err or (not content and "there is no index; run: wootz build" in printed.err)
        assert "again" in printed.err or not content
    assert not Path(out).exists()
