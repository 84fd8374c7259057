"""The workflows name what is there: scripts, jobs, files of other jobs, commands and their options."""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gen import cli, commands

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
RELEASE = ROOT / ".github/workflows/release.yml"


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(path).values():
        yield from job["steps"]


def lines(path: Path) -> list[str]:
    """Every line that a step runs."""
    return [line for step in steps(path) for line in step.get("run", "").splitlines()]


def generated(path: Path) -> list[list[str]]:
    """The arguments of every call of the generator."""
    found = [re.search(r"scripts/generator (.*)", line.split("#")[0].split(">")[0]) for line in lines(path)]
    return [shlex.split(match[1]) for match in found if match]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_and_jobs_are_there(path: Path) -> None:
    text = path.read_text()
    for script in set(re.findall(r"(?<![\w/])(?:scripts/\w+|\.ci/run)(?!\w)", text)):
        assert os.access(ROOT / script, os.X_OK), script
    for file in set(re.findall(r"(?<![\w/])(?:tests|examples)/[\w./]+", text)):
        assert (ROOT / file).is_file(), file
    for job in jobs(path).values():
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(jobs(path))
        assert job["runs-on"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w./-]+@[\w./]+", step.get("uses", "a@b"))


def test_what_is_downloaded_was_uploaded() -> None:
    used = {kind: [] for kind in ("upload", "download")}  # type: dict[str, list[str]]
    for step in steps(RELEASE):
        for kind, names in used.items():
            if f"/{kind}-artifact@" in step.get("uses", ""):
                names.append(step["with"].get("name") or step["with"]["pattern"])
    made = [re.sub(r"\$\{\{.*?\}\}", "x86_64", name) for name in used["upload"]]
    assert len(set(made)) == len(made) == 4
    for wanted in used["download"]:
        assert fnmatch.filter(made, re.sub(r"\$\{\{.*?\}\}", "x86_64", wanted)), wanted


def test_every_shard_is_built() -> None:
    matrix = jobs(RELEASE)["shard"]["strategy"]["matrix"]
    assert matrix["shard"] == list(range(1, yaml.safe_load(RELEASE.read_text())["env"]["SHARDS"] + 1))
    assert matrix["arch"] == jobs(RELEASE)["linux"]["strategy"]["matrix"]["arch"]


def test_the_generator_takes_these_commands() -> None:
    calls = generated(RELEASE)
    assert {call[0] for call in calls} == {"build", "merge", "diff"}
    if "merge" not in commands.NAMES:
        pytest.skip("there is no wootz merge, and builds have no shards")
    for call in calls:
        cli._parser().parse_args([re.sub(r"\$\w+", "1", word) for word in call])


def test_only_what_publishes_may_write() -> None:
    workflow = yaml.safe_load(RELEASE.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert [name for name, job in workflow["jobs"].items() if "permissions" in job] == ["publish"]
    assert workflow["jobs"]["publish"]["if"] == "github.ref_type == 'tag'"


def test_a_source_archive_leaves_out_folders_of_the_root_only() -> None:
    """A bare "build" would take gen/build away, from wheels too."""
    (patterns,) = re.findall(r"^sdist\.exclude = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.M)
    assert all(pattern.startswith('"/') for pattern in patterns.split(", "))


def test_scripts_import_modules_that_are_there() -> None:
    texts = [path.read_text() for path in (ROOT / "scripts").iterdir() if path.is_file()]
    named = {name for text in texts for name in re.findall(r"from (gen[\w.]*) import", text)}
    assert named
    assert [name for name in named if importlib.util.find_spec(name) is None] == []
