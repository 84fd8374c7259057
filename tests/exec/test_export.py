"""Exported programs and solutions, run where there is no device: their host code as it is, their kernels by
the lanes runtime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import exported
import pytest

from gen.export import cell, program
from gen.export.problem import Problem, problem
from gen.plan import cells as plan

MANIFEST = Path(__file__).resolve().parents[2] / "kernels.yaml"
KEY = "reduce_all.sum/-/bf16/sm_90a"
"""Two launches, a workspace, an output of no axes."""


@pytest.fixture(scope="module")
def source() -> cell.Source:
    return cell.find(plan.load(MANIFEST), KEY)


@pytest.fixture(scope="module")
def drawn(source: cell.Source) -> Problem:
    return problem(source, {"n": 517})


@pytest.fixture(scope="module")
def text(source: cell.Source, drawn: Problem) -> str:
    return program.text(source, drawn)


def ran(source: cell.Source, text: str, folder: Path) -> tuple[int, str]:
    return exported.run(exported.compiled(source, text, folder))


def test_a_program_passes(source: cell.Source, text: str, tmp_path: Path) -> None:
    status, said = ran(source, text, tmp_path)
    assert status == 0, said
    assert re.search(r"^y: 1 numbers, largest error \S+ where \S+ is allowed\nPASS " + re.escape(KEY), said)


def test_a_wrong_program_fails(source: cell.Source, text: str, tmp_path: Path) -> None:
    """The first of its two launches has no blocks."""
    grid = "smaller(ceildiv(int64_t(call.n), 16384), 1024), 1, 1"
    assert grid in text
    status, said = ran(source, text.replace(grid, "0, 1, 1"), tmp_path)
    assert status == 1, said
    assert "1 are wrong; number 0 is" in said
    assert f"FAIL {KEY}" in said


def test_a_solution_binds_its_kernel(source: cell.Source, drawn: Problem, tmp_path: Path) -> None:
    """Called with tensors of the stand-in for torch in tests/compile; afterwards with one of another type."""
    status, said = exported.run(exported.solution(source, drawn, tmp_path))
    assert f"PASS {KEY}" in said
    assert (status, said.splitlines()[-1]) == (3, "refused: x")


def test_every_number_is_read_as_the_reference_reads_it(tmp_path: Path) -> None:
    """Every code of every float of 8 and 16 bits."""
    import subprocess

    import numpy as np
    from wootz import reference

    from gen.export import harness

    types: dict[str, Any] = {"f16": np.uint16, "bf16": np.uint16, "e4m3": np.uint8, "e5m2": np.uint8}
    calls = [
        f"    for (unsigned i = 0; i < {2 ** (8 * np.dtype(t).itemsize)}; ++i) {{\n"
        f"        {np.dtype(t).name}_t code = i;\n"
        f"        double x = read_{name}((const unsigned char*)&code, 0);\n"
        "        std::fwrite(&x, 8, 1, stdout);\n    }"
        for name, t in types.items()
    ]
    main = "\n".join(["int main()", "{", *calls, "}", ""])
    headers = "".join(f"#include <{name}>\n" for name in ("cmath", "cstdint", "cstdio", "cstring"))
    (tmp_path / "read.cpp").write_text("\n".join([headers, *harness.functions(main), main]))
    subprocess.run(["c++", "-o", tmp_path / "read", tmp_path / "read.cpp"], check=True)
    read = np.frombuffer(subprocess.run([tmp_path / "read"], capture_output=True, check=True).stdout)
    codes = [np.arange(2 ** (8 * np.dtype(t).itemsize)).astype(t) for t in types.values()]
    storage = {"f16": np.float16}
    wanted = [
        reference.to_double(each.view(storage.get(name, each.dtype)), name)
        for name, each in zip(types, codes)
    ]
    np.testing.assert_array_equal(read, np.concatenate(wanted))
