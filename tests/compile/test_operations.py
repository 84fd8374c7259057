"""A text with every operation of the IR on every type goes through the real compiler, alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gen.emit.text import RENDER
from gen.toolchain import nvcc

sys.path.insert(0, str(Path(__file__).parents[1] / "null"))
import test_totality


@pytest.mark.parametrize("arch", ["sm_80", "sm_120a"])
def test_every_operation_compiles(arch: str, tmp_path: Path) -> None:
    candidates = nvcc.nvcc_candidates()
    if not candidates:
        pytest.skip("no nvcc on this machine")
    taken, _ = test_totality.sorted_out("cuda", without="pdl" if arch == "sm_80" else "")
    (tmp_path / "operations.cu").write_text(RENDER["cuda"][0](taken))
    command = [str(candidates[0]), "-cubin", f"-arch={arch}", "-o", "operations.cubin", "operations.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
