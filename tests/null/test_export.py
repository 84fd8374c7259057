"""wootz export: what it writes, and what it refuses, with no compiler and no device."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gen import cli
from gen.export import cell, program, solution
from gen.export.cell import ExportError
from gen.export.problem import problem
from gen.plan import cells as plan

MANIFEST = Path(__file__).resolve().parents[2] / "kernels.yaml"

_TEXT = {"type": "string", "minLength": 1}
_FLAGS = {"type": "array", "items": {"type": "string"}}
SCHEMA = {
    "type": "object",
    "required": ["name", "definition", "author", "spec", "sources"],
    "additionalProperties": False,
    "properties": {
        "name": _TEXT,
        "definition": _TEXT,
        "author": _TEXT,
        "description": {"type": "string"},
        "sources": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["path", "content"],
                "additionalProperties": False,
                "properties": {
                    "path": {"type": "string", "pattern": r"^(?!/)(?!.*\.\.).+$"},
                    "content": _TEXT,
                },
            },
        },
        "spec": {
            "type": "object",
            "required": ["languages", "target_hardware", "entry_point"],
            "additionalProperties": False,
            "properties": {
                "languages": {
                    "type": "array",
                    "items": {"enum": ["cutlass", "cudnn", "cublas", "cuda_cpp"]},
                    "minItems": 1,
                },
                "target_hardware": {"type": "array", "minItems": 1, "items": {"enum": ["B200", "LOCAL"]}},
                "entry_point": {"type": "string", "pattern": r"^[^:]+\.(cu|cpp|cc|cxx|c|h|hpp|cuh)::[^:]+$"},
                "dependencies": _FLAGS,
                "destination_passing_style": {"type": "boolean"},
                "binding": {"enum": ["torch", None]},
                "compile_options": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"cflags": _FLAGS, "cuda_cflags": _FLAGS, "ld_flags": _FLAGS},
                },
            },
        },
    },
}
"""What SOL-ExecBench's `Solution` checks, of C++ languages (see gen/export/solution.py for where it is)."""


@pytest.fixture(scope="module")
def manifest() -> Any:
    return plan.load(MANIFEST)


def test_a_program_is_one_file_and_a_makefile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "softmax"
    command = ["export", "program", "softmax/-/f16/sm_90a", "--size", "m=5", "n=72", "--out", str(out)]
    assert cli.main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["size"] == {"m": 5, "n": 72}
    assert told["kernel"].startswith("wootz_softmax_f16")
    assert sorted(path.name for path in out.iterdir()) == ["Makefile", "program.cu"]
    text = (out / "program.cu").read_text()
    assert re.findall(r'#include [<"](\S+)[>"]', text)[0] == "cuda_runtime.h"
    assert '#include "' not in text
    assert "ARCH ?= sm_90a" in (out / "Makefile").read_text()
    assert cli.main(command) == 0
    assert (out / "program.cu").read_text() == text


def test_the_operands_differ_in_every_block(manifest: Any) -> None:
    drawn = problem(cell.find(manifest, "copy/-/f32/sm_90a"), {"n": 4096})
    data = drawn.arrays[0].data or b""
    blocks = [data[i : i + 1024] for i in range(0, len(data), 1024)]
    assert len(blocks) == 16
    assert len(set(blocks)) == 16


def test_another_cell_has_other_operands(manifest: Any) -> None:
    keys = ("softmax/-/f32/sm_80", "softmax/-/f32/sm_90a")
    first, second = (problem(cell.find(manifest, key), {"m": 2, "n": 9}).arrays[0] for key in keys)
    assert first.data != second.data


@pytest.mark.parametrize(
    "key",
    ["softmax/-/f16/sm_90a", "qgemv/mxfp4/bf16/sm_90a", "attention/-/f16/sm_100a", "quantize/int4/f32/sm_80"],
)
def test_a_solution_is_what_the_benchmark_reads(manifest: Any, key: str) -> None:
    made = solution.solution(cell.find(manifest, key), "problem", "someone", ["B200", "LOCAL"])
    jsonschema.validate(made, SCHEMA)
    assert made["definition"] == "problem"
    assert made["author"] == "someone"
    path, function = made["spec"]["entry_point"].split("::")
    assert [source["path"] for source in made["sources"]] == [path]
    assert f"void {function}(" in made["sources"][0]["content"]
    arch = key.rpartition("_")[2]
    assert f"-gencode=arch=compute_{arch},code=sm_{arch}" in made["spec"]["compile_options"]["cuda_cflags"]


def test_outputs_are_the_last_arguments(manifest: Any) -> None:
    text = solution.text(cell.find(manifest, "conv/-/f16/sm_90a"))
    parameters = re.search(r"void run\(([^)]*)\)", text)
    assert parameters is not None
    names = [each.split()[-1] for each in parameters[1].split(",")]
    assert names[:3] == ["x", "weight", "bias"]
    assert names[-1] == "y"
    assert "stride_w" in names


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("softmax", "is no cell: wanted KERNEL"),
        ("softmx/-/f16/sm_90a", "did you mean 'softmax'?"),
        ("softmax/-/f16/sm_90", "softmax is not built for sm_90;"),
        ("softmax/-/f16/sm_91a", "did you mean 'sm_90a'?"),
        ("softmax/-/f15/sm_90a", "did you mean 'softmax/-/f16/sm_90a'?"),
        ("qgemv/mxfp5/f16/sm_90a", "did you mean 'qgemv/mxfp4/f16/sm_90a'?"),
        ("softmax/-/f16/cpu", "target cpu is of backend cpu; exports are CUDA C++: name a cell of"),
        ("softmax/-/f16/metal3.1", "is of backend metal"),
        ("gemm.same/-/bf16/sm_90a", "CUTLASS makes its kernels"),
    ],
)
def test_cells_that_cannot_be_exported(manifest: Any, key: str, said: str) -> None:
    with pytest.raises(ExportError) as caught:
        cell.find(manifest, key)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_entries_that_take_tensor_maps_are_left_out(
    manifest: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where others are there for every size; the command names them."""
    source = cell.find(manifest, "qgemv/mxfp4/bf16/sm_90a")
    assert source.left_out == ("wootz_qgemv_mxfp4_bf16_natural",)
    assert [e["symbol"].rpartition("_")[2] for e in source.entries] == ["m1", "m2", "m4", "m8"]
    command = ["export", "solution", "qgemv/mxfp4/bf16/sm_90a", "--out", str(tmp_path / "s")]
    assert cli.main(command) == 0
    assert "left out, as they take tensor maps: wootz_qgemv_mxfp4_bf16_natural\n" in capsys.readouterr().out
    assert not cell.find(manifest, "softmax/-/f16/sm_90a").left_out
    taken = {"maps": {"codes": {}}}
    assert cell._more_than_text("", (taken, taken)) == "its kernels take tensor maps"


@pytest.mark.parametrize(
    ("key", "size", "said"),
    [
        ("softmax/-/f16/sm_90a", {"k": 5}, "softmax has the sizes m, n"),
        ("softmax/-/f16/sm_90a", {"n": 0}, "--size n=0: wanted 1 to "),
        ("softmax/-/f16/sm_90a", {"n": 90000}, "a program holds at most"),
        ("softmax/-/f16/sm_90a", {"n": 9000000}, "is too much to be written out"),
        ("qgemv/mxfp4/f16/sm_90a", {"m": 9}, "m is 9; qgemv takes 0 to 8"),
    ],
)
def test_sizes_that_are_refused(manifest: Any, key: str, size: dict[str, int], said: str) -> None:
    with pytest.raises(ExportError, match=re.escape(said)):
        problem(cell.find(manifest, key), size)


@pytest.mark.parametrize("kind", ["program", "solution"])
def test_what_is_refused_leaves_nothing(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", kind, "gemm.same/-/bf16/sm_90a", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_size_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "program", "softmax/-/f16/sm_90a", "--size", "n=many", "--out", "x"]) == 2
    assert "wanted NAME=VALUE with a whole number" in capsys.readouterr().err


def test_a_kernel_that_broadcasts_has_no_solution(manifest: Any) -> None:
    with pytest.raises(ExportError, match="broadcasts"):
        solution.solution(cell.find(manifest, "where/-/f16/sm_90a"))


def test_a_folder_with_files_of_others_is_left_alone(manifest: Any, tmp_path: Path) -> None:
    source = cell.find(manifest, "softmax/-/f16/sm_90a")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ExportError, match=r"holds notes.txt, which no export wrote; name an empty folder"):
        program.write(source, {"m": 2, "n": 3}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(ExportError, match="is a file; name a folder"):
        solution.write(source, "", "wootz", ["LOCAL"], tmp_path / "notes.txt")


def test_a_knob_that_is_not_the_default(manifest: Any) -> None:
    fast = cell.find(manifest, "unary.exp.fast/-/f16/sm_90a")
    assert "__expf" in fast.text
    assert "__expf" not in cell.find(manifest, "unary.exp/-/f16/sm_90a").text
    assert "fast" in program.text(fast, problem(fast, {"n": 100}))


def test_a_program_that_could_not_fail_is_refused(manifest: Any) -> None:
    source = cell.find(manifest, "copy/-/f32/sm_90a")
    drawn = problem(source, {"n": 8})
    nothing = [replace(a, wanted=a.wanted and replace(a.wanted, bits=b"\xff" * 32)) for a in drawn.arrays]
    assert drawn.telling
    assert not replace(drawn, arrays=tuple(nothing)).telling


def test_the_chapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (MANIFEST.parent / "docs/extending.md").read_text(encoding="utf-8")
    commands = re.findall(r"^wootz (export .*)$", text, re.M)
    assert len(commands) == 2
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert cli.main(shlex.split(command)) == 0
    assert (tmp_path / "gemv" / "program.cu").is_file()
    made = json.loads((tmp_path / "solution" / "solution.json").read_text())
    assert (made["definition"], made["author"]) == ("softmax_8k", "me")
    assert made["spec"]["target_hardware"] == ["B200"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["program", "--size", "m=2", "m=3"], "--size m=3: m is given already, as 2; say it once"),
        (["solution", "--definition", "../a b"], "--definition '../a b': wanted a name of letters"),
        (["solution", "--author", ""], "--author '': wanted a name"),
        (["solution", "--hardware", "LOCAL", " "], "wanted a name"),
    ],
)
def test_what_is_no_name_is_refused(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, *more = words
    out = tmp_path / "out"
    assert cli.main(["export", kind, "softmax/-/f16/sm_90a", *more, "--out", str(out)]) == 2
    assert says in capsys.readouterr().err
    assert not out.exists()
