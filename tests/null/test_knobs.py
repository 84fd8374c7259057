"""Knobs: declared once with their trade-offs, built where they are asked for, chosen by a call, their
defaults without a word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import wootz
from wootz import errors

from gen.emit import emission
from gen.manifest.reader import ManifestError
from gen.plan import cells as plan
from gen.variants import family
from tests.null import loader_tools as tools

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = plan.load(ROOT / "kernels.yaml")


def units(profile: str = "default", knobs: Sequence[str] = (), kernel: str = "softmax") -> list[plan.Unit]:
    request = plan.Request(profile, targets=("cpu",), kernels=(kernel,), knobs=tuple(knobs))
    return list(plan.units(MANIFEST, plan.select(MANIFEST, request)))


def keys(units: Sequence[plan.Unit]) -> set[str]:
    return {cell.key.partition("/")[0] for unit in units for cell in unit.jobs}


# ---- the plan


def test_values_are_built_where_they_are_asked_for() -> None:
    assert keys(units()) == keys(units("release")) == {"softmax"}
    assert keys(units("knobs")) == {"softmax", "softmax.fast"}
    assert keys(units(knobs=["math=*"])) == {"softmax", "softmax.fast"}
    assert keys(units(knobs=["math=precise"])) == keys(units("knobs", ["load_width=w1"])) == {"softmax"}
    assert keys(units(kernel="copy", knobs=["load_width=w1"])) == {"copy", "copy.w1"}
    with pytest.raises(
        plan.PlanError, match="knob 'math=fats': not in the manifest; did you mean 'math=fast'"
    ):
        units(knobs=["math=fats"])


def test_no_profile_but_one_asks_for_a_knob() -> None:
    assert [name for name, profile in MANIFEST.profiles.items() if profile.knobs] == ["knobs"]


def test_a_default_is_the_same_entry_whatever_is_built_beside_it() -> None:
    (plain,), (tuned,) = units(), units("knobs")
    text, entries = emission.render(plain)
    whole, more = emission.render(tuned)
    assert [entry for entry in more if not entry["options"]] == list(entries)
    body = text[text.index('extern "C"') :].split('extern "C"')[1:]
    assert all(part.strip() in whole for part in body)
    assert {tuple(entry["options"].items()) for entry in more} == {(), (("math", "fast"),)}


def test_an_option_of_no_effect_is_refused_by_name() -> None:
    (unit,) = units("knobs", kernel="reduce")
    reasons = {cell.reason for cell in unit.cells if cell.state == plan.REFUSED}
    assert "max adds nothing up: accumulation is for sum, mean" in reasons
    (unit,) = units("knobs", kernel="unary")
    assert any(
        cell.key.startswith("unary.abs.fast/") and "no exponential" in cell.reason for cell in unit.cells
    )


# ---- the manifest


def test_every_knob_says_what_it_trades() -> None:
    for knob in MANIFEST.knobs.values():
        assert knob.values[knob.default] == ""
        assert all(len(trade) > 20 for value, trade in knob.values.items() if value != knob.default)
        users = [k for k in MANIFEST.kernels.values() if knob.name in k.knobs]
        assert users, f"no kernel has the knob {knob.name}"
        assert {v for k in users for v in k.knobs[knob.name]} == set(knob.values)


def test_the_chapter_has_every_knob() -> None:
    chapter = (ROOT / "docs/kernels.md").read_text().partition("\n## Knobs\n")[2].partition("\n## ")[0]
    rows = [line for line in chapter.splitlines() if line.startswith("| `")]
    for knob in MANIFEST.knobs.values():
        (row,) = (line for line in rows if line.startswith(f"| `{knob.name}` | `{knob.default}`"))
        users = [k.name for k in MANIFEST.kernels.values() if knob.name in k.knobs]
        assert all(f"`{word}`" in row for word in (*knob.values, *users)), row
    assert len(rows) == len(MANIFEST.knobs)


def test_kernels_and_manifest_agree_on_defaults() -> None:
    for name in family.known():
        for knob, values in family.family(name).knobs.items():
            assert values[0] == MANIFEST.knobs[knob].default, name
            assert set(values) <= set(MANIFEST.knobs[knob].values), name


TEMPLATE = """\
version: 1
targets: {{cpu: {{backend: cpu, isa: [baseline], features: [f16]}}}}
knobs:
  math: {{default: precise, values: {{fast: a trade-off in words}}}}
  load_width: {{default: w4, values: {values}}}
kernels: {{{kernel}}}
profiles: {{default: {{knobs: {asked}}}}}
"""
WIDTHS = "{w2: half of the default, w3: no kernel has it}"


@pytest.mark.parametrize(
    ("kernel", "asked", "values", "wanted"),
    [
        ("softmax: {dtypes: [f32], knobs: {math: [fats]}}", "all", WIDTHS,
         "kernels.softmax.knobs.math[0]: 'fats' is no value of math; did you mean 'fast'?"),
        ("softmax: {dtypes: [f32], knobs: {math: [precise]}}", "all", WIDTHS,
         "kernels.softmax.knobs.math[0]: 'precise' is the default, which is always there"),
        ("softmax: {dtypes: [f32], knobs: {mth: [fast]}}", "all", WIDTHS,
         "kernels.softmax.knobs.mth: no knob is named 'mth'; did you mean 'math'?"),
        ("copy: {dtypes: [f32], knobs: {math: [fast]}}", "all", WIDTHS,
         "kernels.copy.knobs.math: copy has no such knob"),
        ("copy: {dtypes: [f32], knobs: {load_width: [w3]}}", "all", WIDTHS,
         "kernels.copy.knobs.load_width: copy takes w4, w2, w1; got w3"),
        ("copy: {dtypes: [f32], knobs: {load_width: [w2, w2]}}", "all", WIDTHS, "'w2' is listed twice"),
        ("'softmax': {dtypes: [f32]}", "[math=slow]", WIDTHS,
         "profiles.default.knobs[0]: no value of a knob is 'math=slow'"),
        ("'softmax': {dtypes: [f32]}", "all", "{w4: a value and the default}",
         "knobs.load_width.values.w4: is the default: it has no trade-off"),
        ("'softmax': {dtypes: [f32]}", "all", "{w-2: this is no identifier}",
         "knobs.load_width.values.w-2: "),
        ("binary: {dtypes: [f32], options: {op: [add]}, knobs: {load_width: [add]}}", "all",
         "{add: one that an option has too}",
         "kernels.binary.knobs.load_width[0]: 'add' is a value of the option op, too"),
        ("unary: {dtypes: [f32], options: {op: [abs]}, knobs: {math: [fast]}}", "all", WIDTHS,
         "kernels.unary.knobs.math[0]: no cell comes of fast: abs has no exponential"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(tmp_path: Path, kernel: str, asked: str, values: str, wanted: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(TEMPLATE.format(kernel=kernel, asked=asked, values=values))
    with pytest.raises(ManifestError) as caught:
        plan.load(path)
    assert wanted in str(caught.value)


# ---- a call


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    folder = tools.Folder(tmp_path_factory.mktemp("knobs"))
    (row,) = (row for row in folder.kernels if row["key"] == "copy")
    row["knobs"] = {"load_width": "w4", "math": "precise"}
    files = [folder.file("cpu/kernels.so", tools.image(), "baseline")]
    folder.cell("copy", "-", "f16", "cpu", files)
    more = {"options": {"load_width": "w1"}, "entries": tools.ENTRIES["copy"]}
    folder.cell("copy.w1", "-", "f16", "cpu", files, **more)
    return wootz.load(folder.write())


def test_a_call_names_a_value_or_takes_the_default(library: wootz.Library) -> None:
    assert library.kernel("copy", dtype="f16").name == "copy/-/f16"
    assert library.kernel("copy", dtype="f16", load_width="w4", math="precise").name == "copy/-/f16"
    assert library.kernel("copy", dtype="f16", load_width="w1").name == "copy.w1/-/f16"
    x = tools.random(8).astype("f2")
    assert (library.kernel("copy", dtype="f16", load_width="w1")(x) == x).all()
    plan = library.plan("copy", device="cpu", dtype="f16", n=8, load_width="w1")
    assert (plan(x) == x).all()


def test_values_that_are_not_there(library: wootz.Library) -> None:
    with pytest.raises(errors.NoKernelError, match=r"copy has no load_width='w3'; known: w4, w1"):
        library.kernel("copy", dtype="f16", load_width="w3")
    with pytest.raises(errors.NoKernelError, match=r"copy has no math='fast'; known: precise"):
        library.kernel("copy", dtype="f16", math="fast")
    with pytest.raises(errors.ArgumentError, match=r"copy has no option 'maths'; did you mean 'math'\?; its"):
        library.kernel("copy", dtype="f16", maths="fast")
