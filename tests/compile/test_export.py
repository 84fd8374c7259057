"""What wootz export writes is compiled by nvcc: a program by its Makefile, a solution with a stand-in for
torch's headers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gen.export import cell, program, solution
from gen.plan import cells as plan
from gen.toolchain import nvcc
from gen.toolchain.tool import ToolchainError

MANIFEST = Path(__file__).resolve().parents[2] / "kernels.yaml"
STUB = Path(__file__).parent / "torch_stub"


@pytest.fixture(scope="module")
def compiler() -> str:
    try:
        targets = [plan.load(MANIFEST).targets["sm_90a"]]
        return nvcc.find_nvcc(targets, "", print)[0].command[0]
    except ToolchainError as error:
        pytest.skip(f"no nvcc: {error}")


@pytest.fixture(scope="module")
def manifest() -> Any:
    return plan.load(MANIFEST)


@pytest.mark.parametrize(("key", "arch"), [("dequant/nf4/bf16/sm_80", "sm_90")])
def test_a_program(manifest: Any, compiler: str, tmp_path: Path, key: str, arch: str) -> None:
    """For another chip than the cell's target names."""
    program.write(cell.find(manifest, key), {}, tmp_path)
    command = ["make", "-C", str(tmp_path), f"NVCC={compiler} -Werror all-warnings", f"ARCH={arch}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "program").is_file()
    program.write(cell.find(manifest, key), {}, tmp_path)  # what the compiler left is no foreign file


def test_a_solution(manifest: Any, compiler: str, tmp_path: Path) -> None:
    made = solution.solution(cell.find(manifest, "reduce_all.sum/-/bf16/sm_90a"))
    (tmp_path / "kernel.cu").write_text(made["sources"][0]["content"])
    flags = made["spec"]["compile_options"]["cuda_cflags"]
    command = [compiler, *flags, "-std=c++17", "-DTORCH_EXTENSION_NAME=benchmark_kernel", f"-I{STUB}"]
    done = subprocess.run(
        [*command, "-c", "kernel.cu", "-o", "kernel.o"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
