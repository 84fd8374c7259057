"""Ten exported programs of various kinds, compiled and run on the device."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from needs import capability, device

from gen import cli
from gen.export import cell, program, solution
from gen.plan import cells as plan

device()

MANIFEST = Path(__file__).resolve().parents[2] / "kernels.yaml"
CELLS = (
    "unary.gelu/-/f16/sm_90a",
    "softmax/-/bf16/sm_90a",
    "rms_norm/-/f16/sm_90a",
    "reduce_all.sum/-/f32/sm_90a",
    "qgemv/mxfp4/bf16/sm_90a",
    "dequant/nf4/f16/sm_90a",
    "quantize/int4/f16/sm_90a",
    "attention/-/bf16/sm_90a",
    "conv/-/f16/sm_90a",
    "sample/-/f32/sm_90a",
)
"""With one launch and two, a workspace, a format that is read and one that is written, scalars, integers."""


@pytest.fixture(scope="module")
def manifest() -> Any:
    return plan.load(MANIFEST)


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    if not shutil.which("nvcc") or not shutil.which("make"):
        pytest.skip("nvcc and make are needed to compile exported programs")
    if capability() != (9, 0):
        pytest.skip("the cells are those of sm_90a")


def built(folder: Path) -> tuple[int, str]:
    """make run: (exit status of the program, what it says)."""
    subprocess.run(["make", "-C", str(folder)], check=True, timeout=300)
    done = subprocess.run([str(folder / "program")], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("key", CELLS)
def test_a_program_passes(manifest: Any, tmp_path: Path, key: str) -> None:
    program.write(cell.find(manifest, key), {}, tmp_path)
    status, said = built(tmp_path)
    print(said)
    assert status == 0, said
    assert said.endswith(f"PASS {key}\n")


@pytest.mark.gpu
def test_sizes_that_are_asked_for(tmp_path: Path) -> None:
    command = ["export", "program", "qgemv/mxfp4/bf16/sm_90a", "--out", str(tmp_path)]
    assert cli.main([*command, "--size", "m=2", "n=300", "k=2048"]) == 0
    assert built(tmp_path)[0] == 0


@pytest.mark.gpu
def test_a_planted_mistake_fails(manifest: Any, tmp_path: Path) -> None:
    program.write(cell.find(manifest, "softmax/-/bf16/sm_90a"), {"m": 4, "n": 72}, tmp_path)
    path = tmp_path / "program.cu"
    right = path.read_text()
    path.write_text(right.replace("call.n = 72;", "call.n = 64;"))
    assert path.read_text() != right
    status, said = built(tmp_path)
    assert status == 1
    assert "FAIL" in said


@pytest.mark.gpu
def test_a_solution_is_a_torch_extension(manifest: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    extension = pytest.importorskip("torch.utils.cpp_extension")
    made = solution.solution(cell.find(manifest, "softmax/-/f16/sm_90a"))
    path = tmp_path / made["sources"][0]["path"]
    path.write_text(made["sources"][0]["content"])
    options = made["spec"]["compile_options"]
    module = extension.load(
        "wootz_solution", [str(path)], extra_cflags=options["cflags"],
        extra_cuda_cflags=options["cuda_cflags"], build_directory=str(tmp_path),
    )  # fmt: skip
    x = torch.randn(37, 1000, dtype=torch.float16, device="cuda")
    y = torch.empty_like(x)
    module.run(x, y)
    torch.testing.assert_close(y, torch.softmax(x.float(), -1).half(), atol=1e-4, rtol=2e-3)
    with pytest.raises(RuntimeError, match="x: wanted"):
        module.run(x.float(), y)
