"""README.md and docs do what they say: code blocks are run, tables compared with what they describe."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wheel_tools import ROOT, Clean

from gen import commands
from gen.plan import cells as plan

DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)


def section(title: str) -> str:
    """The text under a heading, to the next heading of its level or above."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        bare = FENCED.sub(lambda code: " " * len(code[0]), text)  # where no comment looks like a heading
        if head := re.search(rf"^(#+) {re.escape(title)}$", bare, re.M):
            following = re.compile(rf"^#{{1,{len(head[1])}}} ", re.M).search(bare, head.end())
            return text[head.end() : following.start() if following else None]
    raise AssertionError(f"no document has a heading {title!r}")


def block(title: str, language: str) -> str:
    """The first code block of a language in a section."""
    found = re.search(rf"^```{language}\n(.*?)^```$", section(title), re.M | re.S)
    assert found, f"{title}: no block of {language}"
    return str(found[1])


def test_the_python_example(clean: Clean) -> None:
    printed = clean.python(block("Use it from Python", "python"))
    assert printed.startswith("QuantizedTensor(mxfp4, 1024x512")
    assert float(printed.split()[-1]) < 1e-3


def test_the_example_of_matrix_kernels(clean: Clean) -> None:
    printed = clean.python(block("Kernels", "python"))
    assert printed.startswith("PackedTensor(int4_g128, 200x300")
    assert printed.split()[-1] == "True"


def test_every_kernel_is_in_the_table() -> None:
    table = section("Kernels")
    missing = [name for name in plan.load(ROOT / "kernels.yaml").kernels if f"`{name}`" not in table]
    assert not missing


def test_the_table_of_commands_is_complete() -> None:
    rows = re.findall(r"^\| `wootz (\S+)(.*?)` \|", section("The command line"), re.M)
    assert sorted(name for name, _ in rows) == sorted((*commands.NAMES, *commands.RUN_TIME))
    for name, told in rows:  # --out of export is one of its kinds
        if name in commands.NAMES:
            parser = argparse.ArgumentParser()
            importlib.import_module(f"gen.commands.{name}").options(parser)
            assert {*re.findall(r"--?[a-z]\S*?(?=[ \]]|$)", told)} - {"--out"} <= {
                *parser._option_string_actions
            }


def test_the_worked_format(tmp_path: Path) -> None:
    commands = block("Add a format", "sh")
    name = re.search(r"wootz check (\S+)", commands)
    assert name
    (tmp_path / name[1]).write_text(block("Add a format", "yaml"))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    assert (Path(sys.executable).parent / "wootz").is_file(), (
        "the wheel is not installed here; run scripts/test"
    )

    def run(*command: str, **more: str) -> str:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PATH": path, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    promised = re.search(r"`verify` ends with `(.*?)`", section("Add a format"))
    assert promised
    assert run("bash", "-ec", commands).splitlines()[-1] == promised[1]
    quantize = 'import wootz, numpy; print(wootz.quantize(numpy.eye(4, 300), "book3"))'
    printed = run(sys.executable, "-c", quantize, WOOTZ_ARTIFACTS="artifacts")
    assert printed.startswith("QuantizedTensor(book3, 4x300")


def test_the_demo_multiplies_what_a_wheel_carries_by_default() -> None:
    """scripts/demo runs the example with the formats that it names, of which README shows some."""
    text = (ROOT / "examples/real_weights.py").read_text(encoding="utf-8")
    lists = re.findall(r"^FORMATS \+?= \[(.*?)\]$", text, re.M)
    named = re.findall(r'"(\w+)"', " ".join(lists))
    shown = re.findall(r"^(\w+) .* cpu$", section("Two commands"), re.M)
    assert set(shown) < set(named)
    assert set(named) <= set(plan.select(plan.load(ROOT / "kernels.yaml"), plan.Request()).formats)


def of_root(folder: Path) -> list[str]:
    """What lies beside the sources, not the folders of these names among them."""
    return ["build", "artifacts"] if folder == ROOT else []


@pytest.mark.slow
def test_the_worked_kernel(tmp_path: Path) -> None:
    """The chapter's files in a copy of the checkout, and its commands in an environment of their own."""
    chapter = section("Add a kernel")
    checkout, environment = tmp_path / "checkout", tmp_path / "environment"
    ignored = shutil.ignore_patterns(".git", "tests", "*.so", "__pycache__", ".venv")
    shutil.copytree(
        ROOT, checkout, ignore=lambda folder, names: {*ignored(folder, names), *of_root(Path(folder))}
    )
    files = re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", chapter, re.M | re.S)
    assert [name for name, _ in files][-1] == "mine.yaml"
    for name, text in files:
        assert not (checkout / name).exists(), "the chapter's kernel is a new one"
        (checkout / name).write_text(text)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WOOTZ_", "PYTHON"))}
    done = subprocess.run(
        ["bash", "-ec", block("Add a kernel", "sh")],
        cwd=checkout, env={**kept, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    promised = re.search(r"`verify` ends with `(.*?)`", chapter)
    assert promised
    assert done.stdout.splitlines()[-1] == promised[1]


def test_the_example_target(tmp_path: Path) -> None:
    row = block("Add a target", "yaml")
    text = (ROOT / "kernels.yaml").read_text().replace("\nformats:\n", f"\n{row}\nformats:\n", 1)
    (tmp_path / "kernels.yaml").write_text(text)
    target = plan.load(tmp_path / "kernels.yaml").targets["sm_86"]
    assert (target.capability, target.arch) == ((8, 6), "sm_86")


def words(schema: Any) -> Iterator[str]:
    """Property names and enumerated values of a schema."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "properties":
                yield from value
            if key == "enum":
                yield from map(str, value)
            yield from words(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from words(each)


def test_the_table_of_axes_is_complete() -> None:
    definitions = json.loads((ROOT / "gen/manifest/manifest.schema.json").read_text())["$defs"]
    axes = [
        "format",
        "shortElement",
        "fullElement",
        "block",
        "scale",
        "fullScale",
        "zero",
        "fullZero",
        "packing",
    ]
    axes += ["order", "word", "padded", "permutation", "split", "storage"]
    table = set(
        re.findall(r"[\w.]+", section("The axes").replace("scale.", "scale. ").replace("packing.", " "))
    )
    missing = {word for axis in axes for word in words(definitions[axis])} - table - {"True", "False"}
    assert not missing


def test_every_target_is_in_the_table_of_proofs() -> None:
    table = section("What runs where, and how that was proven")
    for name in plan.load(ROOT / "kernels.yaml").targets:
        assert f"`{name}`" in table


def test_the_folders_exist() -> None:
    for folder in re.findall(r"`([\w/]+/)`", section("How a build works")):
        assert (ROOT / folder).is_dir(), folder


def anchors(document: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", FENCED.sub("", document.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", document.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        found = document.parent / path if path else document
        assert found.exists(), link
        assert not anchor or anchor in anchors(found), link


LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "qgemv": lambda r: (
        f"| `{r['format']}` | {r['n']} × {r['k']} | {r['us']:.1f} | {r['torch_bf16_us']:.1f} |"
        if r["m"] == 1
        else ""
    ),
    "qmm": lambda r: (
        f"| `{r['format']}` | {r['m']} | {r['us']:.1f} | {r['torch_bf16_us']:.1f} | {r['of_torch']:.2f} |"
    ),
    "gemm": lambda r: (
        f"| {r['case']} | {r['m']} × {r['n']} × {r['k']} | {r['us']:.0f} | {r['torch_us']:.0f} "
        f"| {r['ratio']:.2f} |"
        if r["m"] >= 1024
        else ""
    ),
    "rows": lambda r: (
        f"| `{r['kernel']}` | {r['us']:.1f} | {r['torch_us']:.1f} | {r['of_copy']:.2f} |"
        if r["dtype"] == "bf16"
        else ""
    ),
}
"""A row of a report as a line of its table; "" for one that is left out."""


@pytest.mark.parametrize("benchmark", LINES)
def test_the_figures_are_those_of_the_report(benchmark: str) -> None:
    name = re.escape(f"benchmarks/{benchmark}-h200.json")
    chapter = (ROOT / "docs/speed.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- figures: ({name}) -->\n(.*?)<!-- end of figures -->", chapter, re.S)
    assert found
    report = json.loads((ROOT / found[1]).read_text())
    lines = [line for row in report["rows"] if (line := LINES[benchmark](row))]
    assert found[2].splitlines()[2:] == lines, "the table should be:\n" + "\n".join(lines)
