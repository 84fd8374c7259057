"""Hand-written kernels: what is declared of them, what is emitted, what compilers say of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import wootz
from wootz import bench, verify

from gen.cli import main
from gen.emit import emission
from gen.manifest.reader import ManifestError
from gen.plan import cells as plan

MANIFEST = """\
version: 1
targets:
  cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}
  sm_90a: {backend: cuda, capability: [9, 0], suffix: a, features: [f16, bf16]}
formats: {}
kernels:
  axpby:
    dtypes: [f32]
    check: axpby.py
    operands: {x: {shape: [n]}, y: {shape: [n]}}
    output: {z: {shape: [n]}}
    scalars: {a: {type: f32, default: 1}, b: {type: f32, default: 1}}
    flat: true
    source:
      cpu: {file: axpby.cpp, grid: [ceildiv, n, 4096]}
      cuda: {file: axpby.cu, block: [128, 2], grid: [[ceildiv, n, 256], 1], shared: [mul, n, 0]}
profiles:
  default: {targets: [cpu]}
  cuda: {targets: [sm_90a]}
"""
HEADER = "#pragma once\n#include <cstdint>\nconstexpr uint32_t PART = 4096;\n"
CPU = """\
#include "part.h"
#include "part.h"

void axpby_f32(const float* x, const float* y, float* z, uint32_t n, float a, float b, const uint32_t* block)
{
    const uint32_t first = block[0] * PART, last = n < first + PART ? n : first + PART;
    for (uint32_t i = first; i < last; ++i) z[i] = a * x[i] + b * y[i];
}
"""
CUDA = """\
extern "C" __global__ void axpby_f32(const float* x, const float* y, float* z, unsigned n, float a, float b) {
    const unsigned i = (blockIdx.x * 2 + threadIdx.y) * 128 + threadIdx.x;
    if (i < n) z[i] = a * x[i] + b * y[i];
}
"""
CHECK = """\
import numpy as np
from wootz.checking import Expected, activations, bound, flat_shapes as shapes, to_double


def operands(format, size, dtype, options, rng):
    x, y = (activations((size["n"],), dtype, rng) for _ in range(2))
    return {"x": x, "y": y, "a": 0.5, "b": -2.0}


def expect(operands, dtype, options):
    parts = [operands[k] * to_double(operands[n], dtype) for k, n in (("a", "x"), ("b", "y"))]
    return Expected(sum(parts), bound(sum(parts), dtype, 4.0, sum(map(np.abs, parts))))
"""
A, CPU_AT = "mine.yaml:12: kernels.axpby.scalars.a.default: ", "kernels.axpby.source.cpu."
WANTED = (
    "axpby.cpp: wanted void axpby_f32(const float* x, const float* y, float* z, uint32_t n, "
    "float a, float b, const uint32_t* block)"
)
FILES = {"mine.yaml": MANIFEST, "part.h": HEADER, "axpby.cpp": CPU, "axpby.cu": CUDA, "axpby.py": CHECK}


def project(folder: Path, **changes: tuple[str, str]) -> Path:
    """The manifest of a project in a folder. changes: (old, new) in the file of that stem and suffix."""
    folder.mkdir(exist_ok=True)
    for name, text in FILES.items():
        old, new = changes.get(name.replace(".", "_"), ("", ""))
        assert old in text
        (folder / name).write_text(text.replace(old, new) if old else text)
    return folder / "mine.yaml"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact folder with the kernel, for the CPU."""
    folder = tmp_path_factory.mktemp("written")
    assert main(["build", "--manifest", str(project(folder)), "--out", str(folder / "out")]) == 0
    return folder / "out"


def test_it_is_called_like_any_other(built: Path) -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)
    axpby = wootz.load(built).kernel("axpby")
    assert np.array_equal(axpby(x, y, a=2.0, b=-1.0), 2 * x - 1)
    with pytest.raises(wootz.errors.ArgumentError, match="y has shape"):
        axpby(x, y[0])


def test_it_is_verified_with_its_own_check(built: Path) -> None:
    rows = list(verify.verify(wootz.load(built), "cpu"))
    assert [(row.cell, row.passed) for row in rows] == [("axpby/-/f32/cpu", True)]


def test_a_wrong_check_is_seen_and_a_changed_one_is_not_run(built: Path) -> None:
    lib = wootz.load(built)
    record = lib.index.find("kernels", "axpby")
    file = built / record["check"]["file"]
    text = file.read_text()
    try:
        file.write_text(text + "raise RuntimeError('ran')\n")
        (row,) = verify.verify(lib, "cpu")
        assert not row.passed
        assert "ArtifactError" in row.message
        assert "ran" not in row.message
        file.unlink()
        (row,) = verify.verify(lib, "cpu")
        assert "is missing" in row.message
    finally:
        file.write_text(text)


def test_it_is_benched_with_its_own_check(built: Path) -> None:
    """Of the folder, at the bytes that the index names; a result that the check does not allow is no row."""
    lib, device = wootz.load(built), bench.open_device("cpu")
    (cell,) = lib.cells()
    file = built / lib.index.find("kernels", "axpby")["check"]["file"]
    problem = bench.operands_for(lib, cell, {"n": 5000})
    runs = bench.prepare(lib.kernel("axpby"), bench.place(problem, device, 2), device)
    assert bench.check(problem, runs, device).passed
    problem.values["a"] = 3.0
    other = dataclasses.replace(problem)  # without the reference that it has kept
    with pytest.raises(bench.MismatchError, match="axpby/-/f32/cpu is wrong at n = 5000"):
        bench.check(other, runs, device)
    text = file.read_text()
    try:
        file.write_text(text + "raise RuntimeError('ran')\n")
        with pytest.raises(wootz.errors.ArtifactError, match="axpby"):
            bench.operands_for(lib, cell, {"n": 8})
    finally:
        file.write_text(text)


def test_the_source_is_whole_and_names_the_files(built: Path) -> None:
    text = (built / "src/axpby/cpu.cpp").read_text()
    assert text.count("PART = 4096") == 1
    assert '#line 1 "axpby.cpp"' in text
    assert '#line 1 "part.h"' in text
    assert 'part.h"\n#include' not in text
    assert str(built.parent) not in text


def test_the_entry_of_a_gpu_is_as_declared(tmp_path: Path) -> None:
    found = plan.load(project(tmp_path))
    (unit,) = plan.units(found, plan.select(found, plan.Request("cuda")))
    made = emission.rendered(unit)
    entry = made.entries[0]["entry"]
    assert made.kind == "lean"
    said = "wanted void axpby_f32(POINTER x, POINTER y, POINTER z, unsigned n, float a, float b)"
    assert (
        f'static_assert(decltype(wootz_takes_axpby_f32(axpby_f32))::value, "axpby.cu: {said}");' in made.text
    )
    assert (entry["symbol"], entry["block"]) == ("axpby_f32", [128, 2, 1])
    assert entry["grid"] == [["ceildiv", "n", 256], 1, 1]
    assert entry["args"] == [
        ["x", "ptr", "in"], ["y", "ptr", "in"], ["z", "ptr", "out"], ["n", "u32", "shape"],
        ["a", "f32", "scalar"], ["b", "f32", "scalar"],
    ]  # fmt: skip


def test_an_edit_of_a_header_builds_again(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["build", "--manifest", str(built.parent / "mine.yaml"), "--out", str(built), "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["compiled"] == 0
    header = built.parent / "part.h"
    header.write_text(HEADER.replace("4096", "4096u"))
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["compiled"] == 1
    (built.parent / "axpby.py").write_text(CHECK + "# another\n")
    assert main(command) == 0
    assert (built / "checks/axpby.py").read_text().endswith("# another\n")


def test_what_was_proven_counts_while_the_check_is_the_same(built: Path, tmp_path: Path) -> None:
    command = ["build", "--manifest", str(built.parent / "mine.yaml"), "--out", str(built)]
    command += ["--evidence", str(tmp_path)]
    assert main(command) == 0
    lib = wootz.load(built)
    record = verify.report(list(verify.verify(lib, "cpu")), "cpu", lib)
    (tmp_path / "cpu.json").write_text(json.dumps(record))
    assert main(command) == 0
    assert _evidence(built) == ["emitted", "compiled", "executed:cpu"]
    (built.parent / "axpby.py").write_text(CHECK + "# a wider bound\n")
    assert main(command) == 0
    assert _evidence(built) == ["emitted", "compiled"]


def _evidence(folder: Path) -> list[str]:
    (cell,) = json.loads((folder / "index.json").read_text())["cells"]
    return list(cell["evidence"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("z[i] = a", "z[i] = q"), "axpby.cpp:7:"),
        (("float a, float b, ", "float a, "), "the declared call of axpby_f32"),
        (("axpby_f32", "axpby"), "axpby_f32"),
        (("const float* x", "const int* x"), "the declared call of axpby_f32"),
        (("uint32_t n", "uint16_t n"), WANTED),
        (("float a,", "int a,"), WANTED),
        (("float a,", "double a,"), WANTED),
        (("float* z", "const float* z"), WANTED),
    ],
)
def test_what_the_compiler_refuses_is_not_shipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], said: str
) -> None:
    path = project(tmp_path, axpby_cpp=change)
    assert main(["build", "--manifest", str(path), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert "its compiler failed" in error
    assert not (tmp_path / "out/index.json").exists()
    assert not list((tmp_path / "out").rglob("*.so"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "shape: [n]}, y",
            "shape: [n]}, n",
            ("kernels.axpby: n is an axis and an operand or scalar: name one of them otherwise"),
        ),
        ("{z: {shape: [n]}}", "{z: {shape: [m]}}", "kernels.axpby: z has the axis m, which no operand binds"),
        (
            "grid: [ceildiv, n, 4096]",
            "grid: [ceildiv, m, 4096]",
            "kernels.axpby.source.cpu.grid: no number is named 'm'",
        ),
        (
            "grid: [ceildiv, n, 4096]",
            "grid: [[ceildif, n, 4096]]",
            "kernels.axpby.source.cpu.grid: no operation is named 'ceildif'; did you mean 'ceildiv'?",
        ),
        (
            "shared: [mul, n, 0]",
            "shared: [mul, n]",
            "kernels.axpby.source.cuda.shared: has 2 entries, wanted 3 to 3",
        ),
        (
            "file: axpby.cpp",
            "file: axpby.cu",
            "kernels.axpby.source.cpu.file: 'axpby.cu' ends in '.cu', wanted .cpp",
        ),
        (
            "file: axpby.cpp",
            "file: 'ax\"pby.cpp'",
            "kernels.axpby.source.cpu.file: 'ax\\\"pby.cpp' holds a character that a #line cannot have",
        ),
        ("file: axpby.cpp", "file: axpy.cpp", "kernels.axpby.source.cpu.file: 'axpy.cpp': no such file in"),
        (
            "    flat: true",
            "    args: [x, y, z, k]",
            "kernels.axpby.args[3]: no operand, extent or scalar is named 'k'",
        ),
        (
            "    flat: true",
            "    args: [x, y, z, {a: u64}]",
            "kernels.axpby.args[3]: a cannot be of type 'u64'",
        ),
        (
            "    flat: true",
            "    symbol: 'axpby_{type}'",
            (
                "kernels.axpby.symbol: symbol 'axpby_{type}': cannot be "
                "filled in: 'type'; known: {kernel}, {dtype}, {format}"
            ),
        ),
        (
            "    flat: true",
            "    symbol: axpby-f32",
            "kernels.axpby.symbol: gives 'axpby-f32', wanted an identifier",
        ),
        (
            "dtypes: [f32]",
            "dtypes: [f32, f16]\n    symbol: axpby",
            ("kernels.axpby.symbol: gives axpby for f32 and for f16: put {dtype} and options into it"),
        ),
        (
            "    flat: true",
            "    file: axpby.py",
            ("kernels.axpby.source: stands beside file: a kernel is written in the DSL, or by hand"),
        ),
        (
            "cpu: {file: axpby.cpp, grid",
            "cpu: {file: axpby.cpp, block: 4, grid",
            ("kernels.axpby.source.cpu.block: is for GPUs"),
        ),
        (
            "{type: f32, default: 1}, b",
            "{type: f16, default: 1}, b",
            ("kernels.axpby.scalars.a.type: 'f16' is not known here"),
        ),
        ("{type: f32, default: 1}, b", "{type: f32, default: .nan}, b", f"{A}is nan, wanted a finite number"),
        ("{type: f32, default: 1}, b", "{type: f32, default: 1e300}, b", f"{A}is 1e+300, wanted a finite"),
        ("{type: f32, default: 1}, b", "{type: u32, default: -1}, b", f"{A}is -1, wanted a whole number"),
        ("{type: f32, default: 1}, b", "{type: u32, default: 0.5}, b", f"{A}is 0.5, wanted a whole number"),
        (
            "{type: f32, default: 1}, b",
            "{type: u32, default: 2, choices: [p, q]}, b",
            f"{A}is 2, wanted a whole number from 0 to 1",
        ),
        (
            "[ceildiv, n, 4096]",
            "[ceildiv, n, 0]",
            f"{CPU_AT}grid: ceildiv divides by zero",
        ),
        ("[ceildiv, n, 4096]", "[[mod, n, [sub, 2, 2]]]", f"{CPU_AT}grid: mod divides by zero"),
        ("[ceildiv, n, 4096]", "[sub, 3, 3]", f"{CPU_AT}grid: is always 0, wanted 1 or more"),
        ("[ceildiv, n, 4096]}", "[ceildiv, n, 4096], when: [[lt, 2, 1]]}", f"{CPU_AT}when: is always 0"),
        ("[ceildiv, n, 4096]}", "n, workspace: [sub, 1, 2]}", f"{CPU_AT}workspace: is always -1, wanted 0"),
        ("    flat: true", "    args: [x, y, n]", "mine.yaml:13: kernels.axpby.args: leaves z out: pass it"),
        ("    flat: true", "    args: [x, z, n]", "kernels.axpby.args: leaves y out: pass it"),
        ("    flat: true", "    args: [x, y, y, z, n]", "kernels.axpby.args[2]: y is there twice"),
        ("      cuda:", "      hip:", "kernels.axpby.source.hip: unknown key 'hip'"),
        ("output: {z: {shape: [n]}}", "output: {}", "kernels.axpby.output: is empty"),
    ],
)
def test_what_is_wrong_with_a_declaration(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        plan.load(project(tmp_path, mine_yaml=(old, new)))
    assert any(each in str(caught.value) for each in said.split("|")), str(caught.value)


def test_a_target_without_a_source_is_refused(tmp_path: Path) -> None:
    path = project(tmp_path, mine_yaml=("      cpu: {file: axpby.cpp, grid: [ceildiv, n, 4096]}\n", ""))
    found = plan.load(path)
    (unit,) = plan.units(found, plan.select(found, plan.Request()))
    assert [(c.state, c.reason) for c in unit.cells] == [
        ("refused", "axpby has a source for cuda, none for cpu")
    ]


UNPACK = """\
version: 1
extends: wootz
kernels:
  unpack8:
    dtypes: [f32]
    formats: [int8]
    options: {order: [plain, twice]}
    check: unpack8.py
    operands: {w: {kind: quantised, shape: [n, k]}}
    output: {y: {shape: [n, k]}}
    args: [w.codes, w.scale, y, {n: u64}, k]
    symbol: "{kernel}_{format}_{order}"
    source: {cpu: {file: unpack8.cpp, grid: n}}
profiles:
  default: {targets: [cpu]}
"""
UNPACK_CPU = """\
#include <cstdint>

template <int TIMES>
void unpack(const int8_t* codes, const float* scales, float* y, uint64_t n, uint32_t k, const uint32_t* block)
{
    const uint64_t row = block[0];
    for (uint64_t i = 0; i < k; ++i) {
        y[row * k + i] = TIMES * scales[row * (k / 64) + i / 64] * float(codes[row * k + i]);
    }
}
constexpr auto unpack8_int8_plain = unpack<1>, unpack8_int8_twice = unpack<2>;
"""
UNPACK_CHECK = """\
import numpy as np
from wootz.checking import Expected, bound, quantize


def shapes(format):
    return [{"n": 3, "k": 128}, {"n": 5, "k": 192}]


def operands(format, size, dtype, options, rng):
    return {"w": quantize(rng.standard_normal((size["n"], size["k"])).astype(np.float32), format)}


def expect(operands, dtype, options):
    value = operands["w"].dequantize().astype(np.float64) * (2 if options["order"] == "twice" else 1)
    return Expected(value, bound(value, dtype, 2.0, np.abs(value)))
"""


def test_a_hand_written_kernel_of_a_format_with_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("mine.yaml", UNPACK), ("unpack8.cpp", UNPACK_CPU), ("unpack8.py", UNPACK_CHECK)):
        (tmp_path / name).write_text(text)
    command = ["build", "--manifest", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    rows = list(verify.verify(wootz.load(tmp_path / "out"), "cpu"))
    assert [(row.cell, row.passed) for row in rows] == [
        ("unpack8.plain/int8/f32/cpu", True),
        ("unpack8.twice/int8/f32/cpu", True),
    ]
    (tmp_path / "mine.yaml").write_text(UNPACK.replace("w.scale,", "w.scales,"))
    assert main(command) == 1
    said = "unpack8/int8/cpu: unpack8.cpp: args has w.scales; of format int8 there are w.codes, w.scale"
    assert said in capsys.readouterr().err


METAL = """\
#include <metal_stdlib>
kernel void axpby_f32(device const float* x [[buffer(0)]], device const float* y [[buffer(1)]],
                      device float* z [[buffer(2)]], constant uint& n [[buffer(3)]],
                      constant float& a [[buffer(4)]], constant float& b [[buffer(5)]],
                      uint i [[thread_position_in_grid]])
{
    if (i < n) z[i] = a * x[i] + b * y[i];
}
"""


def test_a_metal_source_is_emitted_as_it_is(tmp_path: Path) -> None:
    path = project(tmp_path)
    row = "targets:\n  apple: {backend: metal, arch: metal3.1, features: [f16]}\n"
    source = "      metal: {file: axpby.metal, block: 256, grid: [ceildiv, n, 256]}\n"
    profiles = f"{source}profiles:\n  metal: {{targets: [apple]}}\n"
    path.write_text(MANIFEST.replace("targets:\n", row, 1).replace("profiles:\n", profiles))
    (tmp_path / "axpby.metal").write_text(METAL)
    found = plan.load(path)
    (unit,) = plan.units(found, plan.select(found, plan.Request("metal")))
    made = emission.rendered(unit)
    assert made.text.partition("\n")[2] == f'#line 1 "axpby.metal"\n{METAL}'
    assert made.entries[0]["entry"]["symbol"] == "axpby_f32"
