"""`wootz new`, as a new user would: a project, its wheel, and calls of it where there is no compiler."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import yaml
from test_readme import block, section
from wheel_tools import ROOT, Clean, Wheel

from gen.cli import main
from gen.project import scaffold
from gen.toolchain import nvcc

NAME = PACKAGE = "acme"
TITLE = "Your own kernels"
USE = f"""
import json, numpy as np, wootz
from wootz import verify
ours, theirs = wootz.load(), wootz.load("{NAME}")
x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
assert np.array_equal(theirs.kernel("axpby")(x, y, a=2.0, b=-1.0), 2 * x - 1)
assert np.array_equal(ours.kernel("copy", dtype="f32")(x), x)
rows = [[row.cell, row.passed, row.message] for row in verify.verify(theirs, "cpu")]
print(json.dumps({{"rows": rows, "targets": [row["key"] for row in theirs.targets]}}))
"""


def generate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command of this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gen", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def done(*arguments: str | Path) -> str:
    made = generate(*arguments)
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.fixture(scope="module")
def chapter(tmp_path_factory: pytest.TempPathFactory, clean: Clean) -> tuple[Path, str]:
    """The folder in which the commands of docs/projects.md were run, `verify` in the environment that has no
    compiler; and what they printed."""
    folder = tmp_path_factory.mktemp("a new user")
    tools = folder / "bin"
    tools.mkdir()
    generator = f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m gen "$@"'
    choice = f'case "$1" in verify) exec "{clean.command}" "$@";; *) {generator};; esac'
    (tools / "wootz").write_text(f"#!/bin/sh\n{choice}\n")
    (tools / "wootz").chmod(0o755)
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    made = subprocess.run(
        ["bash", "-ec", block(TITLE, "sh")], cwd=folder, env={**os.environ, "PATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return folder, made.stdout


@pytest.fixture(scope="module")
def project(chapter: tuple[Path, str]) -> Path:
    return chapter[0] / NAME


@pytest.fixture(scope="module")
def targets() -> list[str]:
    return ["cpu", "sm_90a"] if nvcc.nvcc_candidates() else ["cpu"]


@pytest.fixture(scope="module")
def installed(project: Path, targets: list[str], clean: Clean) -> Path:
    """A folder in which the project's wheel is installed, for a Python that has wootz."""
    out, dist, site = (project / "build" / each for each in ("artifacts", "dist", "site"))
    manifest = ("--manifest", project / "kernels.yaml")
    done("build", *manifest, "--targets", *targets, "--out", out, "--jobs", "2")
    done("pack", "--artifacts", out, "--name", NAME, "--version", "0.1.0", "--out", dist)
    (made,) = dist.glob("*.whl")
    pip = [str(clean.folder / "bin/python"), "-m", "pip", "install", "-q", "--no-deps", "--target"]
    subprocess.run([*pip, str(site), str(made)], check=True)
    return site


def test_it_is_called_and_verified_where_there_is_no_compiler(
    installed: Path, targets: list[str], clean: Clean
) -> None:
    found = json.loads(clean.python(USE, PYTHONPATH=str(installed)))
    cells = [f"softsign/-/{dtype}/cpu" for dtype in ("f16", "f32")]
    assert [row[0] for row in found["rows"]] == ["axpby/-/f32/cpu", *cells]
    assert [row for row in found["rows"] if not row[1]] == []
    assert found["targets"] == targets


def test_verify_finds_it_by_name(installed: Path, clean: Clean) -> None:
    done = clean.run(clean.command, "verify", "--artifacts", NAME, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "3 passed, 0 failed"


def test_its_own_tests_pass(project: Path, installed: Path, clean: Clean) -> None:
    (packages,) = clean.folder.glob("lib/python*/site-packages")
    path = os.pathsep.join(map(str, (installed, packages)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(project)]
    environment = {**os.environ, "PYTHONPATH": path}
    made = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=project)
    assert made.returncode == 0, made.stdout


@pytest.mark.slow
def test_its_readme_from_an_empty_environment(wheel: Wheel, tmp_path: Path) -> None:
    """Both ways to a wheel, each command as it stands there."""
    project, environment = tmp_path / NAME, tmp_path / "environment"
    done("new", NAME, "--out", project)
    blocks = re.findall(r"```sh\n(.*?)```", (project / "README.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 2
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WOOTZ_", "PYTHON"))}
    kept |= {"PATH": os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])}
    for commands in blocks:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        made = subprocess.run(
            ["bash", "-ec", commands], cwd=project, env={**kept, "PIP_FIND_LINKS": str(wheel.path.parent)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stdout + made.stderr
        assert "2 passed" in made.stdout.splitlines()[-1]


def test_a_second_project_is_not_written_over_the_first(project: Path) -> None:
    made = generate("new", NAME, "--out", project)
    assert made.returncode == 1
    assert "is not empty" in made.stderr
    assert len(made.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a/b", "'a/b' is no name of a distribution"),
        ("a.b", "'a.b': a dot leads to a part of a library"),
        ("../a", "'../a' is no name of a distribution"),
        ("numpy", "'numpy' would make the package numpy, which is taken"),
        ("wootz", "'wootz' would make the package wootz, which is taken"),
        ("1st", "'1st' would make the package 1st, which is no name in Python"),
    ],
)
def test_a_bad_name_is_refused(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", name, "--out", str(tmp_path / "project")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "project").exists()


def test_the_template_is_in_the_wheel(wheel: Wheel) -> None:
    here = {
        f"wootz/gen/project/template/{p.relative_to(scaffold.TEMPLATE)}"
        for p in scaffold.TEMPLATE.rglob("*.in")
    }
    assert here
    assert here <= set(wheel.files)


def test_extending_wootz_means_its_own_manifest(wheel: Wheel) -> None:
    assert wheel.read("wootz/gen/kernels.yaml") == (ROOT / "kernels.yaml").read_bytes()


def test_nothing_in_a_project_is_left_to_fill_in() -> None:
    made = scaffold.files("acme-kernels", "acme_kernels")
    assert not [path for path, text in made.items() if "@NAME@" in text or "@" in path or "@PACKAGE@" in text]
    assert {"kernels.yaml", ".github/workflows/ci.yml", ".gitignore", "src/acme_kernels/__init__.py"} <= set(
        made
    )


def test_the_chapter_does_what_it_says(chapter: tuple[Path, str], project: Path) -> None:
    assert f"`verify` ends with `{chapter[1].splitlines()[-1]}`" in section(TITLE)
    shown, written = block(TITLE, "yaml"), (project / "kernels.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(shown) == yaml.safe_load(written)


def test_cmake_makes_a_wheel_of_it(tmp_path: Path, installed: Path) -> None:
    """The same files as `wootz pack`, of the CPU."""
    try:
        version("wootz")
    except PackageNotFoundError:
        pytest.fail("the wheel is not installed here; run scripts/test")
    done("new", NAME, "--out", tmp_path)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    flags = ["--config-setting=cmake.define.PROFILE=host"]
    made = subprocess.run([*command, *flags], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    wheel = Wheel(next((tmp_path / "dist").glob("*.whl")))
    files = [n for n in wheel.files if "/artifacts/" in n and not n.endswith("index.json")]
    assert {n for n in files if "/checks/" in n} == {
        f"{PACKAGE}/artifacts/checks/{kernel}.py" for kernel in ("axpby", "softsign")
    }
    assert all(wheel.read(name) == (installed / name).read_bytes() for name in files)
