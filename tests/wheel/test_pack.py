"""The ways to a wheel of one's own, as docs/projects.md has them: from a manifest to numbers in an
environment that has no compiler."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from test_readme import block, section
from wheel_tools import ROOT, Clean, Wheel

TITLE = "Ship a wheel"
BOTH = """
import numpy as np, wootz
rng = np.random.default_rng(0)
x, w = rng.standard_normal((2, 96)).astype(np.float32), rng.standard_normal((33, 96)).astype(np.float32)
ours, theirs, built = wootz.load(), wootz.load("acme"), wootz.load("forge")
for lib in (ours, theirs, built):
    format = lib.formats()[0]
    q = wootz.quantize(w, lib.format(format))
    y = lib.kernel("qgemv", format=format, dtype="f32", device="cpu")(x, q)
    np.testing.assert_allclose(y, x @ q.dequantize().T, rtol=1e-3, atol=1e-3)
assert wootz.load("wootz").path == ours.path
print(theirs.formats(), built.formats(), "book2" in ours.formats())
"""
"""Ours, a packed wheel's and a CMake project's kernels, in one process."""


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Runs what must succeed, and gives what it printed."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path, beside: str) -> Path:
    """A new environment that has what another Python has, without a copy of it; gives its Python."""
    run([sys.executable, "-m", "venv", "--without-pip", folder], folder.parent)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = folder / "bin/python"
    site = Path(run([python, "-c", where], folder).strip())
    (site / "beside.pth").write_text(run([beside, "-c", where], folder))
    return python


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the chapter's manifest."""
    try:
        version("wootz")
    except PackageNotFoundError:
        pytest.fail("the wheel is not installed here; run scripts/test")
    folder = tmp_path_factory.mktemp("project")
    (folder / "kernels.yaml").write_text(block(TITLE, "yaml"))
    return folder


@pytest.fixture(scope="module")
def dist(project: Path) -> Path:
    """The wheels of the first two ways: `acme`, and `forge`, which CMake builds. The chapter's commands run
    in an environment with what the tests have."""
    python = environment(project / "environment", sys.executable)
    for name in ("pip", "wootz"):
        (python.parent / name).write_text(f'#!/bin/sh\nexec "{python}" -m {name} "$@"\n')
        (python.parent / name).chmod(0o755)
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    printed = run(["bash", "-ec", block(TITLE, "sh")], project, PATH=path, PIP_NO_INDEX="1")
    assert f"`verify` ends with `{printed.splitlines()[-1]}`" in section(TITLE)
    for name, language in (("pyproject.toml", "toml"), ("CMakeLists.txt", "cmake")):
        (project / name).write_text(block(TITLE, language).replace("acme", "forge"))
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    run(build, project, CMAKE_BUILD_PARALLEL_LEVEL="2")
    return project / "dist"


@pytest.fixture(scope="module")
def user(dist: Path, clean: Clean) -> Clean:
    """An environment with wootz, NumPy and the two wheels."""
    folder = dist.parent / "user"
    python = environment(folder, str(clean.folder / "bin/python"))
    pip = [python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check"]
    run([*pip, *sorted(dist.glob("*.whl"))], folder)
    return Clean(folder)


def test_their_tags_and_files(dist: Path) -> None:
    acme, forge = sorted(dist.glob("*.whl"))
    assert acme.name.startswith("acme-1.0-py3-none-")
    assert forge.name.startswith("forge-1.0-py3-none-")
    assert not any(wheel.name.endswith("-any.whl") for wheel in (acme, forge))
    packed, built = (
        {
            name.partition("/")[2]: wheel.read(name)
            for name in wheel.files
            if "/artifacts/" in name and not name.endswith("index.json")  # has what the compiler calls itself
        }
        for wheel in (Wheel(acme), Wheel(forge))
    )
    assert packed == built != {}


def test_the_example(user: Clean) -> None:
    printed = user.python(block(TITLE, "python")).split()
    assert printed[:2] == ["<wootz", "library"]
    assert printed[-3:] == ["2", "cells>", "True"]


def test_ours_and_theirs_together(user: Clean) -> None:
    assert user.python(BOTH) == "['book2'] ['book2'] False\n"


def test_the_folder_as_it_is(project: Path, dist: Path, user: Clean) -> None:
    code = block(TITLE, "python").replace('"acme"', repr(str(project / "artifacts")))
    assert user.python(code).split()[-1] == "True"


def test_a_split_wheel_is_resolved(project: Path, dist: Path, clean: Clean, tmp_path: Path) -> None:
    gen = [sys.executable, "-m", "gen", "pack", "--artifacts", project / "artifacts", "--split"]
    run([*gen, "--name", "acme", "--version", "2.0", "--out", project / "split"], ROOT)
    python = environment(tmp_path / "environment", str(clean.folder / "bin/python"))
    more = ["--no-index", "--find-links", project / "split", "--disable-pip-version-check"]
    run([python, "-m", "pip", "install", "-q", *more, "acme==2.0"], tmp_path)
    code = 'import wootz; print([part.owner for part in wootz.load("acme").parts])'
    assert Clean(tmp_path / "environment").python(code) == "['acme-cpu 2.0']\n"


def test_where_the_cmake_package_is(clean: Clean) -> None:
    python = str(clean.folder / "bin/python")
    folder = Path(clean.run(python, "-m", "wootz", "--cmakedir").stdout.strip())
    assert (folder / "wootzConfig.cmake").is_file()
    assert (folder / "wootzConfigVersion.cmake").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("MANIFEST none.yaml DESTINATION a", "there is no manifest"),
        ("MANIFEST kernels.yaml", "name a DESTINATION, as acme/artifacts"),
        ("MANIFEST kernels.yaml DESTINATION a PROFIL x", "no such option: PROFIL;x"),
        ("MANIFEST kernels.yaml DESTINATION a SOURCES of", "SOURCES is 'of', wanted ON or OFF"),
    ],
)
def test_what_the_function_refuses(arguments: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "kernels.yaml").write_text("")
    config = ROOT / "python/wootz/cmake/wootzConfig.cmake"
    text = f"project(a LANGUAGES NONE)\ninclude({config})\nwootz_add_artifacts(kernels {arguments})\n"
    (tmp_path / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.21...4.0)\n{text}")
    done = subprocess.run(
        ["cmake", tmp_path, "-B", tmp_path / "build"], capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert message in " ".join(done.stderr.split())


def test_a_build_folder_does_not_keep_what_the_environment_said(tmp_path: Path) -> None:
    """As pip uses one again: what is built is what this run asks for."""

    def targets(*defined: str, **environment: str) -> list[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("WOOTZ_")}
        pybind11 = importlib.import_module("pybind11").get_cmake_dir()
        tools = (f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11}")
        subprocess.run(
            ["cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", *tools, *defined],
            env={**kept, **environment}, check=True, capture_output=True,
        )  # fmt: skip
        return re.findall(r"--targets (\S+)", (tmp_path / "build.ninja").read_text())

    assert set(targets(WOOTZ_TARGETS="cpu")) == {"cpu"}
    assert targets() == []
    assert set(targets("-DWOOTZ_TARGETS=sm_80", WOOTZ_TARGETS="cpu")) == {"sm_80"}
