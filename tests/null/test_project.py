"""A project of one's own: manifests that extend others, and everything that may be wrong with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gen.cli import main
from gen.emit import emission
from gen.manifest.reader import Manifest, ManifestError
from gen.manifest.schema import load_schema
from gen.plan import cells as plan
from gen.project import extends

BASE = """\
version: 1
targets:
  cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}
formats:
  int4: {element: int4, block: 32, scale: f16}
kernels:
  copy: {dtypes: [f16]}
  qgemv: {dtypes: [f16], formats: all}
profiles:
  default: {}
  small: {kernels: [copy]}
  whole: {}
skips:
  - {kernel: qgemv, dtype: f16, format: int4, reason: for a reason}
"""
DSL = """\
from wootz.gen.api import Family, Operand, elementwise

def variants(fmt, dtype, target, options):
    yield elementwise(("x",), dtype, target, lambda b, values: values[0] * 2.0, options)

FAMILY = Family((Operand("x", "array", ("n",)),), Operand("y", "array", ("n",)), variants, flat=True)
"""
CHECK = (
    "from wootz.checking import flat_shapes as shapes, flat_operands as operands\ndef expect(o, d, p): ...\n"
)
MINE = "  mine: {file: kernels/mine.py, check: checks/mine.py, dtypes: [f32]}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with one kernel in the DSL, beside a base."""
    for name, text in (("base.yaml", BASE), ("kernels/mine.py", DSL), ("checks/mine.py", CHECK)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def manifest(folder: Path, more: str = "", kernels: str = MINE, extends: str = "base.yaml") -> Path:
    path = folder / "mine.yaml"
    path.write_text(f"version: 1\nextends: {extends}\n" + (f"kernels:\n{kernels}" if kernels else "") + more)
    return path


def loaded(folder: Path, more: str = "", kernels: str = MINE) -> Manifest:
    return plan.load(manifest(folder, more, kernels))


def wrong(path: Path) -> list[str]:
    """What is said of a manifest, without the folder."""
    with pytest.raises(ManifestError) as caught:
        plan.load(path)
    return [str(m).replace(f"{path.parent}/", "") for m in caught.value.messages]


# ---- extends


def test_names_come_together_and_default_has_the_own_kernels_only(folder: Path) -> None:
    found = loaded(folder, "formats:\n  int5: {element: int5, block: 32, scale: f16}\n")
    assert list(found.kernels) == ["copy", "qgemv", "mine"]
    assert list(found.formats) == ["int4", "int5"]
    assert list(found.targets) == ["cpu"]
    assert found.profiles["default"].kernels == ("mine",)
    assert found.profiles["small"].kernels == ("copy",)
    assert found.profiles["whole"].kernels == ("copy", "qgemv")
    assert [s.kernel for s in found.skips] == ["qgemv"]
    assert [Path(f).name for f in found.files] == ["mine.yaml", "base.yaml", "mine.py"] or len(
        found.files
    ) == 4


def test_a_profile_that_says_all_has_all(folder: Path) -> None:
    found = loaded(folder, "profiles: {default: {kernels: all}, own: {formats: []}}\n")
    assert found.profiles["default"].kernels == "all"
    assert found.profiles["own"].kernels == ("mine",)


def test_an_override_replaces_the_whole_entry(folder: Path) -> None:
    own = "  copy: {dtypes: [f32]}\n" + MINE
    found = loaded(folder, "override: [kernels.copy, skips]\nskips: []\n", own)
    assert found.kernels["copy"].dtypes == ("f32",)
    assert found.skips == ()


def test_a_kernel_of_wootz_may_be_overridden_by_a_file(folder: Path) -> None:
    found = loaded(folder, "override: [kernels.copy]\n", MINE.replace("mine:", "copy:"))
    assert found.kernels["copy"].own is not None


def test_ours_can_be_extended(folder: Path) -> None:
    found = plan.load(manifest(folder, extends="wootz"))
    assert len(found.kernels) > 60
    assert found.profiles["default"].kernels == ("mine",)
    assert "release" in found.profiles


def test_extensions_go_on(folder: Path) -> None:
    manifest(folder)
    (folder / "third.yaml").write_text("version: 1\nextends: mine.yaml\n")
    found = plan.load(folder / "third.yaml")
    assert list(found.kernels) == ["copy", "qgemv", "mine"]
    assert found.profiles["default"].kernels == ()


@pytest.mark.parametrize(
    ("more", "kernels", "said"),
    [
        (
            "",
            "  copy: {dtypes: [f32]}\n",
            (
                "mine.yaml:4: kernels.copy: base.yaml:7 has a kernel of this name: "
                "choose another name, or list kernels.copy under override"
            ),
        ),
        (
            "formats: {int4: {element: int4, block: 64, scale: f16}}\n",
            MINE,
            (
                "mine.yaml:5: formats.int4: "
                "base.yaml:5 has a format of this name: choose another name, or list "
                "formats.int4 under override"
            ),
        ),
        (
            "profiles: {small: {}}\n",
            MINE,
            (
                "mine.yaml:5: profiles.small: base.yaml:11 has a profile of this name: "
                "choose another name, or list profiles.small under override"
            ),
        ),
        (
            "override: [kernels.cpoy]\n",
            MINE,
            ("mine.yaml:5: override[0]: 'kernels.cpoy' is not in base.yaml; did you mean 'kernels.copy'?"),
        ),
        (
            "override: [kernels.copy]\n",
            MINE,
            (
                "mine.yaml:5: override[0]: 'kernels.copy' is not in this manifest: "
                "leave it out, or write the entry"
            ),
        ),
        (
            "override: kernels.copy\n",
            MINE,
            ("mine.yaml:5: override: is 'kernels.copy', wanted a list of section.name, as kernels.copy"),
        ),
        (
            "profiles: {default: {kernels: [mien]}}\n",
            MINE,
            ("mine.yaml:5: profiles.default.kernels[0]: no kernel is named 'mien'; did you mean 'mine'?"),
        ),
        ("formatz: {}\n", MINE, "mine.yaml:5: formatz: unknown key 'formatz'; did you mean 'formats'?"),
    ],
)
def test_what_is_wrong_with_an_extension(folder: Path, more: str, kernels: str, said: str) -> None:
    assert wrong(manifest(folder, more, kernels)) == [said]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("bsae.yaml", "no such manifest: 'bsae.yaml'; did you mean 'base.yaml'?"),
        ("wotz", "no such manifest: 'wotz'; did you mean 'wootz'?"),
        ("[a]", "is a list, wanted wootz or the path of a manifest"),
        ("mine.yaml", "goes in a circle: mine.yaml -> mine.yaml"),
    ],
)
def test_what_extends_may_not_be(folder: Path, given: str, said: str) -> None:
    assert wrong(manifest(folder, extends=given)) == [f"mine.yaml:2: extends: {said}"]


def test_a_longer_circle_is_refused(folder: Path) -> None:
    (folder / "base.yaml").write_text("version: 1\nextends: mine.yaml\n")
    assert wrong(manifest(folder)) == [
        "base.yaml:2: extends: goes in a circle: mine.yaml -> base.yaml -> mine.yaml"
    ]


def test_an_error_of_the_base_names_the_base(folder: Path) -> None:
    (folder / "base.yaml").write_text(BASE.replace("dtypes: [f16], formats", "dtypes: [f61], formats"))
    (said,) = wrong(manifest(folder))
    assert said.startswith("base.yaml:8: kernels.qgemv.dtypes[0]: 'f61' is not known here")


def test_override_needs_extends(folder: Path) -> None:
    (folder / "base.yaml").write_text(BASE + "override: [kernels.copy]\n")
    assert wrong(folder / "base.yaml") == ["base.yaml:15: override: goes with extends, which is not here"]


def test_the_published_schema_takes_a_project(folder: Path) -> None:
    validator = Draft202012Validator(load_schema())
    project = {
        "version": 1,
        "extends": "wootz",
        "kernels": {"mine": {"dtypes": ["f32"], "file": "a.py", "check": "b.py"}},
    }
    assert not list(validator.iter_errors(project))
    assert list(validator.iter_errors({**project, "override": ["copy"]}))
    assert list(validator.iter_errors({"version": 1}))
    assert extends.SHIPPED.is_file()


# ---- kernels from a project's own files


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        (
            "  mine: {file: kernels/mien.py, check: checks/mine.py, dtypes: [f32]}\n",
            "kernels.mine.file: 'kernels/mien.py': no such file in FOLDER; did you mean 'mine.py'?",
        ),
        (
            "  mine: {file: ../mine.py, check: checks/mine.py, dtypes: [f32]}\n",
            (
                "kernels.mine.file: '../mine.py' is outside of the manifest's folder FOLDER: "
                "give a path below it"
            ),
        ),
        (
            "  mine: {file: /etc/passwd, check: checks/mine.py, dtypes: [f32]}\n",
            (
                "kernels.mine.file: '/etc/passwd' is outside of the manifest's folder FOLDER: "
                "give a path below it"
            ),
        ),
        (
            "  mine: {file: base.yaml, check: checks/mine.py, dtypes: [f32]}\n",
            "kernels.mine.file: 'base.yaml' ends in '.yaml', wanted .py",
        ),
        (
            "  mine: {file: kernels/mine.py, dtypes: [f32]}\n",
            "kernels.mine.file: file goes with check, which is not here",
        ),
        (
            "  softmax: {file: kernels/mine.py, check: checks/mine.py, dtypes: [f32]}\n",
            (
                "kernels.softmax: is a kernel of wootz: choose another name, or extend wootz and "
                "list kernels.softmax "
                "under override"
            ),
        ),
        (
            "  mine: {check: checks/mine.py, dtypes: [f32]}\n",
            (
                "kernels.mine: no such kernel; did you mean 'binary'?|kernels.mine: no such "
                "kernel; a kernel of your own "
                "names its file, or source"
            ),
        ),
        (
            "  mine: {file: kernels/mine.py, check: checks/mine.py, dtypes: [f32], options: {op: [a]}}\n",
            "kernels.mine.options.op: no option of mine",
        ),
        (
            "  mine: {file: kernels/mine.py, check: checks/mine.py, dtypes: [i8]}\n",
            (
                "kernels.mine: no cell comes of it: mine takes f16, bf16, f32; got i8; change "
                "its lists, or skip it with "
                "a reason"
            ),
        ),
    ],
)
def test_what_is_wrong_with_an_entry(folder: Path, kernels: str, said: str) -> None:
    found = [s.replace(str(folder), "FOLDER") for s in wrong(manifest(folder, kernels=kernels))]
    assert found[0].removeprefix("mine.yaml:4: ") in said.split("|")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def variants(fmt,", "def variants(fmt", "kernels/mine.py:3: reading the file: SyntaxError: "),
        (
            "from wootz.gen.api",
            "from wootz.gen.apis",
            "kernels/mine.py:1: reading the file: ModuleNotFoundError: ",
        ),
        (
            "Operand, elementwise",
            "Operand, elementwize",
            "kernels/mine.py:1: reading the file: ImportError: cannot ",
        ),
        (
            "FAMILY =",
            "FAMILLY =",
            (
                "kernels/mine.py: has no FAMILY; a kernel file declares FAMILY = Family(...); did "
                "you mean 'FAMILLY'?"
            ),
        ),
        ("FAMILY = Family(", "FAMILY = dict(a=", "kernels/mine.py:6: reading the file: SyntaxError: "),
        (
            "(fmt, dtype, target, options):",
            "(fmt, dtype, target):",
            (
                "kernels/mine.py:3: variants: wanted a "
                "function(fmt, dtype, target, options): too many positional arguments"
            ),
        ),
        (
            "variants, flat",
            "None, flat",
            ("kernels/mine.py: variants is None, wanted a function(fmt, dtype, target, options)"),
        ),
        (
            'Operand("y", "array", ("n",))',
            'Operand("y", "array", ("m",))',
            ("kernels/mine.py: FAMILY: y has the axis m, which no operand binds"),
        ),
        (
            'Operand("x",',
            'Operand("stream",',
            ("kernels/mine.py: FAMILY: stream is a keyword of every call: name it otherwise"),
        ),
        (
            'Operand("x", "array"',
            'Operand("x", "arry"',
            ("kernels/mine.py: FAMILY: x is of kind 'arry'; did you mean 'array'?"),
        ),
        (
            "FAMILY = ",
            "import sys; sys.exit(3)\nFAMILY = ",
            "kernels/mine.py:6: reading the file: SystemExit: 3",
        ),
    ],
)
def test_what_is_wrong_with_a_kernel_file(folder: Path, old: str, new: str, said: str) -> None:
    assert old in DSL
    (folder / "kernels/mine.py").write_text(DSL.replace(old, new))
    (found,) = wrong(manifest(folder))
    assert found.startswith(f"mine.yaml:4: kernels.mine.file: {said}")


def emitted(folder: Path) -> str:
    found = loaded(folder)
    (unit,) = plan.units(found, plan.select(found, plan.Request()))
    return emission.render(unit)[0]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOOTZ_KERNEL_SECONDS", "0.3")


ENDLESS = "while True: pass"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "lambda b, values: values[0] * 2.0",
            "lambda b, values: values[1]",
            "mine/-/cpu: FOLDER/kernels/mine.py:4: build: IndexError: list index out of range",
        ),
        (
            "lambda b, values: values[0] * 2.0",
            "lambda b, values: b.op('exq', values[0])",
            "mine/-/cpu: FOLDER/kernels/mine.py:4: build: KeyError: 'exq'",
        ),
        (
            "    yield elementwise",
            "    1 / 0; yield elementwise",
            "mine/-/cpu: FOLDER/kernels/mine.py:4: variants: ZeroDivisionError: division by zero",
        ),
        (
            "    yield elementwise",
            "    return elementwise",
            (
                "mine/-/cpu: FOLDER/kernels/mine.py: variants gave a "
                "Variant, wanted Variants: yield them, or give a list"
            ),
        ),
        (
            "    yield elementwise",
            "    elementwise",
            (
                "mine/-/cpu: FOLDER/kernels/mine.py: variants gave None, wanted "
                "Variants: yield them, or give a list"
            ),
        ),
        (
            "    yield elementwise",
            "    yield str; elementwise",
            ("mine/-/cpu: FOLDER/kernels/mine.py: variants gave a type among its entries, wanted Variants"),
        ),
        (
            "    yield elementwise",
            (
                "    while True:\n        try:\n            1 / 0\n        except Exception: pass\n"
                "    yield elementwise"
            ),
            (
                "mine/-/cpu: FOLDER/kernels/mine.py:{} variants did not end within 0.3 seconds; "
                "WOOTZ_KERNEL_SECONDS sets the limit"
            ),
        ),
        (
            "lambda b, values: values[0] * 2.0",
            "lambda b, values: [1 for i in iter(int, 1)]",
            (
                "mine/-/cpu: FOLDER/kernels/mine.py:{} build did not end within 0.3 seconds; "
                "WOOTZ_KERNEL_SECONDS sets "
                "the limit"
            ),
        ),
    ],
)
@pytest.mark.usefixtures("quick")
def test_what_goes_wrong_while_a_kernel_is_built(folder: Path, old: str, new: str, said: str) -> None:
    assert old in DSL
    (folder / "kernels/mine.py").write_text(DSL.replace(old, new))
    with pytest.raises(emission.BuildError) as caught:
        emitted(folder)
    before, _, after = said.replace("FOLDER", str(folder)).partition("{}")
    assert str(caught.value).startswith(before)
    assert str(caught.value).endswith(after)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("quick")
def test_a_file_that_never_ends_being_read(folder: Path) -> None:
    (folder / "kernels/mine.py").write_text(f"x = 1\n{ENDLESS}\n")
    (said,) = wrong(manifest(folder))
    assert said.startswith(
        "mine.yaml:4: kernels.mine.file: kernels/mine.py:2: reading the file did not end within"
    )


def test_the_limit_is_a_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOOTZ_KERNEL_SECONDS", "soon")
    (said,) = wrong(manifest(folder))
    assert said.endswith("WOOTZ_KERNEL_SECONDS=soon: wanted a number of seconds above 0")


def test_files_beside_a_kernel_may_be_imported_and_count(folder: Path) -> None:
    (folder / "kernels/_by.py").write_text("FACTOR = 2.0\n")
    text = DSL.replace("2.0", "FACTOR")
    (folder / "kernels/mine.py").write_text(f"from ._by import FACTOR\n{text}")
    first = loaded(folder).kernels["mine"].own
    assert "* 2.0f" in emitted(folder)
    (folder / "kernels/_by.py").write_text("FACTOR = 3.0\n")
    assert "* 3.0f" in emitted(folder)
    assert loaded(folder).kernels["mine"].own != first
    assert not list(folder.rglob("*.pyc"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def expect(:\n", "checks/mine.py:1: SyntaxError: "),
        (CHECK.replace("expect", "expects"), "checks/mine.py has no expect; did you mean 'expects'?"),
        (CHECK + "from ._by import x\n", "checks/mine.py:3: imports ._by: a check travels alone"),
        (CHECK + "def f():\n    import by.it\n", "checks/mine.py:4: imports by.it: a check travels alone"),
    ],
)
def test_what_is_wrong_with_a_check(folder: Path, text: str, said: str) -> None:
    (folder / "checks/mine.py").write_text(text)
    (folder / "checks/by.py").write_text("")
    (found,) = wrong(manifest(folder))
    assert found.startswith(f"mine.yaml:4: kernels.mine.check: {said}")


def test_the_index_of_a_kernel_names_its_check(folder: Path) -> None:
    from gen.emit import text as emit

    record = emit.kernel_record(loaded(folder).kernels["mine"])
    assert json.loads(json.dumps(record["check"]))["file"] == "checks/mine.py"
    assert "check" not in emit.kernel_record(loaded(folder).kernels["copy"])


@pytest.mark.usefixtures("quick")
def test_the_limit_holds_in_worker_processes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emission, "_WORTH_A_POOL", 1)
    found = loaded(folder)
    units = list(plan.units(found, plan.select(found, plan.Request())))
    assert [made.text for made in emission.render_all(units, 2)] == [emission.render(units[0])[0]]
    (folder / "kernels/mine.py").write_text(DSL.replace("    yield", f"    {ENDLESS}\n    yield"))
    found = loaded(folder)
    units = list(plan.units(found, plan.select(found, plan.Request())))
    with pytest.raises(emission.BuildError, match=r"mine\.py:4: variants did not end within 0\.3 seconds"):
        list(emission.render_all(units, 2))


def test_a_build_remembers_every_file_that_it_is_made_of(folder: Path) -> None:
    assert main(["build", "--manifest", str(manifest(folder)), "--out", str(folder / "out")]) == 0
    stamp = json.loads((folder / "out/.wootz/stamp.json").read_text())
    files = {path for path, *_ in stamp["files"]}
    names = ("base.yaml", "kernels/mine.py", "checks/mine.py")
    assert {str(folder / name) for name in names} <= files
    assert "checks/mine.py" in files


def test_a_check_goes_when_its_kernel_does(folder: Path) -> None:
    out = ["--out", str(folder / "out")]
    assert main(["generate", "--manifest", str(manifest(folder)), *out]) == 0
    assert (folder / "out/checks/mine.py").is_file()
    assert main(["generate", "--manifest", str(folder / "base.yaml"), "--profile", "small", *out]) == 0
    assert not (folder / "out/checks").exists()


def test_a_kernel_file_imports_only_what_is_beside_it(folder: Path) -> None:
    (folder / "kernels/deeper").mkdir()
    (folder / "kernels/deeper/more.py").write_text("FACTOR = 2.0\n")
    (folder / "kernels/mine.py").write_text(f"from .deeper.more import FACTOR\n{DSL}")
    (said,) = wrong(manifest(folder))
    assert "a kernel file imports .deeper" in said


def test_a_prebuilt_folder_with_another_check_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["build", "--manifest", str(manifest(folder)), "--out", str(folder / "out")]
    assert main(command) == 0
    assert main([*command, "--prebuilt"]) == 0
    (folder / "checks/mine.py").write_text(CHECK + "# another\n")
    assert main([*command, "--prebuilt"]) == 1
    assert "mine/-/cpu: has another check" in capsys.readouterr().err
