"""The report: its numbers are the index', its page is whole and harmless, bad input is named."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("jinja2")

from gen import cli
from gen.build import options
from gen.build import stages as build
from gen.emit.provenance import BuildError
from gen.plan import cells as plan
from gen.plan import explain, listing
from gen.site import bench, roofline, weight
from gen.site.coverage import Rung
from gen.site.page import render
from gen.site.planned import planned
from gen.site.report import coverage_of, report
from gen.wheel import shipped

sys.path.insert(0, str(Path(__file__).resolve().parent))
import site_tools
from site_tools import Page, cell, number, source, unit

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "kernels.yaml"
WANTED = plan.Request(targets=("metal3.1",), formats=("-", "int4"), kernels=("cast", "dequant"))
ALL = ["emitted", "compiled"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real sources and a real index, of a target without a compiler here (few kernels, where it has one)."""
    out = tmp_path_factory.mktemp("artifacts")
    quiet = options.Output(print, lambda *_: None)
    summary = build.build(options.Options(SHIPPED, WANTED, out, ROOT / "evidence"), quiet)
    assert not summary.failures
    return out


@pytest.fixture(scope="module")
def site(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    report(built, out, [ROOT / "benchmarks" / "qgemv-h200.json"], planned(SHIPPED, WANTED))
    return out


@pytest.fixture(scope="module")
def page(site: Path) -> Page:
    return Page((site / "index.html").read_text(encoding="utf-8"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two targets, three units, five cells; one file is of two cells."""
    text = b"// a source\n"
    one, two, three = b"a" * 5000, bytes(range(256)) * 9, b"stub" * 40
    evidence = [*ALL, "executed:NVIDIA H200", "executed:cpu"]
    cells = [
        cell("copy", None, "f16", "sm_90a", evidence, {"cubin/a": one}, text),
        cell("copy", None, "f32", "sm_90a", ALL, {"cubin/a": one}, text),
        cell("dequant", "int4", "f16", "sm_90a", evidence, {"cubin/b": two}, text),
        cell("dequant", "int4", "f16", "cpu", [*ALL, "executed:cpu"], {"cpu/b": two}, text),
        cell("dequant", "fp4", "f16", "metal3.1", ["emitted", "executed:cpu"], {}, text),
    ]
    cells[2]["stub"] = {"file": "stub/b", "size": len(three), "sha256": "0"}
    cells[2]["stub"] |= {"source": "src/none.cpp", "source_sha256": "0"}
    files = {"cubin/a": one, "cubin/b": two, "cpu/b": two, "stub/b": three}
    return site_tools.write(tmp_path / "art", cells, {**files, cells[0]["source"]: text})


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, list[str]]:
    """`wootz report`: its status, and the lines that it complained in."""
    status = cli.main(["report", *map(str, args)])
    return status, capsys.readouterr().err.splitlines()


# Numbers


def test_counts_are_those_of_list(page: Page) -> None:
    loaded = plan.load(SHIPPED)
    rows = list(listing.rows(loaded, plan.select(loaded, WANTED), {}))
    table = page.table("target")
    for target in (*{row["target"] for row in rows}, "all"):
        mine = [row for row in rows if target in ("all", row["target"])]
        shown = {column: number(table[target][column]) for column in ("cells", "jobs", "refused", "skipped")}
        states = {"jobs": "job", "refused": "refused", "skipped": "skip"}
        assert shown.pop("cells") == len(mine)
        assert shown == {k: sum(row["state"] == s for row in mine) for k, s in states.items()}
    assert number(table["all"]["refused"]) > 0
    assert table["all"]["not built"] == "0"
    assert number(table["all"]["emitted"]) == number(table["all"]["jobs"])


def test_the_title_is_the_folders_own_name(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small)
    report(Path(), tmp_path / "site")
    assert f"<h1>{small.name}</h1>" in (tmp_path / "site/index.html").read_text()


def test_rows_of_targets_add_up(small: Path, tmp_path: Path) -> None:
    report(small, tmp_path / "site")
    table = Page((tmp_path / "site" / "index.html").read_text()).table("target")
    total = table.pop("all")
    assert list(table) == ["cpu", "sm_90a", "metal3.1"]
    for column in ("cells", "emitted", "compiled", "text executed on a CPU", "executed on its device"):
        assert sum(number(row[column]) for row in table.values()) == number(total[column])
    assert [table[t]["text executed on a CPU"] for t in table] == ["0", "2", "1"]
    assert [table[t]["executed on its device"] for t in table] == ["1", "2", "0"]
    assert table["sm_90a"]["devices"] == "NVIDIA H200: 2"
    assert table["cpu"]["devices"] == "cpu: 1"


def test_a_bar_stands_for_the_least_of_its_cells(small: Path) -> None:
    opened = shipped.read(small)
    units = coverage_of(opened, None).units
    assert units["copy", "-", "sm_90a"].rungs == Rung.EMITTED | Rung.COMPILED
    assert units["dequant", "int4", "sm_90a"].rungs == Rung(15)
    assert units["dequant", "int4", "cpu"].rungs == Rung.EMITTED | Rung.COMPILED | Rung.DEVICE
    assert units["dequant", "fp4", "metal3.1"].rungs == Rung.EMITTED | Rung.TEXT


def test_bars_and_labels_say_the_same(small: Path, tmp_path: Path) -> None:
    report(small, tmp_path / "site")
    text = (tmp_path / "site" / "index.html").read_text()
    assert (
        'aria-label="dequant int4: cpu executed on cpu; sm_90a executed on NVIDIA H200">'
        '<i class="e c d"></i><i class="e c t d"></i><i class="n"></i></a>'
    ) in text
    more = "(1 of 2 cells executed on NVIDIA H200)"
    assert f'aria-label="copy: sm_90a compiled {more}"><i class="e c"></i>' in text


def test_what_is_planned_and_not_there_is_shown_as_such(built: Path, tmp_path: Path) -> None:
    request = plan.Request(targets=("metal3.1", "cpu"), formats=("int4",), kernels=("dequant",))
    report(built, tmp_path / "site", (), planned(SHIPPED, request))
    table = Page((tmp_path / "site" / "index.html").read_text()).table("target")
    states = {target: (row["jobs"], row["not built"]) for target, row in table.items()}
    assert states == {"cpu": ("3", "3"), "metal3.1": ("9", "0"), "all": ("12", "3")}  # cast is there, too
    sections = unit(tmp_path / "site/units/dequant/int4/cpu.js")["sections"]
    (cells,) = [s["rows"] for s in sections if s["title"] == "Cells"]
    assert cells[0] == ["dequant/int4/f16/cpu", "job", "not in this index"]


def test_another_manifest_is_refused(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = run(capsys, "--artifacts", small, "--out", tmp_path / "site", "--manifest", SHIPPED)
    advice = "name the manifest that the artifacts were built from"
    assert status == 1
    assert lines == [f"wootz: target cpu: the index has another than the manifest; {advice}"]


def test_sizes_add_up_along_every_axis(small: Path, tmp_path: Path) -> None:
    found = weight.artifacts(shipped.read(small))
    total = weight.total(found)
    assert (total.files, total.size) == (4, 5000 + 2 * 2304 + 160)
    assert total.compressed is not None
    assert total.compressed < total.size
    for axis in weight.AXES:
        sums = weight.by(axis, found).values()
        assert sum(w.files for w in sums) == total.files
        assert sum(w.size for w in sums) == total.size
        assert sum(w.compressed or 0 for w in sums) == total.compressed
    report(small, tmp_path / "site")
    table = Page((tmp_path / "site" / "index.html").read_text()).table("kernel")
    assert table  # the matrix; sizes by kernel have a table of their own
    assert f"{total.size:,}" in (tmp_path / "site" / "index.html").read_text()


def test_a_file_that_is_gone_leaves_the_compressed_sum_unknown(small: Path) -> None:
    (small / "cubin/b").unlink()
    total = weight.total(weight.artifacts(shipped.read(small)))
    assert total.compressed is None
    assert total.size == 5000 + 2 * 2304 + 160


def test_times_are_those_of_the_records_or_none(small: Path, tmp_path: Path) -> None:
    report(small, tmp_path / "without")
    assert "Build times" not in (tmp_path / "without" / "index.html").read_text()
    (small / ".wootz").mkdir()
    (small / ".wootz/.ninja_log").write_text(
        "# ninja log v7\n0\t1500\t1\tcubin/a\tff\n500\t9000\t1\tcpu/b\tff\n0\t9000\t1\tgone\tff\n"
    )
    (small / ".wootz/costs.json").write_text('{"cpu/b":[2.5,2.0,9e4]}')  # comes before the log
    report(small, tmp_path / "with")
    text = (tmp_path / "with" / "index.html").read_text()
    assert "2 of 4 files, 4.0 s of compilers' time" in text
    times = next(t for t in Page(text).tables if t[0] == ["kernel", "cpu", "sm_90a", "all"])
    assert times[1:] == [["dequant", "2.5", "", "2.5"], ["copy", "", "1.5", "1.5"]]


def test_a_wheel_says_what_it_stores(small: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "mine-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(p for p in small.rglob("*") if p.is_file()):
            archive.write(path, f"mine/artifacts/{path.relative_to(small)}")
        sizes = {i.filename: i.compress_size for i in archive.infolist()}
        archive.writestr("mine/index.json", "{}")  # anyone may ship a file of that name
    found = weight.artifacts(shipped.read(wheel))
    assert found == weight.artifacts(shipped.read(small))  # which deflates for itself
    assert {a.path: a.compressed for a in found} == {a.path: sizes[f"mine/artifacts/{a.path}"] for a in found}
    report(wheel, tmp_path / "site")
    (text,) = unit(tmp_path / "site/units/copy/-/sm_90a.js")["sources"]
    assert source(text) == b"// a source\n"


# The chain and the source


def test_a_unit_has_the_chain_of_explain_and_its_source(site: Path, built: Path) -> None:
    data = unit(site / "units/dequant/int4/metal3.1.js")
    fact = explain.explain(plan.load(SHIPPED), "dequant", "int4", "metal3.1", built)
    sections = {s["title"]: s["rows"] for s in data["sections"]}
    assert [row[0] for row in sections["Compiler calls"]] == fact["commands"]
    assert [row[0] for row in sections["Cells"]] == [c["key"] for c in fact["cells"]]
    launches = {(e["symbol"], explain.launch(e)) for e in fact["entries"]}
    assert {(row[0], row[2]) for row in sections["Entries and launch formulas"]} == launches
    assert sections["Source"][0][0::2] == [fact["source"], fact["source_sha256"]]
    assert {row[0] for row in sections["Axes"]} >= {"element", "block", "scales"}
    (text,) = data["sources"]
    assert source(text) == (built / fact["source"]).read_bytes()


def test_a_source_that_is_not_the_indexed_one_is_not_shown(small: Path, tmp_path: Path) -> None:
    first = json.loads((small / "index.json").read_text())["cells"][0]
    (small / first["source"]).write_text("// another\n")
    report(small, tmp_path / "site")
    (text,) = unit(tmp_path / "site/units/copy/-/sm_90a.js")["sources"]
    assert "data" not in text
    assert "SHA-256 differs" in text["note"]
    other = unit(tmp_path / "site/units/dequant/int4/cpu.js")["sources"]
    assert [s["note"] for s in other] == ["The source is not shipped."]


# The page


def test_the_page_is_whole(site: Path, page: Page) -> None:
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for link in (a["href"] for a in page.all("a")):
        target = unquote(link[1:])
        assert link.startswith("#")
        if "/" in target:
            kernel, fmt, *_ = target.split("/")
            assert list((site / "units" / kernel / fmt).glob("*.js")), target
        else:
            assert target in ids
    for _, attributes in page.elements:
        for name in ("aria-labelledby", "aria-describedby", "aria-controls"):
            assert all(one in ids for one in attributes.get(name, "").split())
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert all(a.get("aria-label") for a in page.all("a") if "/" in a["href"] and "aria-label" in a)


def test_nothing_comes_from_the_network(site: Path, page: Page) -> None:
    text = (site / "index.html").read_text()
    assert not re.search(r"https?:|//\w+\.\w", re.sub(r"(?s)<script>.*</script>", "", text))
    assert not re.search(r"https?:", text)
    (policy,) = [a["content"] for a in page.all("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none';")
    for tag in ("style", "script"):
        (inline,) = re.findall(rf"(?s)<{tag}>(.*?)</{tag}>", text)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not any("style" in a or any(k.startswith("on") for k in a) for _, a in page.elements)


def test_a_page_of_everything_stays_light(built: Path) -> None:
    opened = shipped.read(built)
    text = render(coverage_of(opened, planned(SHIPPED, plan.Request("release"))), opened, (), (), True)
    assert text.count("<tr data-k=") > 60
    assert len(text.encode()) < 1_000_000


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "../../../escaped",
    "a&b'c",
    "..",
    "é/ü",
)


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    cells = [
        cell(n, n, n, n, ["emitted", f"executed:{n}"], {f"cubin/{i}": b"x"}) for i, n in enumerate(HOSTILE)
    ]
    cells += [cell(n, None, "f16", n, ["emitted"], {}) for n in HOSTILE]
    art = site_tools.write(tmp_path / 'a"<b>', cells, {})
    timing = tmp_path / "<i>.json"
    timing.write_text(json.dumps({"us": {HOSTILE[0]: {HOSTILE[1]: 1.0}}, "device": HOSTILE[0]}))
    report(art, tmp_path / "site", [timing])
    page = Page((tmp_path / "site" / "index.html").read_text())
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert not list(page.all("img"))
    assert {a["data-k"] for a in page.all("tr") if "data-k" in a} == set(HOSTILE)
    wrote = {p.relative_to(tmp_path).parts[0] for p in tmp_path.rglob("*") if p.is_file()}
    assert wrote == {'a"<b>', "<i>.json", "site"}
    scripts = list((tmp_path / "site").rglob("*.js"))
    assert len(scripts) == len(cells)
    assert all(
        re.fullmatch(r"(units|[\w=.-]+)(/[\w=.-]+)*", p.relative_to(tmp_path).as_posix()) for p in scripts
    )


# The folder


def test_the_same_input_gives_the_same_bytes(small: Path, tmp_path: Path) -> None:
    def tree(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    first = report(small, tmp_path / "one")
    report(small, tmp_path / "two")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert first.changed == len(tree(tmp_path / "one")) - 1  # but for the list
    assert report(small, tmp_path / "one").changed == 0


def test_a_later_report_takes_the_place_of_an_earlier_one(small: Path, built: Path, tmp_path: Path) -> None:
    report(small, tmp_path / "site")
    report(built, tmp_path / "site")
    there = {
        p.relative_to(tmp_path / "site").as_posix() for p in (tmp_path / "site").rglob("*") if p.is_file()
    }
    assert there == {*(tmp_path / "site" / "files.txt").read_text().split(), "files.txt"}
    assert not (tmp_path / "site/units/copy").exists()


def test_a_folder_with_other_files_is_left_alone(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    (mine / "index.html").write_text("my own page")
    status, lines = run(capsys, "--artifacts", small, "--out", mine)
    assert status == 1
    assert lines == [
        f"wootz: {mine}: holds index.html and 1 more, which no report wrote; choose another --out"
    ]
    assert (mine / "index.html").read_text() == "my own page"
    assert len(list(mine.iterdir())) == 2
    status, lines = run(capsys, "--artifacts", small, "--out", small)  # the artifacts themselves
    assert status == 1
    assert "no report wrote" in lines[0]
    status, lines = run(capsys, "--artifacts", small, "--out", mine / "thesis.txt")
    assert (status, lines) == (1, [f"wootz: {mine / 'thesis.txt'}: is no folder; choose another --out"])


def test_a_list_of_files_cannot_name_others(small: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim.js"
    victim.write_text("mine")
    (tmp_path / "site").mkdir()
    (tmp_path / "site/files.txt").write_text("../victim.js\nunits/../../victim.js\nindex.html\n")
    report(small, tmp_path / "site")
    assert victim.read_text() == "mine"


# Bad input


def test_a_damaged_unit_is_named(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small / "index.json"
    found = json.loads(path.read_text())
    del found["cells"][0]["entries"][0]["when"]
    path.write_text(json.dumps(found))
    status, lines = run(capsys, "--artifacts", small, "--out", tmp_path / "site")
    assert (status, len(lines)) == (1, 1)
    assert "unit copy/-/sm_90a: KeyError: 'when'" in lines[0]
    assert not (tmp_path / "site" / "index.html").exists()


def test_a_filter_without_a_manifest_is_refused(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines = run(capsys, "--artifacts", small, "--out", tmp_path / "site", "--kernels", "copy")
    wanted = "wootz: --kernels says which cells of a manifest to show: add --manifest FILE"
    assert (status, lines) == (2, [wanted])
    assert not (tmp_path / "site").exists()
    more = ("--manifest", SHIPPED, "--kernels", "nobody")
    status, lines = run(capsys, "--artifacts", small, "--out", tmp_path / "site", *more)
    assert status == 2
    assert lines[0].startswith("wootz: kernel 'nobody': not in the manifest")


# Benchmarks

MEASURED: dict[str, Any] = {
    "device": "Device",
    "date": "2026-11-30",
    "ceilings": {"read_gb_s": 1000.0, "matrix_tflops": {"f16": 100.0, "bf16": 104.0, "e4m3": 200.0}},
    "rows": [
        {"kernel": "gemv", "format": None, "dtype": "f16", "shape": {"n": 8}, "us": 10.0, "bytes": 1e7,
         "flops": 1e7, "share": 1.0, "peers": {"torch": 12.0}, "ratios": {"torch": 1.2}, "cold": False},
        {"kernel": "gemm", "format": None, "dtype": "e4m3", "shape": {"m": 8}, "us": 10.0, "bytes": 1e6,
         "flops": 2e9, "share": 0.5, "peers": {}},
        {"kernel": "copy", "format": None, "dtype": "f16", "shape": {"n": 8}, "us": 10.0, "bytes": 1e7,
         "flops": 0, "share": 1.0},
    ],
}  # fmt: skip


def test_points_stand_where_the_roof_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(MEASURED))
    read = bench.read(path)
    assert [row.tflops for row in read.rows] == [1.0, 200.0, None]
    plot = roofline.plot(read)
    assert plot
    assert plot.series == ("gemm", "gemv")
    diagonal, *levels = plot.roofs
    assert [line.text for line in levels] == ["f16 100, bf16 104 TFLOP/s", "e4m3 200 TFLOP/s"]
    on_roof, at_peak = plot.marks  # a copy has no operations
    slope = (diagonal.y2 - diagonal.y1) / (diagonal.x2 - diagonal.x1)
    assert on_roof.y == pytest.approx(diagonal.y1 + slope * (on_roof.x - diagonal.x1), abs=0.2)
    assert at_peak.y == levels[1].y1
    assert (levels[1].x1, levels[1].y1) == pytest.approx((diagonal.x2, diagonal.y2), abs=0.2)


def test_a_timing_is_shown_with_its_unit(small: Path, tmp_path: Path) -> None:
    row = {
        **MEASURED["rows"][0],
        "cell": "dequant.x/int4/f16/sm_90a",
        "kernel": "dequant.x",
        "format": "int4",
    }
    (tmp_path / "mine.json").write_text(
        json.dumps({**MEASURED, "rows": [row, {**row, "cell": "gone/-/f16/cpu"}]})
    )
    report(small, tmp_path / "site", [tmp_path / "mine.json"])
    page = Page((tmp_path / "site" / "index.html").read_text())
    assert [a["href"] for a in page.all("a")].count("#dequant/int4/sm_90a") == 1
    line = next(t for t in page.tables if t[0][:2] == ["kernel", "type"])[1]
    shown = ["dequant.x int4", "f16", "n\xa08 warm", "10", "1", "1,000", "100 %", "", "12 (1.20 of ours)"]
    assert line == shown
    sections = unit(tmp_path / "site/units/dequant/int4/sm_90a.js")["sections"]
    (measured,) = [s["rows"] for s in sections if s["title"] == "Measured"]
    assert measured == [["Device", "n 8", "f16", "10 µs", "100 %", "torch 12 µs"]]


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*-h200.json")), ids=lambda p: p.stem)
def test_every_file_of_ours_is_read(path: Path) -> None:
    read = bench.read(path)
    assert read.rows or read.tables
    assert all(row.us > 0 for row in read.rows)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[]", "wanted {"),
        ("{", "cannot be read"),
        ("{}", "no 'ceilings'"),
        ('{"ceilings":{}}', "no 'rows'"),
        ('{"ceilings":{},"rows":[{"kernel":"copy"}]}', "no 'shape'"),
        ('{"ceilings":{},"rows":[{"kernel":"copy","shape":{},"us":0}]}', "copy took 0.0 us"),
        ('{"device":"cpu","cells":[]}', "no 'ceilings'"),  # a file of evidence
    ],
)
def test_a_benchmark_file_of_another_form_is_named(
    text: str, wanted: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    status, lines = run(capsys, "--artifacts", small, "--out", tmp_path / "site", "--bench", path)
    assert (status, len(lines)) == (1, 1)
    assert lines[0].startswith(f"wootz: {path}: ")
    assert wanted in lines[0]
    with pytest.raises(BuildError):
        bench.read(path)
    assert not (tmp_path / "site").exists()
