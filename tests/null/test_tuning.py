"""Selection tables in a build: which variants it then has, what its index says, and what a bad table says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from wootz.tune.command import _parser as tune_parser
from wootz.verify import _parser as verify_parser

from gen import cli
from gen.build import index
from gen.emit import text as emit
from gen.emit.provenance import BuildError
from gen.plan import cells as plan
from gen.plan import explain
from gen.tuning import table
from gen.tuning.table import Tuning
from gen.variants import family

sys.path.insert(0, str(Path(__file__).resolve().parent))
import toy
from test_build import Bench

ROW = {
    "kernel": "dequant", "format": "a4", "dtype": "f32", "shape": {"n": 8, "k": 64}, "variant": "wide",
    "us": 2.0, "next": "-", "next_us": 3.0, "tried": 2, "device": "card", "source": "ab" * 32,
}  # fmt: skip
SHIPPED = plan.load(toy.ROOT / "kernels.yaml")


def write(folder: Path, *rows: dict[str, Any], target: str = "sm_90a") -> Path:
    folder.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps({**ROW, **row}) for row in rows)
    path = folder / f"{target}.json"
    path.write_text(f'{{"wootz_tuning":1,"target":"{target}","rows":[\n{lines}\n]}}\n')
    return folder


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def cells(bench: Bench) -> dict[str, Any]:
    return dict(index.cell_keys(index.read(bench.out / "index.json")["cells"]))


def symbols(cell: dict[str, Any]) -> list[str]:
    return [entry["symbol"].removeprefix("wootz_dequant_") for entry in cell["entries"]]


# ------------------------------------------------------------ a build
def test_a_build_has_the_variants_that_its_table_names(bench: Bench) -> None:
    folder = write(bench.root / "tuning", {}, {"shape": {"n": 9, "k": 64}, "variant": "-"})
    bench.build("--targets", "cpu", "sm_90a", "--tuning", str(folder))
    assert index.validate(bench.out) == []
    found = cells(bench)
    assert symbols(found["dequant/a4/f32/sm_90a"]) == ["a4_f32", "a4_f32_wide"]
    assert found["dequant/a4/f32/sm_90a"]["measured"] == [
        {
            "shape": {"n": n, "k": 64},
            "symbol": symbol,
            "us": 2.0,
            "device": "card",
            "source_sha256": "ab" * 32,
        }
        for n, symbol in ((8, "wootz_dequant_a4_f32_wide"), (9, "wootz_dequant_a4_f32"))
    ]
    for key in ("dequant/a4/f16/sm_90a", "dequant/b4/f32/sm_90a", "dequant/a4/f32/cpu"):
        assert len(symbols(found[key])) == 1
        assert "measured" not in found[key]


def test_a_changed_table_builds_what_it_changes(bench: Bench) -> None:
    folder = write(bench.root / "tuning", {})
    argv = ("--targets", "sm_90a", "--tuning", str(folder))
    bench.build(*argv)
    assert bench.build(*argv)["compiled"] == 0
    write(folder, {"shape": {"n": 10, "k": 64}})  # the same variant
    assert bench.build(*argv)["compiled"] == 0
    assert cells(bench)["dequant/a4/f32/sm_90a"]["measured"][0]["shape"]["n"] == 10
    write(folder, {"variant": "-"})
    assert bench.build(*argv)["compiled"] == 2
    assert bench.compiled() == {"src/dequant/a4/sm_90a.cu"}
    text = (bench.out / "src/dequant/a4/sm_90a.cu").read_bytes()
    (bench.root / "none").mkdir()
    bench.build("--targets", "sm_90a", "--tuning", str(bench.root / "none"))
    assert (bench.out / "src/dequant/a4/sm_90a.cu").read_bytes() == text  # as it always was


def test_a_class_of_formats(bench: Bench) -> None:
    folder = write(bench.root / "tuning", {"format": "*4"}, {"variant": "-"})
    bench.build("--targets", "sm_90a", "--tuning", str(folder))
    chosen = {
        key: cells(bench)[key]["measured"] for key in ("dequant/a4/f32/sm_90a", "dequant/b4/f32/sm_90a")
    }
    assert [[row["symbol"] for row in rows] for rows in chosen.values()] == [
        ["wootz_dequant_a4_f32"],  # its own row is before that of its class
        ["wootz_dequant_b4_f32_wide"],
    ]


def test_every_tile(bench: Bench) -> None:
    bench.build("--targets", "cpu", "--tiles", "all")
    assert symbols(cells(bench)["dequant/a4/f16/cpu"]) == ["a4_f16", "a4_f16_wide"]
    assert bench.build("--targets", "cpu")["compiled"] == 6
    assert symbols(cells(bench)["dequant/a4/f16/cpu"]) == ["a4_f16"]


def test_a_row_of_a_variant_that_is_gone_does_not_count(bench: Bench) -> None:
    folder = write(bench.root / "tuning", {"variant": "gone"}, {})
    done = bench.run("--targets", "sm_90a", "--tuning", str(folder))
    assert done.returncode == 0
    said = "sm_90a.json:2: dequant/a4/f32/sm_90a has no variant 'gone': the row does not count"
    assert said in " ".join(done.stderr.split())
    cell = cells(bench)["dequant/a4/f32/sm_90a"]
    assert symbols(cell) == ["a4_f32", "a4_f32_wide"]
    assert [row["symbol"] for row in cell["measured"]] == ["wootz_dequant_a4_f32_wide"]


# ------------------------------------------------------------ bad tables
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[1]", "is no selection table of version 1"),
        ('{"wootz_tuning":2,"target":"cpu","rows":[]}', "is no selection table of version 1"),
        ('{"wootz_tuning":1,"target":"sm_90a","rows":[]}', "wanted rows of the target cpu; got 'sm_90a'"),
        ('{"wootz_tuning":1,"target":"cpu","rows":3}', "wanted rows of the target cpu"),
        ('{"wootz_tuning":1,"target":"cpu","rows":[\n3]}', "cpu.json:2: a row is an object; got 3"),
    ],
)
def test_a_damaged_table(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cpu.json").write_text(text)
    with pytest.raises(BuildError, match=message):
        table.read(tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"us": None}, "sm_90a.json:2: us is None; measure the shape again"),
        ({"variant": 1}, "sm_90a.json:2: variant is 1"),
        ({"kernel": "dequan"}, "sm_90a.json:2: there is no kernel 'dequan'; did you mean 'dequant'"),
        ({"shape": {"n": -1}}, "shape is {'n': -1}; want extents by name"),
        ({"shape": {}}, "shape is {}; want extents by name"),
    ],
)
def test_a_damaged_row(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildError) as raised:
        table.read(write(tmp_path, row))
    assert message in str(raised.value)


def test_a_damaged_row_is_one_line_of_a_build(bench: Bench) -> None:
    done = bench.run("--targets", "cpu", "--tuning", str(write(bench.root / "tuning", {"us": None})))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert not (bench.out / "index.json").exists()


def test_no_folder_is_no_rows(tmp_path: Path) -> None:
    assert table.read(None) == table.read(tmp_path / "none") == {}


# ------------------------------------------------------------ the kernels that ship
def units(kernel: str, fmt: str, target: str) -> plan.Unit:
    request = plan.Request("release", targets=(target,), formats=(fmt,), kernels=(kernel,))
    return next(iter(plan.units(SHIPPED, plan.select(SHIPPED, request))))


@pytest.mark.parametrize(
    ("kernel", "fmt", "target", "least"),
    [("qgemv", "int8", "sm_90a", 15), ("qgemv", "int8", "cpu", 8), ("qmm_packed", "mxfp4", "sm_90a", 20)],
)
def test_tiles_are_more_variants_of_the_same_cells(kernel: str, fmt: str, target: str, least: int) -> None:
    unit = units(kernel, fmt, target)
    given = unit.kernel, unit.format, unit.target, ("bf16",)
    plain, every = emit.emit(*given), emit.emit(*given, (plan.ALL,))
    usual, all_of_them = ([entry.symbol for entry in made.entries] for made in (plain, every))
    assert all_of_them[: len(usual)] == usual  # the order of trial stays
    assert len(set(all_of_them)) == len(all_of_them) >= len(usual) + least
    one = emit.emit(*given, (all_of_them[-1],))
    assert [entry.symbol for entry in one.entries] == [*usual, all_of_them[-1]]
    assert Tuning(every=True).apply(unit).tiles == (plan.ALL,)
    assert Tuning().apply(unit) == unit


def test_the_commands_of_the_chapter_exist() -> None:
    chapter = (toy.ROOT / "docs/building.md").read_text(encoding="utf-8").split("\n## Tune\n")[1]
    block = chapter.split("```sh\n")[1].split("```")[0]
    parsers = {"tune": tune_parser(), "verify": verify_parser()}
    for line in block.splitlines():
        program, verb, *rest = line.split()
        assert program == "wootz"
        assert parsers[verb].parse_args(rest) if verb in parsers else cli._parser().parse_args([verb, *rest])
    having = [kernel for kernel in SHIPPED.kernels if family.family(kernel).tiles]
    assert all(f"`{kernel}`" in chapter for kernel in having)


def test_explain_says_what_was_measured(tmp_path: Path) -> None:
    row = {"kernel": "qgemv", "format": "int4", "dtype": "f32", "shape": {"m": 1, "n": 8, "k": 64}}
    folder = write(
        tmp_path, {**row, "variant": "m1_r2"}, {**row, "variant": "m9", "device": "x"}, target="cpu"
    )
    fact = explain.explain(SHIPPED, "qgemv", "int4", "cpu", None, Tuning(table.read(folder)))
    text = explain.as_text(fact)
    assert "wootz_qgemv_int4_f32_m1_r2  when" in text
    assert "m=1 n=8 k=64: m1_r2, 2.0 us (next: -, 3.0 us) on card, source abababababab: tuned\n" in text
    assert "on x, source abababababab: does not count, there is no such variant\n" in text
    assert json.dumps(fact["measured"])
