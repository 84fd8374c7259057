"""What the real compiler makes of launches that overlap: the order of loads around the wait in the binary."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gen.build import gate
from gen.emit.text import emit
from gen.manifest.reader import load
from gen.toolchain import nvcc
from gen.toolchain.tool import ToolchainError, run_tool

MANIFEST = load(Path(__file__).parents[2] / "kernels.yaml")


@pytest.mark.parametrize("fmt", ["int4", "q4_0", "uint4_z"])
def test_weights_are_loaded_before_the_wait_and_nothing_else_is(fmt: str, tmp_path: Path) -> None:
    """Loads of memory that nobody writes (CONSTANT) are of weights; those of activations are plain ones."""
    try:
        compiler = nvcc.nvcc_candidates()[0]
        disassembler = nvcc.find_disassembler(nvcc.probe_nvcc(compiler))
    except (ToolchainError, IndexError):
        pytest.skip("no nvcc, or no cuobjdump, on this machine")
    made = emit(MANIFEST.kernels["qgemv"], MANIFEST.formats[fmt], MANIFEST.targets["sm_90a"], ("bf16",))
    (tmp_path / "q.cu").write_text(made.text)
    command = [str(compiler), "-cubin", "-O3", "-arch=sm_90a", "-o", "q.cubin", "q.cu"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    code, listing = run_tool([*disassembler.command, "-sass", str(tmp_path / "q.cubin")])
    assert code == 0, listing
    functions = gate.functions(listing)
    assert set(functions) == {entry.symbol for entry in made.entries}
    for entry in made.entries:
        early, late = re.split(r"\bACQBULK\b", functions[entry.symbol])
        loads, copies = re.findall(r"\bLDG\.\S+", early), "UTMALDG" in early
        staged = entry.static_shared > 0 or copies
        assert bool(loads) == (staged and not copies), entry.symbol
        assert copies == bool(entry.extra.get("maps"))
        assert all("CONSTANT" in load for load in loads)
        assert re.search(r"\bLDG\.(?!\S*CONSTANT)", late)
        assert ("PREEXIT" in late) == staged
        assert "PREEXIT" not in early
        assert "STG" not in early
