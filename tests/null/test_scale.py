"""Shards and their merge, what compiles cost, what artifacts weigh: over a toy emitter and real folders."""

from __future__ import annotations

import json
import shutil
import stat
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import wootz
from wootz.errors import ArtifactError

from gen import cli
from gen.build import index, state
from gen.build import stages as build
from gen.build.options import Options, Output, Summary
from gen.emit.provenance import BuildError
from gen.plan import cells as plan
from gen.scale import costs, merge, overweight, shards, simulate, sizes, weights
from gen.scale.costs import Costs, Row
from gen.scale.merge import MergeError
from gen.scale.shards import Shard
from gen.toolchain import find as toolchain

sys.path.insert(0, str(Path(__file__).resolve().parent))
import toy

QUIET = Output(lambda text: None, lambda *step: None)
BUDGETS = "budgets: {{wheel: {}}}\n"
CACHE = """#!/bin/sh
if [ "$1" = --show-stats ]; then
    printf '{"stats":{"cache_misses":{"counts":{}},"cache_hits":{"counts":{"PTX":%d}}}}' $(wc -l < "$0.log")
    exit
fi
echo >> "$0.log"
"$@" || exit
while [ $# -gt 1 ]; do [ "$1" = -o ] && chmod 640 "$2"; shift; done
"""
"""A launcher as compile caches are: what it leaves is for its user's group alone."""


@dataclass(frozen=True)
class Yard:
    """A manifest with doubles of the compilers, and what was built of it."""

    root: Path

    @property
    def options(self) -> Options:
        names = toolchain.Names(nvcc=str(self.root / "bin/nvcc"))
        request = plan.Request(targets=("cpu", "sm_80"))
        return Options(self.root / "m.yaml", request, self.root / "whole", self.root / "evidence", 2, names)

    def build(self, out: str, **changes: object) -> Summary:
        return build.build(replace(self.options, out=self.root / out, **changes), QUIET)  # type: ignore

    def units(self) -> list[plan.Unit]:
        manifest = plan.load(self.options.manifest)
        units = plan.units(manifest, plan.select(manifest, self.options.request))
        return [unit for unit in units if unit.jobs]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """With the folders whole, and s1, s2, s3, its shards."""
    made = Yard(tmp_path_factory.mktemp("scale"))
    toy.tool(made.root / "bin", "fake_nvcc.py", "nvcc")
    toy.tool(made.root / "bin", "fake_fatbinary.py", "fatbinary")
    toy.manifest(made.root / "m.yaml", {"a4": 32, "b4": 64}, extra=BUDGETS.format("50 MB"))
    with pytest.MonkeyPatch.context() as patch:
        toy.install(patch)
        assert made.build("whole").failures == {}
        for number in (1, 2, 3):
            assert made.build(f"s{number}", shard=Shard(number, 3)).failures == {}
        yield made


def shipped(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of every file that a wheel would take."""
    paths = [p for p in folder.rglob("*") if p.is_file() and ".wootz" not in p.parts]
    files = {str(p.relative_to(folder)): (stat.S_IMODE(p.stat().st_mode), p.read_bytes()) for p in paths}
    kept = ("build.ninja", "cubin/")
    return {path: file for path, file in files.items() if not path.startswith(kept)}


def copied(yard: Yard, to: Path) -> list[Path]:
    return [shutil.copytree(yard.root / f"s{number}", to / f"s{number}") for number in (1, 2, 3)]


# Shards


def test_shards_merged_are_the_whole_build(yard: Yard, tmp_path: Path) -> None:
    parts = [yard.root / f"s{number}" for number in (3, 1, 2)]  # in any order
    assert merge.merge(parts, tmp_path / "out") == 12
    assert shipped(tmp_path / "out") == shipped(yard.root / "whole")
    assert index.validate(tmp_path / "out") == []
    assert all(len(shipped(part)) < len(shipped(yard.root / "whole")) for part in parts)
    assert len(wootz.load(tmp_path / "out").cells()) == 12


def test_a_shard_is_not_loaded_for_the_whole(yard: Yard) -> None:
    with pytest.raises(ArtifactError, match=r"of shard 2 of 3 of a build.* merge them: wootz merge"):
        wootz.load(yard.root / "s2")


def test_a_shard_that_is_up_to_date_is_left_alone_and_another_is_not(yard: Yard, tmp_path: Path) -> None:
    (one, *_), key = copied(yard, tmp_path), "compiled"
    again = replace(yard.options, out=one, shard=Shard(1, 3))
    assert sum(getattr(row, key) for row in build.build(again, QUIET).rows) == 0
    other = json.loads((yard.root / "s2/index.json").read_bytes())
    build.build(replace(again, shard=Shard(2, 3)), QUIET)
    assert json.loads((one / "index.json").read_bytes()) == other


def test_the_split_takes_the_longest_first_and_forgets_nothing(yard: Yard) -> None:
    units = yard.units()
    row = Row(1, 100.0, 90.0, 500.0)
    known = Costs({"copy": {"cpu": {"baseline": row}, "sm_80": {"cuda": replace(row, processor=80.0)}}})
    parts = shards.split(units, known, 3)
    assert [[unit.key for unit in part] for part in parts[:2]] == [["copy/-/cpu"], ["copy/-/sm_80"]]
    assert sorted(unit.key for part in parts for unit in part) == sorted(unit.key for unit in units)
    assert shards.split(units[::-1], known, 3)[2] == parts[2][::-1]  # whatever the order
    assert [len(part) for part in shards.split(units, known, 9)] == [1] * 6 + [0] * 3


@pytest.mark.parametrize(
    "text", ["4/3", "0/2", "x", "", "1/", "1/0", "-1/2", "1/2/3", "1/5000", "1.0/2", "²/3"]
)
def test_a_shard_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(plan.PlanError, match="wanted i/n with 1 <= i <= n"):
        Shard.parse(text)


@pytest.mark.parametrize("end", [KeyboardInterrupt, BuildError])
def test_a_merge_that_does_not_end_leaves_nothing(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: type[BaseException]
) -> None:
    parts, out = [yard.root / f"s{number}" for number in (1, 2, 3)], tmp_path / "out"
    copied_so_far: list[Path] = []

    def copy(source: Path, path: Path) -> None:
        if len(copied_so_far) == 5:
            raise end("in the middle")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
        copied_so_far.append(path)

    with monkeypatch.context() as patch:
        patch.setattr(merge.provenance, "copy", copy)
        with pytest.raises(end):
            merge.merge(parts, out)
    assert len(copied_so_far) == 5
    assert list(out.iterdir()) == []
    assert merge.merge(parts, out) == 12
    assert shipped(out) == shipped(yard.root / "whole")


def test_more_shards_than_units_are_empty_and_merge(yard: Yard, tmp_path: Path) -> None:
    few = replace(yard.options, request=replace(yard.options.request, kernels=("copy",), targets=("cpu",)))
    for number in (1, 2):
        assert (
            build.build(replace(few, out=tmp_path / str(number), shard=Shard(number, 2)), QUIET).failures
            == {}
        )
    assert merge.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "out") == 2


# Shards that do not belong together


def edit(folder: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Change the first line of an index, which keeps its form."""
    path = folder / "index.json"
    head, rest = path.read_text().split("\n", 1)
    meta = json.loads(head.rstrip(",") + "}")
    change(meta)
    path.write_text(json.dumps(meta)[:-1] + ",\n" + rest)


def _shard(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit(folder, lambda meta: meta["shard"].update(changes))  # type: ignore[attr-defined]


def _compiler(folder: Path) -> None:
    edit(folder, lambda meta: meta["compilers"].update(nvcc="12.9.1"))  # type: ignore[attr-defined]


def _artifact(folder: Path) -> None:
    next(p for p in folder.rglob("*.*") if p.suffix in (".so", ".fatbin")).write_bytes(b"other")


def _lost(folder: Path) -> None:
    next(folder.glob("src/**/*.c*")).unlink()


def _cut(folder: Path) -> None:
    path = folder / "index.json"
    path.write_bytes(path.read_bytes()[:-40])


def _emptied(folder: Path) -> None:
    (folder / "index.json").unlink()


def _nameless(folder: Path) -> None:
    edit(folder, lambda meta: meta.update(shard={"number": 1}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_shard(sources="0" * 64), "s3: was built from another manifest, request or generator than .*s1"),
        (_shard(split="0" * 64), "s3: was built of another split: its machine had another cost file"),
        (_shard(evidence="0" * 64), "s3: was built with other evidence than"),
        (_shard(tuning="0" * 64), "s3: was built with other selection tables than"),
        (_shard(of=4), "s3: was built of a build of another number of shards than"),
        (_shard(number=2), "s3: is shard 2, which .*s2 is, too"),
        (_shard(number=7), "s3: its index does not say which shard it is"),
        (_nameless, "s3: its index does not say which shard it is"),
        (_compiler, "s3: was compiled by nvcc 12.9.1, .* by 13.0"),
        (_artifact, "s3: is damaged: .* is not the file that was indexed"),
        (_lost, "s3: is damaged: .* is missing"),
        (_cut, "s3/index.json: its index is damaged: .*; build or download it again"),
        (_emptied, "s3/index.json: there is no index"),
    ],
)
def test_what_is_no_shard_of_the_build_is_refused(
    yard: Yard, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    parts = copied(yard, tmp_path)
    damage(parts[2])
    with pytest.raises(BuildError, match=message):
        merge.merge(parts, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_shard_is_wanted_once(yard: Yard, tmp_path: Path) -> None:
    one, two, three = (yard.root / f"s{number}" for number in (1, 2, 3))
    for given, message in (
        ([one, three], "of 3 shards 2 is missing"),
        ([two], "of 3 shards 1, 3 are missing"),
        ([one, two, two], "s2: is shard 2, which .*s2 is, too"),
        ([one, two, yard.root / "whole"], "whole: is a whole build, not a shard"),
    ):
        with pytest.raises(MergeError, match=message):
            merge.merge(given, tmp_path / "out")
    with pytest.raises(BuildError, match="is not empty"):
        merge.merge([one, two, three], yard.root / "whole")


def test_a_cell_that_two_shards_have_differently_is_refused(yard: Yard, tmp_path: Path) -> None:
    one, two, three = copied(yard, tmp_path)
    cells = [json.loads((part / "index.json").read_bytes()) for part in (one, two)]
    taken = cells[1]["cells"][0]
    for path, _ in index.claims(taken):
        (one / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(two / path, one / path)
    cells[0]["cells"].append({**taken, "evidence": ["emitted"]})
    sections = {section: cells[0][section] for section in index.SECTIONS}
    lines = index.lines(cells[0]["compilers"], sections, {"shard": cells[0]["shard"]})
    (one / "index.json").write_text("".join(lines))
    with pytest.raises(MergeError, match=f"cell {taken['key']}: differs between .*s1 and .*s2"):
        merge.merge([one, two, three], tmp_path / "out")


def test_shards_of_changed_sources_do_not_merge(yard: Yard, tmp_path: Path) -> None:
    toy.manifest(tmp_path / "m.yaml", {"a4": 32, "b4": 128}, extra=BUDGETS.format("50 MB"))
    other = replace(yard.options, manifest=tmp_path / "m.yaml", out=tmp_path / "s3", shard=Shard(3, 3))
    assert build.build(other, QUIET).failures == {}
    with pytest.raises(MergeError, match="s3: was built from another manifest, request or generator"):
        merge.merge([yard.root / "s1", yard.root / "s2", tmp_path / "s3"], tmp_path / "out")


# Launchers


def test_what_a_launcher_leaves_has_the_mode_of_a_shipped_file(yard: Yard, tmp_path: Path) -> None:
    cache = tmp_path / "sccache"
    cache.write_text(CACHE)
    cache.chmod(0o755)
    (tmp_path / "sccache.log").touch()
    said: list[str] = []
    made = replace(yard.options, out=yard.root / "cached", launcher=(str(cache),))
    assert build.build(made, Output(said.append, QUIET.progress)).failures == {}
    assert said == ["6 hits and 0 misses of the compile cache"]
    assert shipped(yard.root / "cached") == shipped(yard.root / "whole")
    assert {mode for mode, _ in shipped(yard.root / "cached").values()} == {0o644}
    assert not (yard.root / "cached" / costs.MEASURED).exists()  # a cache's time is not a compiler's


# Costs


def test_costs_are_recorded_by_kernel_target_and_kind(yard: Yard, tmp_path: Path) -> None:
    found = costs.collect([yard.root / "whole"])
    counts = {k: {t: {kind: row.count for kind, row in kinds.items()} for t, kinds in targets.items()}
              for k, targets in found.table.items()}  # fmt: skip
    assert counts == {
        "copy": {"cpu": {"baseline": 1, "emit": 1}, "sm_80": {"cuda": 1, "emit": 1}},
        "dequant": {"cpu": {"baseline": 2, "emit": 2}, "sm_80": {"cuda": 2, "emit": 2}},
    }
    rows = list(costs.compiles(found))
    assert len(rows) == 4
    assert all(row.wall > 0 and row.processor and row.megabytes and row.megabytes > 1 for row in rows)
    costs.write(tmp_path / "costs.json", found)
    read = costs.read(tmp_path / "costs.json")
    costs.write(tmp_path / "again.json", read)
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "costs.json").read_bytes()
    assert counts == {k: {t: {kind: row.count for kind, row in kinds.items()} for t, kinds in targets.items()}
                      for k, targets in read.table.items()}  # fmt: skip
    parts = costs.collect([yard.root / f"s{number}" for number in (1, 2, 3)])
    assert {k: sorted(v) for k, v in parts.table.items()} == {k: sorted(v) for k, v in found.table.items()}


def test_without_measurements_seconds_are_those_of_ninjas_log(yard: Yard, tmp_path: Path) -> None:
    folder = shutil.copytree(yard.root / "whole", tmp_path / "old")
    (folder / costs.MEASURED).unlink()
    row = costs.collect([folder]).table["dequant"]["cpu"]["baseline"]
    assert (row.count, row.processor, row.megabytes) == (2, None, None)
    assert row.seconds == row.wall > 0
    with pytest.raises(BuildError, match="holds no record of a compile"):
        costs.collect([tmp_path])
    with pytest.raises(index.ArtifactsError, match="is given twice; give each folder once"):
        costs.collect([folder, folder / ".." / folder.name])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"wootz_costs":2,"kernels":{}}',
        '{"wootz_costs":1}',
        '{"wootz_costs":1,"kernels":{"copy":{"cpu":{"baseline":[1,2]}}}}',
        '{"wootz_costs":1,"kernels":{"copy":{"cpu":{"baseline":[1,"x",1,1]}}}}',
        '{"wootz_costs":1,"kernels":{"copy":{"cpu":{"baseline":[0,1,1,1]}}}}',
        '{"wootz_costs":1,"kernels":{"copy":{"cpu":{"baseline":[1,-1,1,1]}}}}',
        '{"wootz_costs":1,"kernels":{"copy":{"cpu":{"baseline":[1,NaN,1,1]}}}}',
    ],
)
def test_what_is_no_cost_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "costs.json").write_text(text)
    with pytest.raises(BuildError, match=r"costs\.json: is no cost file"):
        costs.read(tmp_path / "costs.json")
    with pytest.raises(BuildError, match="cannot be read"):
        costs.read(tmp_path / "none.json")


def test_what_was_not_recorded_is_estimated_from_what_is_near() -> None:
    known = Costs({"gemm": {"sm_80": {"cutlass": Row(3, 9.0, 30.0, 2500.0), "stub": Row(3, 1.0)}}})
    assert known.task("gemm", "sm_80", "cutlass", "cutlass").milliseconds == 30_000
    assert known.task("gemm", "sm_90a", "cutlass", "cutlass").megabytes == 2500.0  # another target's
    assert known.task("gemm", "sm_80", "stub", "stub").milliseconds == 1000  # no processor time: the wall's
    assert known.task("copy", "sm_80", "cuda", "cuda").milliseconds == 1000 * costs.SECONDS["cuda"]


def test_the_longest_compile_is_the_first_of_the_graph(yard: Yard, tmp_path: Path) -> None:
    row = Row(1, 100.0, 90.0, 3000.0)
    costs.write(tmp_path / "c.json", Costs({"dequant": {"sm_80": {"cuda": row}}}))
    yard.build("ordered", costs=tmp_path / "c.json", shard=None)
    text = (yard.root / "ordered/build.ninja").read_text()
    built = [line.split(":")[0].split()[1] for line in text.splitlines() if line.startswith("build ")]
    assert built[:2] == ["cubin/dequant/a4/sm_80.cubin", "cubin/dequant/b4/sm_80.cubin"]
    assert shipped(yard.root / "ordered") == shipped(yard.root / "whole")


def test_a_build_of_many_machines_is_estimated(yard: Yard) -> None:
    emit, row = Row(1, 1.0, 1.0), Row(1, 50.0, 10.0, 900.0)
    targets = {"cpu": {"baseline": row, "emit": emit}, "sm_80": {"cuda": row, "emit": emit}}
    costs_ = Costs({"copy": targets, "dequant": targets})
    found = [simulate.estimate(yard.units(), costs_, n, 2, 64 << 30) for n in (1, 2, 4)]
    assert [each.seconds for each in found] == [33.0, 22.0, 11.0]  # six units, two at a time
    assert {each.work for each in found} == {66.0}
    assert [each.busy for each in found] == [1.0, 0.75, 0.75]
    assert {each.recorded for each in found} == {1.0}
    assert simulate.estimate(yard.units(), Costs({"copy": targets}), 1, 2, 64 << 30).recorded == 0.3333
    assert simulate.estimate(yard.units(), costs_, 1, 2, 1 << 30).seconds == 33.0  # one of each pool
    assert simulate.estimate(yard.units(), costs_, 1, 9, 1 << 30).seconds == 31.0


# Weights and budgets


def test_files_are_weighed_as_a_wheel_has_them(yard: Yard, tmp_path: Path) -> None:
    folder = yard.root / "whole"
    path = folder / "index.json"
    items = weights.weigh(folder.joinpath, index.read(path), path.read_bytes())
    assert {item.path: item.raw for item in items} == {
        p: len(data) for p, (_, data) in shipped(folder).items()
    }
    with zipfile.ZipFile(tmp_path / "real.zip", "w", zipfile.ZIP_DEFLATED) as made:
        for item in items:
            made.write(folder / item.path, item.path)
    end = 22  # bytes of the archive's last record
    assert weights.total(items).wheel == (tmp_path / "real.zip").stat().st_size - end
    for axis in ("kernel", "format", "target"):
        groups = weights.by(items, axis)
        assert sum(g.raw for g in groups.values()) == weights.total(items).raw - path.stat().st_size
    assert list(weights.by(items, "target")) == ["cpu", "sm_80"]  # the heaviest first


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("100 MB", 10**8), ("1.5GB", 1_500_000_000), ("64 MiB", 2**26), ("0 B", 0), ("7 KB", 7000)],
)
def test_sizes(text: str, bytes_: int) -> None:
    assert sizes.parse(text) == bytes_
    assert sizes.parse(sizes.show(bytes_)) == pytest.approx(bytes_, rel=0.05)


@pytest.mark.parametrize(
    "text", ["100", "MB", "-1 MB", "1e9 B", "100 mb", "1 TB", "1  MB", "", 100, None, "١ MB"]
)
def test_what_is_no_size(text: object) -> None:
    assert sizes.parse(text) is None


def test_a_build_over_its_budget_fails_and_names_what_weighs_most(yard: Yard, tmp_path: Path) -> None:
    folder = shutil.copytree(yard.root / "whole", tmp_path / "out")
    text = yard.options.manifest.read_text().replace(
        "wheel: 50 MB", "wheel: 2 KB, targets: {cpu: {raw: 100 B}}"
    )
    (tmp_path / "m.yaml").write_text(text)
    summary = build.build(replace(yard.options, manifest=tmp_path / "m.yaml", out=folder), QUIET)
    assert sum(row.compiled for row in summary.rows) == 0
    assert set(summary.failures) == {"budget of the wheel", "budget of cpu"}
    said = summary.failures["budget of the wheel"]
    assert "KB in a wheel, " in said
    assert " over 2.0 KB; most of it: cpu " in said
    assert ", sm_80 " in said
    assert "over 100 B; most of it: dequant " in summary.failures["budget of cpu"]
    assert not (folder / "index.json").exists()
    assert state.fresh(folder, "") is None


def test_budgets_of_shards_are_looked_at_when_they_are_merged(yard: Yard, tmp_path: Path) -> None:
    parts = copied(yard, tmp_path)
    for part in parts:
        edit(part, lambda meta: meta["shard"].update(budgets={"wheel": {"raw": "10 B"}}))  # type: ignore[attr-defined]
    with pytest.raises(MergeError, match=r"budget of the wheel: .* over 10 B"):
        merge.merge(parts, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{wheel: lots}", "budgets.wheel: is 'lots', wanted a size"),
        ("{wheel: 100}", "budgets.wheel: is 100, wanted a word or a mapping"),
        ("{targets: {cpu: {raw: 5 pounds}}}", "budgets.targets.cpu.raw: is '5 pounds', wanted a size"),
        ("{targets: {sm_81: 5 MB}}", "budgets.targets.sm_81: no target is named"),
        ("{targets: {cpu: {deflated: 5 MB}}}", "unknown key"),
        ("{weel: 5 MB}", "unknown key"),
        ("[5 MB]", "budgets: "),
    ],
)
def test_budgets_that_are_none_are_errors_with_a_line(
    yard: Yard, tmp_path: Path, section: str, message: str
) -> None:
    toy.manifest(tmp_path / "m.yaml", {"a4": 32}, extra=f"budgets: {section}\n")
    with pytest.raises(plan.reader.ManifestError, match=message):
        plan.load(tmp_path / "m.yaml")


def test_an_empty_section_is_no_budget(yard: Yard, tmp_path: Path) -> None:
    toy.manifest(tmp_path / "m.yaml", {"a4": 32}, extra="budgets:\n")
    assert overweight.check(plan.load(tmp_path / "m.yaml").budgets, tmp_path.joinpath, {}, []) == {}


# The command line


def test_the_commands(yard: Yard, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: object) -> tuple[int, str, str]:
        status = cli.main([str(word) for word in words])
        said = capsys.readouterr()
        return status, said.out, said.err

    whole, manifest = yard.root / "whole", yard.options.manifest
    status, out, _ = run("size", "--artifacts", whole, "--by", "kernel")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines() if line] == [
        "kernel",
        "dequant",
        "copy",
        "binaries",
        "sources",
        "index",
        "total",
    ]
    status, out, _ = run("size", "--artifacts", whole, "--json")
    assert list(json.loads(out)["groups"]) == ["cpu", "sm_80"]
    status, out, _ = run("costs", whole, "--out", tmp_path / "costs.json")
    assert (status, out) == (0, f"{tmp_path}/costs.json: 6 compiles, 6 of them with memory\n")
    plain = ["simulate", "--manifest", manifest, "--targets", "cpu", "--costs", tmp_path / "costs.json"]
    status, out, _ = run(*plain, "--machines", 1, 2, "-j", 1, "--memory", "8 GB", "--json")
    assert [row["machines"] for row in json.loads(out)["rows"]] == [1, 2]
    assert run(*plain, "--memory", "much")[0] == 2
    assert run("merge", *(yard.root / f"s{n}" for n in (1, 2, 3)), "--out", tmp_path / "m")[0] == 0
    status, _, err = run("build", "--manifest", manifest, "--out", tmp_path / "x", "--shard", "4/3")
    assert status == 2
    assert "--shard 4/3: wanted i/n" in err
    assert not (tmp_path / "x").exists()
    with pytest.raises(SystemExit):
        run("build", "--manifest", manifest, "--out", whole, "--tuning", tmp_path / "NOPE")
    assert "NOPE: there is no such folder" in capsys.readouterr().err
    status, _, err = run("build", "--manifest", manifest, "--out", whole, "--prebuilt", "--shard", "1/2")
    assert status == 2
    assert "--prebuilt takes a whole build" in err
