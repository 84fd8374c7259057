"""The build graph: its text, its pools, and ninja's own opinion of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gen.build import ninja, state
from gen.build.state import UnitRecord
from gen.plan import cells as plan
from gen.toolchain import find as toolchain
from gen.toolchain.cutlass import Headers
from gen.toolchain.find import Toolchain
from gen.toolchain.tool import Tool

sys.path.insert(0, str(Path(__file__).resolve().parent))
import toy

TOOLS = Toolchain(nvcc=Tool(("/opt/a b/nvcc",), "13.0"), host=Tool(("/usr/bin/c++",), "12"))


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    toy.install(monkeypatch)


def _units(tmp_path: Path, **request: tuple[str, ...]) -> list[plan.Unit]:
    manifest = plan.load(toy.manifest(tmp_path / "m.yaml", {"a4": 32}))
    return list(plan.units(manifest, plan.select(manifest, plan.Request(**request))))


def test_writer() -> None:
    writer = ninja.Writer()
    writer.comment("hello")
    writer.variable("builddir", "w")
    writer.pool("small", 3)
    writer.rule("cc", "cc $in -o $out", description="cc $out", depfile="", pool="small")
    writer.build(["a b:c"], "cc", ["x$y"], ["t"], {"flag": "-g"})
    writer.default(["a b:c"])
    assert writer.text() == (
        "# hello\nbuilddir = w\n\npool small\n  depth = 3\n\nrule cc\n  command = cc $in -o $out\n"
        "  description = cc $out\n  pool = small\n\n"
        "build a$ b$:c: cc x$$y | t\n  flag = -g\n\ndefault a$ b$:c\n"
    )


def test_each_kind_of_unit_has_its_rule(tmp_path: Path) -> None:
    unit = _units(tmp_path, targets=("sm_90a",), kernels=("copy",))[0]
    cutlass = Headers(("/c/include", "/c/tools dir"), "1.2.3")
    tools = replace(TOOLS, cutlass=cutlass, cuda=("/cuda/include",))

    def record(kind: str, *stub: str) -> dict[str, UnitRecord]:
        return {unit.key: UnitRecord(unit.key, "", unit.source, "", ("a",), (), kind, *stub)}

    texts = {kind: ninja.render([unit], tools, 2, 24 << 30, (), record(kind)) for kind in state.KINDS}
    assert "build cubin/copy/sm_90a.cubin: cuda src/copy/sm_90a.cu | .wootz/cuda.tool\n" in texts[state.DSL]
    assert "build cubin/copy/sm_90a.cubin: lean src/copy/sm_90a.cu | .wootz/cuda.tool\n" in texts[state.LEAN]
    wanted = "cubin: cutlass src/copy/sm_90a.cu | .wootz/cuda.tool .wootz/cutlass.tool\n"
    assert wanted in texts[state.CUTLASS]
    commands = {
        kind: next(line for line in text.splitlines() if "nvcc" in line) for kind, text in texts.items()
    }
    assert [kind for kind, command in commands.items() if "-fmad=false" in command] == [state.DSL]
    relaxed = [kind for kind, command in commands.items() if "--expt-relaxed-constexpr" in command]
    assert relaxed == [state.LEAN, state.CUTLASS]
    headers = "-isystem /c/include -isystem '/c/tools dir'"
    assert [kind for kind, command in commands.items() if headers in command] == [state.CUTLASS]
    assert "pool = cuda\n" in texts[state.LEAN]
    assert "pool cutlass\n  depth = 2\n" in texts[state.CUTLASS]


def test_a_stub_is_an_edge_of_the_host_compiler(tmp_path: Path) -> None:
    unit = _units(tmp_path, targets=("sm_90a",), kernels=("copy",))[0]
    tools = replace(TOOLS, cutlass=Headers(("/c/include",), "1.2.3"), cuda=("/cuda/include", "/cuda/cccl"))
    stub = (unit.stub_source, "", unit.stub)
    record = UnitRecord(unit.key, "", unit.source, "", ("a",), (), state.CUTLASS, *stub)
    text = ninja.render([unit], tools, 2, 24 << 30, ("cache",), {unit.key: record})
    tools_of = ".wootz/cpu.tool .wootz/cuda.tool .wootz/cutlass.tool"
    assert f"build stub/copy/sm_90a.so: stub src/copy/sm_90a.stub.cpp | {tools_of}\n" in text
    command = next(line for line in text.splitlines() if "-fpermissive" in line)
    assert command.startswith("  command = rm -f $out && cache /usr/bin/c++ ")
    assert "-DWOOTZ_NVCC_MAJOR=13 -DWOOTZ_NVCC_MINOR=0 -isystem /c/include -isystem /cuda/include" in command
    assert "default stub/copy/sm_90a.so $\n  cubin/copy/sm_90a.cubin\n" in text


def test_commands_are_quoted_and_atomic(tmp_path: Path) -> None:
    text = ninja.render(_units(tmp_path, targets=("sm_90a",)), TOOLS, 2, 8 << 30)
    command = next(line for line in text.splitlines() if line.startswith("  command ="))
    assert "'/opt/a b/nvcc'" in command
    assert command.startswith("  command = rm -f $out && ")
    assert "-o $out.tmp $in && { test -f $out.tmp || " in command
    assert command.endswith("&& mv -f $out.tmp $out || { rm -f $out.tmp $out.d; exit 1; }")
    for flag in ("-cubin", "-std=c++17", "-O3", "-DNDEBUG", "-fmad=false", "-MD", "-arch=$arch"):
        assert f" {flag} " in command, flag


def test_edges_of_each_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.platform, "machine", lambda: "x86_64")
    targets = toy.TARGETS.replace("isa: [baseline]", "isa: [x86-64-v3, baseline]")
    manifest = plan.load(toy.manifest(tmp_path / "m.yaml", {"a4": 32}, targets))
    units = plan.units(manifest, plan.select(manifest, plan.Request(kernels=("dequant",))))
    edges = {edge.output: edge for unit in units for edge in ninja.edges(unit)}
    assert list(edges) == [
        "cpu/dequant/a4/cpu.x86-64-v3.so",
        "cpu/dequant/a4/cpu.baseline.so",
        "cubin/dequant/a4/sm_80.cubin",
        "cubin/dequant/a4/sm_90a.cubin",
        ".wootz/metallib/dequant/a4/metal3.1.metallib.air",
        "metallib/dequant/a4/metal3.1.metallib",
    ]
    assert edges["cpu/dequant/a4/cpu.x86-64-v3.so"].variables["march"] == "-march=x86-64-v3"
    assert edges["cpu/dequant/a4/cpu.baseline.so"].variables["march"] == ""
    assert edges["cubin/dequant/a4/sm_90a.cubin"].variables["arch"] == "sm_90a"
    air = edges[".wootz/metallib/dequant/a4/metal3.1.metallib.air"]
    assert air.variables["minimum"] == "-mmacosx-version-min=14.0"
    command = ninja.expand(ninja.bare(ninja.commands(Toolchain())["air"]), air)
    assert command == (
        "xcrun -sdk macosx metal -x metal -O2 -fno-fast-math -std=metal3.1 -mmacosx-version-min=14.0 "
        "-c src/dequant/a4/metal3.1.metal -o .wootz/metallib/dequant/a4/metal3.1.metallib.air"
    )


def test_a_foreign_instruction_set_has_no_edge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.platform, "machine", lambda: "aarch64")
    targets = toy.TARGETS.replace("isa: [baseline]", "isa: [x86-64-v3, baseline]")
    manifest = plan.load(toy.manifest(tmp_path / "m.yaml", {"a4": 32}, targets))
    units = list(plan.units(manifest, plan.select(manifest, plan.Request(profile="cpu"))))
    assert [isa for unit in units for isa, _ in ninja.built_artifacts(unit)] == ["baseline", "baseline"]


def test_metal_is_in_the_graph_but_not_in_the_default(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text(ninja.render(_units(tmp_path), TOOLS, 2, 8 << 30))
    binary = toolchain.find_ninja()

    def ask(*args: str) -> str:
        return subprocess.run(
            [binary, *args], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    every = {line.split(": ")[0] for line in ask("-t", "targets", "all").splitlines()}
    assert "metallib/dequant/a4/metal3.1.metallib" in every
    assert "cubin/copy/sm_80.cubin" in every
    default = ask("-t", "commands")
    assert "metallib" not in default
    assert default.count("nvcc") == 4
    assert default.count("/usr/bin/c++ -std") == 2


def test_same_text_from_the_same_plan(tmp_path: Path) -> None:
    units = _units(tmp_path)
    assert ninja.render(units, TOOLS, 2, 8 << 30) == ninja.render(units, TOOLS, 2, 8 << 30)
