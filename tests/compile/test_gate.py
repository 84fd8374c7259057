"""The gate and the reader of cubins, on what the real compiler makes; each fault is planted once."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gen.build import audit, elf, gate, wrapping
from gen.manifest.target import Target
from gen.toolchain import nvcc
from gen.toolchain.tool import Tool, ToolchainError

SOURCE = """
#include <cstdint>
extern "C" __global__ void multiply(float* d, const uint32_t* a)
{
    float c[4] = {};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]));
    for (int i = 0; i < 4; i++) d[i] = c[i];
}
struct Params { char bytes[1792]; };
extern "C" __global__ void plain(const __grid_constant__ Params p, float* d, int i) { d[i] = p.bytes[i]; }
extern "C" __global__ void array(float* d, int n)
{
    float values[64];
    for (int i = 0; i < n; i++) values[i] = d[i];
    d[0] = values[n / 2] + values[n / 3];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* d)
{
    float values[80];
#pragma unroll
    for (int i = 0; i < 80; i++) values[i] = d[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 80; i++) d[i * 1024 + threadIdx.x] = values[79 - i] * values[(i * 7) % 80];
}
__device__ const char message[] = "ERROR : Arch conditional MMA instruction used";
extern "C" __global__ void refusing(char* d, int i) { d[i] = message[i]; }
"""


@pytest.fixture(scope="module")
def cubins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Compiled with and without the kernel that holds the refused text."""
    candidates = nvcc.nvcc_candidates()
    if not candidates:
        pytest.skip("no nvcc on this machine")
    folder, found = tmp_path_factory.mktemp("gate"), {}
    text, _, refusing = SOURCE.partition("__device__ const char")
    for key, source in (("good", text), ("refused", f"{text}__device__ const char{refusing}")):
        (folder / f"{key}.cu").write_text(source)
        found[key] = folder / f"{key}.cubin"
        command = [str(candidates[0]), "-cubin", "-O3", "-arch=sm_80", "-o", str(found[key]), f"{key}.cu"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return found


@pytest.fixture(scope="module")
def disassembler() -> Tool:
    try:
        return nvcc.find_disassembler(nvcc.probe_nvcc(nvcc.nvcc_candidates()[0]))
    except (ToolchainError, IndexError):
        pytest.skip("no cuobjdump on this machine")


def test_parameters_and_frames_are_read(cubins: dict[str, Path]) -> None:
    file = elf.parse(cubins["good"].read_bytes())
    assert elf.parameters(file, "plain") == [1792, 8, 4]
    assert elf.parameters(file, "multiply") == [8, 8]
    with pytest.raises(elf.FileError, match="parameters of none"):
        elf.parameters(file, "none")
    frames = elf.frames(file)
    assert frames["multiply"] == frames["plain"] == 0
    assert frames["array"] >= 256  # an array that is indexed by a variable
    assert frames["spilling"] > 0  # 80 values in the 32 registers that the launch bounds leave


def record(**entry: Any) -> dict[str, Any]:
    return {"dtype": "f16", "options": {}, "entry": {"when": [], **entry}}


def test_an_entry_that_spills_is_left_out_where_another_takes_its_problems(
    cubins: dict[str, Path], disassembler: Tool
) -> None:
    entries = [record(symbol="spilling", gate="hmma"), record(symbol="multiply", gate="hmma")]
    found = gate.judge(cubins["good"], entries, disassembler)
    assert (found.problem, list(found.left_out)) == (None, ["spilling"])
    assert re.fullmatch(
        r"a stack frame of \d+ bytes a thread \(spills, or arrays\), 0 declared", found.left_out["spilling"]
    )
    entries[1]["entry"]["when"] = [["le", "m", 64]]
    found = gate.judge(cubins["good"], entries, disassembler)
    assert found.problem is not None
    assert found.problem.endswith("no other variant takes the place of spilling at m=72")


@pytest.mark.parametrize(
    ("cubin", "entry", "expected"),
    [
        ("good", {"symbol": "multiply", "gate": "hmma"}, None),
        ("good", {"symbol": "array"}, None),  # nothing is asked of it
        ("good", {"symbol": "plain", "gate": "hmma"}, r"plain has no instruction \bHMMA\.16816 (gate hmma)"),
        ("good", {"symbol": "multiply", "gate": "hmma+ldgsts"}, r"multiply has no instruction \bLDGSTS"),
        ("good", {"symbol": "gone", "gate": "hmma"}, "says nothing about the stack frame of gone"),
        ("good", {"symbol": "array", "gate": "hmma"}, "(spills, or arrays), 0 declared; no other variant"),
        ("good", {"symbol": "spilling", "gate": "hmma"}, "(spills, or arrays), 0 declared; no other variant"),
        ("good", {"symbol": "spilling", "gate": "hmma", "spills": {"bytes": 8}}, ", 8 declared; no other"),
        ("good", {"symbol": "spilling", "gate": "hmma", "spills": {"bytes": 4096}}, "has no instruction"),
        ("refused", {"symbol": "multiply", "gate": "hmma"}, "holds the text 'ERROR : Arch conditional MMA'"),
    ],
)  # fmt: skip
def test_the_gate(
    cubins: dict[str, Path], disassembler: Tool, cubin: str, entry: dict[str, Any], expected: str | None
) -> None:
    found = gate.judge(cubins[cubin], [record(**entry)], disassembler).problem
    assert found is None if expected is None else found is not None and expected in found, found


def test_a_disassembler_that_fails_is_quoted(
    cubins: dict[str, Path], disassembler: Tool, tmp_path: Path
) -> None:
    script = tmp_path / "cuobjdump"
    script.write_text("#!/bin/sh\necho cannot read it\nexit 3\n")
    script.chmod(0o755)
    found = gate.judge(
        cubins["good"], [record(symbol="multiply", gate="hmma")], Tool((str(script),), "")
    ).problem
    assert found is not None
    assert "status 3): cannot read it" in found


INTERNAL = """
#include <cuda/std/tuple>
namespace { __device__ int hidden[4]; }
extern "C" __global__ void first(int* p, int i) { p[0] = hidden[i]; hidden[i] = 2; }
"""


def test_a_cubin_does_not_depend_on_its_folder(cubins: dict[str, Path], tmp_path: Path) -> None:
    target, found = Target("t", "cuda", "sm_80", capability=(8, 0), extension="cubin"), []
    for folder in (tmp_path / "a", tmp_path / "b b" / "c"):
        folder.mkdir(parents=True)
        (folder / "k.cu").write_text(INTERNAL)
        command = [str(nvcc.nvcc_candidates()[0]), "-cubin", "-arch=sm_80", "-o", "k.cubin", "k.cu"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        before = (folder / "k.cubin").read_bytes()
        assert audit.problem(folder / "k.cubin", target, ["first"]) is None
        found.append((before, (folder / "k.cubin").read_bytes()))
    assert found[0][0] != found[1][0]  # the compiler puts a hash of the path into names
    assert found[0][1] == found[1][1]
    assert audit.problem(cubins["good"], target, ["plain"]) is None


def test_a_fat_binary_holds_the_very_cubin(
    cubins: dict[str, Path], disassembler: Tool, tmp_path: Path
) -> None:
    compiler = nvcc.probe_nvcc(nvcc.nvcc_candidates()[0])
    tool = nvcc.find_fatbinary(compiler, [Target("t", "cuda", "sm_80", extension="fatbin")])
    shutil.copy(cubins["good"], tmp_path / "a.cubin")
    known = {"a.cubin": audit.recorded(tmp_path / "a.cubin", "", {"plain": "why"})}
    wrap = wrapping.Wrap("unit", "sm_80", "a.cubin", "a.fatbin")
    made, problems = wrapping.wrap_all(tmp_path, [wrap], known, {}, tool, 1)
    assert (problems, made["a.fatbin"].left_out) == ({}, {"plain": "why"})
    data = (tmp_path / "a.fatbin").read_bytes()
    assert 2 * len(data) < known["a.cubin"].size
    command = [*disassembler.command, "-xelf", "all", "a.fatbin"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (extracted,) = tmp_path.glob("a.*.sm_80.cubin")
    assert extracted.read_bytes() == cubins["good"].read_bytes()
    other = replace(wrap, arch="sm_90", path="b.fatbin")  # than the cubin says it is for
    made, problems = wrapping.wrap_all(tmp_path, [other], known, {}, tool, 1)
    assert made == {}
    assert "b.fatbin: cannot be made of a.cubin" in problems["unit"]


@pytest.mark.parametrize("size", [0, 64, 500, 2000])
def test_a_damaged_cubin_is_an_error_of_its_own(cubins: dict[str, Path], size: int) -> None:
    data = cubins["good"].read_bytes()
    with pytest.raises(elf.FileError):
        elf.frames(elf.parse(data[:size]))
