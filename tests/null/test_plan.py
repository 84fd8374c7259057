"""The plan: every cell has a state and, where it is no job, a reason; names; the growth it must stand."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from gen.manifest.target import Target
from gen.plan import cells as plan
from gen.plan import name

sys.path.insert(0, str(Path(__file__).resolve().parent))
import toy


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    toy.install(monkeypatch)


SKIPS = """skips:
  - {kernel: dequant, format: "a*", target: sm_80, reason: too wide for this chip}
  - {kernel: copy, dtype: f16, target: cpu, reason: slower than memcpy}
"""
F16_LESS = "  sm_75: {backend: cuda, capability: [7, 5]}\n"


def _cells(path: Path, **request: object) -> list[plan.Cell]:
    manifest = plan.load(path)
    selection = plan.select(manifest, plan.Request(**request), lambda: ())  # type: ignore[arg-type]
    return [cell for unit in plan.units(manifest, selection) for cell in unit.cells]


def test_every_cell_has_a_state_and_a_reason(tmp_path: Path) -> None:
    path = toy.manifest(tmp_path / "m.yaml", {"a4": 32, "b4": 64}, toy.TARGETS + F16_LESS, SKIPS)
    cells = {cell.key: cell for cell in _cells(path)}
    assert len(cells) == 5 * 2 + 5 * 2 * 2  # copy has no format, dequant two; two dtypes; five targets
    by_state = {
        state: [c for c in cells.values() if c.state == state] for state in ("job", "skip", "refused")
    }
    assert {c.key for c in by_state["skip"]} == {
        "dequant/a4/f16/sm_80",
        "dequant/a4/f32/sm_80",
        "copy/-/f16/cpu",
    }
    assert {c.reason for c in by_state["skip"]} == {"too wide for this chip", "slower than memcpy"}
    assert {c.key for c in by_state["refused"]} == {
        f"{k}/f16/sm_75" for k in ("copy/-", "dequant/a4", "dequant/b4")
    }
    assert all(c.reason for c in by_state["refused"])
    assert all(not c.reason for c in by_state["job"])


def test_units_hold_the_dtypes_that_are_jobs(tmp_path: Path) -> None:
    manifest = plan.load(toy.manifest(tmp_path / "m.yaml", {"a4": 32}, toy.TARGETS + F16_LESS))
    selection = plan.select(manifest, plan.Request(targets=("sm_75", "cpu")))
    units = {unit.key: unit for unit in plan.units(manifest, selection)}
    assert units["dequant/a4/sm_75"].dtypes == ("f32",)
    assert units["dequant/a4/cpu"].dtypes == ("f16", "f32")


def test_options_multiply_cells(tmp_path: Path) -> None:
    kernels = "\n  binary: {dtypes: [f32], formats: none, options: {op: [add, min]}}\n"
    path = toy.manifest(tmp_path / "m.yaml", {"a4": 32}, kernels=kernels)
    cells = _cells(path, targets=("cpu",))
    assert [c.key for c in cells] == ["binary.add/-/f32/cpu", "binary.min/-/f32/cpu"]
    assert [c.symbol for c in cells] == ["wootz_binary_add_f32", "wootz_binary_min_f32"]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"formats": ("b4",)}, {"dequant/b4"}),
        ({"formats": ("-",)}, {"copy/-"}),
        ({"formats": ("-", "?4")}, {"copy/-", "dequant/a4", "dequant/b4"}),
        ({"kernels": ("copy",)}, {"copy/-"}),
        ({}, {"copy/-", "dequant/a4", "dequant/b4"}),
    ],
)
def test_filters(tmp_path: Path, request_: dict[str, tuple[str, ...]], expected: set[str]) -> None:
    cells = _cells(toy.manifest(tmp_path / "m.yaml", {"a4": 32, "b4": 64}), **request_)
    assert {f"{c.kernel}/{c.format or '-'}" for c in cells} == expected


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"formats": ("int44",)}, "format 'int44': not in the manifest; did you mean 'int4'?"),
        ({"targets": ("sm_90",)}, "target 'sm_90': not in the manifest; did you mean 'sm_90a'?"),
        ({"kernels": ("copi*",)}, "kernel 'copi*': not in the manifest; did you mean 'copy'?"),
        ({"profile": "defualt"}, "profile 'defualt': not in the manifest; did you mean 'default'?"),
    ],
)
def test_unknown_names_have_a_near_miss(tmp_path: Path, request_: dict[str, object], message: str) -> None:
    with pytest.raises(plan.PlanError) as error:
        _cells(toy.manifest(tmp_path / "m.yaml", {"int4": 32}), **request_)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("devices", "expected", "note"),
    [
        ((), ("cpu",), "no NVIDIA device"),
        (((9, 0),), ("cpu", "sm_90a"), "target sm_90a"),
        (((8, 9),), ("cpu", "sm_80"), "target sm_80"),  # same major, not newer
        (((7, 5),), ("cpu",), "no target in the manifest fits"),
        (((9, 0), (8, 6)), ("cpu", "sm_80", "sm_90a"), "target sm_80"),
    ],
)
def test_native_takes_what_fits_the_devices(
    tmp_path: Path, devices: tuple[tuple[int, int], ...], expected: tuple[str, ...], note: str
) -> None:
    manifest = plan.load(toy.manifest(tmp_path / "m.yaml", {"a4": 32}))
    selection = plan.select(manifest, plan.Request(profile="native"), lambda: devices)
    assert selection.targets == expected
    assert any(note in text for text in selection.notes)


@pytest.mark.parametrize(
    ("capability", "suffix", "device", "expected"),
    [
        ((9, 0), "a", (9, 0), 3),
        ((9, 0), "a", (9, 1), 0),
        ((10, 0), "f", (10, 3), 2),
        ((10, 0), "a", (10, 3), 0),
        ((8, 0), "", (8, 6), 1),
        ((8, 6), "", (8, 0), 0),
        ((8, 0), "", (9, 0), 0),
        ((12, 0), "f", (10, 0), 0),
    ],
)
def test_fit(capability: tuple[int, int], suffix: str, device: tuple[int, int], expected: int) -> None:
    assert plan.fit(Target("t", "cuda", capability=capability, suffix=suffix), device) == expected


KERNELS = """
  copy: {dtypes: [f16, f32], targets: [cpu, sm_80, sm_90a]}
  dequant: {dtypes: [f16], formats: all}
"""
LISTED = (
    toy.TARGETS.replace("[8, 0],", "[8, 0], kernels: [copy],").rstrip()
    + "\n  sm_89: {backend: cuda, capability: [8, 9], kernels: [dequant], features: [f16]}\n"
)


def test_kernels_and_targets_that_do_not_list_each_other_are_not_planned(tmp_path: Path) -> None:
    manifest = plan.load(toy.manifest(tmp_path / "m.yaml", {"a4": 32}, LISTED, kernels=KERNELS))
    found = {unit.key for unit in plan.units(manifest, plan.select(manifest, plan.Request()))}
    assert found == {
        "copy/-/cpu", "copy/-/sm_80", "copy/-/sm_90a", "dequant/a4/cpu", "dequant/a4/sm_89",
        "dequant/a4/sm_90a", "dequant/a4/metal3.1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ((8, 9), ("cpu", "sm_80", "sm_89")),  # some kernels' best, and what has the others
        ((8, 6), ("cpu", "sm_80")),
        ((9, 0), ("cpu", "sm_90a")),
    ],
)
def test_native_takes_a_target_of_some_kernels_and_one_of_all(
    tmp_path: Path, device: tuple[int, int], expected: tuple[str, ...]
) -> None:
    targets = LISTED.replace("[8, 0], kernels: [copy],", "[8, 0],")
    manifest = plan.load(toy.manifest(tmp_path / "m.yaml", {"a4": 32}, targets))
    assert plan.select(manifest, plan.Request(profile="native"), lambda: (device,)).targets == expected


def test_names_of_a_unit() -> None:
    cuda = Target("sm_90a", "cuda", extension="fatbin")
    cpu = Target("cpu", "cpu", isa=("x86-64-v3", "baseline"), extension="so")
    metal = Target("metal3.1", "metal", extension="metallib")
    assert name.source("qgemv", "mxfp4", cuda) == "src/qgemv/mxfp4/sm_90a.cu"
    assert name.source("copy", None, cpu) == "src/copy/cpu.cpp"
    assert name.artifacts("qgemv", "mxfp4", cuda) == (("", "fatbin/qgemv/mxfp4/sm_90a.fatbin"),)
    assert name.compiled("fatbin/qgemv/mxfp4/sm_90a.fatbin") == "cubin/qgemv/mxfp4/sm_90a.cubin"
    assert name.compiled("metallib/copy/metal3.1.metallib") == "metallib/copy/metal3.1.metallib"
    assert name.artifacts("copy", None, metal) == (("", "metallib/copy/metal3.1.metallib"),)
    assert name.artifacts("copy", None, cpu) == (
        ("x86-64-v3", "cpu/copy/cpu.x86-64-v3.so"),
        ("baseline", "cpu/copy/cpu.baseline.so"),
    )
    assert name.stub_source("qgemv", "mxfp4", cuda) == "src/qgemv/mxfp4/sm_90a.stub.cpp"
    assert name.stub("gemm", None, cuda) == "stub/gemm/sm_90a.so"
    assert name.symbol("qgemv", {}, "mxfp4", "f32", "m2") == "wootz_qgemv_mxfp4_f32_m2"


def test_planning_costs_microseconds_a_cell(tmp_path: Path) -> None:
    manifest = plan.load(toy.manifest(tmp_path / "m.yaml", {f"f{i}": 32 for i in range(500)}))
    start = time.process_time()
    count = sum(len(u.cells) for u in plan.units(manifest, plan.select(manifest, plan.Request())))
    cost = (time.process_time() - start) / count
    assert count == 500 * 8 + 8
    assert cost < 60e-6, f"{cost * 1e6:.1f} us a cell"  # 20 on an idle machine
