"""`wootz info` where there is no GPU: facts, text, problems in their place. With a driver: test_driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import wootz
from wootz import _core, info, introspection, packages
from wootz.errors import DeviceError, DriverError, NoKernelError

from tests.null import loader_tools as tools


def no_driver() -> int:
    raise DeviceError("the CUDA driver cannot be loaded")


@pytest.fixture(autouse=True)
def _without_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "cuda_device_count", no_driver)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """CPU: everything but one cell, which is not compiled, and one for another instruction set. CUDA: all."""
    made = tools.Folder(tmp_path / "a")
    file = made.file("cpu/kernels.so", tools.image(), "baseline")
    made.add_all("cpu", [file])
    made.add_all("gpu80", [made.file("cubin/gpu80.cubin", b"FAKE")])
    cells = {cell["key"]: cell for cell in made.cells}
    cells["copy/-/bf16/cpu"]["files"] = []
    cells["copy/-/f16/cpu"]["files"] = [{**file, "isa": "x86-64-v9"}]
    cells["dequant/toy/f32/cpu"]["evidence"] = ["emitted", "compiled", "executed:cpu", "executed:Fake GPU"]
    made.targets[0]["isa"] = ["x86-64-v9", "baseline"]
    for target in ("cpu", "gpu80"):
        made.cell("binary.mul", "-", "f32", target, [])
    return made.write()


def test_the_machine_and_its_library(folder: Path) -> None:
    facts = introspection.environment(str(folder))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["driver"] == {"problem": "the CUDA driver cannot be loaded"}
    (cpu,) = facts["devices"]
    assert (cpu["device"], cpu["isa"]) == ("cpu", {"x86-64-v9": False, "baseline": True})
    assert cpu["threads"] >= 1
    assert facts["library"] == {
        "path": str(folder), "generator": "test", "cells": 12, "kernels": 4, "formats": 1,
        "targets": ["cpu", "gpu80", "gpu90a"],
    }  # fmt: skip
    assert facts["coverage"] == [
        {
            "device": "cpu",
            "wanted": 6,
            "served": 3,
            "targets": [{"target": "cpu", "serves": 3, "executed": {"nowhere": 2, "cpu": 1, "Fake GPU": 1}}],
            "unserved": {
                "built for gpu80 only": 1,
                "needs an instruction set that this CPU lacks": 1,
                "built for no target": 1,
            },
        }
    ]


def test_what_is_counted_is_what_is_picked(folder: Path) -> None:
    lib = wootz.load(folder)
    (coverage,) = introspection.served(lib, ["cpu"])
    every = [cell for name in lib.kernels() for cell in introspection.picked(lib, "cpu", name)]
    assert len(every) == coverage["wanted"]
    assert sum("problem" not in cell for cell in every) == coverage["served"]


def test_the_best_target_serves_what_it_has(tmp_path: Path) -> None:
    """Two targets of the CPU are equally good: the index's first one comes first."""
    made = tools.Folder(tmp_path / "a")
    file = made.file("cpu/kernels.so", tools.image(), "baseline")
    made.targets.append({**made.targets[0], "key": "other"})
    made.cell("copy", "-", "f16", "cpu", [file], evidence=["emitted", "executed:cpu"])
    for kernel, format, dtype in tools.CELLS:
        made.cell(kernel, format, dtype, "other", [file])
    lib = wootz.load(made.write())
    (coverage,) = introspection.served(lib, ["cpu"])
    assert coverage["targets"] == [
        {"target": "cpu", "serves": 1, "executed": {"cpu": 1}},
        {"target": "other", "serves": 4, "executed": {"nowhere": 4}},
    ]
    targets = [cell["target"] for name in lib.kernels() for cell in introspection.picked(lib, "cpu", name)]
    assert sorted(targets) == ["cpu", *["other"] * 4]
    assert not coverage["unserved"]


def test_one_kernel(folder: Path) -> None:
    (cell,) = introspection.picked(wootz.load(folder), "cpu", "qgemv", "toy", "f32")
    assert cell == {
        "cell": "qgemv/toy/f32/cpu",
        "device": "cpu",
        "target": "cpu",
        "reason": "the best target for cpu",
        "file": "cpu/kernels.so",
        "bytes": len(tools.image()),
        "stub": None,
        "entries": [
            {"symbol": "gemv_one", "when": ["m <= 1"], "after": []},
            {"symbol": "gemv_many", "when": ["(m > 1) and (k <= 4096)"], "after": []},
        ],
        "evidence": ["emitted"],
    }


def test_options_and_problems(folder: Path) -> None:
    lib = wootz.load(folder)
    assert [cell["cell"] for cell in introspection.picked(lib, "cpu", "binary.add")] == [
        "binary.add/-/f32/cpu"
    ]
    add, mul = introspection.picked(lib, "cpu", "binary")
    assert add["file"] == "cpu/kernels.so"
    assert mul == {
        "cell": "binary.mul/-/f32", "device": "cpu",
        "problem": "binary.mul/-/f32 has no binary for cpu; it is shipped for: no target",
    }  # fmt: skip
    listed = r"no cell qgmv/\*/f32 in .*did you mean 'qgemv'\?; its cells\(\) lists them"
    with pytest.raises(NoKernelError, match=listed):
        introspection.picked(lib, "cpu", "qgmv", dtype="f32")
    with pytest.raises(NoKernelError, match=r"no cell qgemv/tyo/\* in .*did you mean 'toy'"):
        introspection.picked(lib, "cpu", "qgemv", "tyo")


# ---- the command


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    status = info.main([*map(str, arguments)])
    return status, *capsys.readouterr()


def test_text(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", dict)  # an installed wheel is one
    status, out, err = run(capsys, "--artifacts", folder)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("wootz ")
    assert lines[1] == "driver   unusable: the CUDA driver cannot be loaded"
    assert lines[2].endswith(" threads, cannot run x86-64-v9, runs baseline")
    assert lines[3].endswith(": 12 cells, 4 kernels, 1 formats; for cpu, gpu80, gpu90a")
    assert lines[4:7] == [
        "",
        "cpu runs 3 of 6 kernels (by format and dtype)",
        "  cpu             3  executed: 2 nowhere, 1 cpu, 1 Fake GPU",
    ]
    assert len(lines) == 10


def test_text_of_kernels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "qgemv", "--artifacts", folder)
    assert (status, out.splitlines()) == (
        0,
        [
            "qgemv/toy/f32/cpu on cpu",
            "  target    cpu: the best target for cpu",
            f"  file      cpu/kernels.so, {len(tools.image())} bytes",
            "  evidence  emitted",
            "  gemv_one: m <= 1",
            "  gemv_many: (m > 1) and (k <= 4096)",
        ],
    )
    status, out, _ = run(capsys, "binary", "--artifacts", folder)
    assert (status, out.splitlines()) == (
        0,
        [
            "binary.add/-/f32/cpu: cpu/kernels.so",
            "binary.mul/-/f32 has no binary for cpu; it is shipped for: no target",
        ],
    )


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(run(capsys, "--json", "--artifacts", folder)[1]) == introspection.environment(
        str(folder)
    )
    (cell,) = json.loads(run(capsys, "qgemv", "--json", "--artifacts", folder)[1])
    assert cell["cell"] == "qgemv/toy/f32/cpu"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "f16"], "--dtype is of a kernel: name one"),
        (["--device", "cpu"], "--device is of a kernel: name one"),
        (["nosuch"], "no cell nosuch/*/* in"),
        (["copy", "--device", "gpu"], 'device is \'gpu\'; want "cpu", "cuda"'),
        (["copy", "--device", "cuda:x"], "device is 'cuda:x'"),
    ],
)
def test_bad_use(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status, out, err = run(capsys, *arguments, "--artifacts", folder)
    assert (status, out) == (2, "")
    assert err.startswith("wootz info: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_no_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "--artifacts", tmp_path)
    assert (status, err) == (1, "")
    assert f"library  unusable: {tmp_path}/index.json does not exist" in out
    status, out, err = run(capsys, "copy", "--artifacts", tmp_path)
    assert (status, out) == (2, "")
    assert "index.json does not exist" in err


@pytest.mark.parametrize("damage", ['"files":7', '"files":[7]'])
def test_a_damaged_library(folder: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    tools.edit_index(folder / "index.json", b'"files":[]', damage.encode())
    status, out, err = run(capsys, "--artifacts", folder)
    assert (status, err) == (1, "")
    assert "library  unusable: " in out
    assert "build it again" in out


def test_a_bad_setting_is_a_problem_of_the_cpu(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WOOTZ_NUM_THREADS", "many")
    status, out, _ = run(capsys, "--artifacts", folder)
    assert status == 0
    assert 'cpu      unusable: WOOTZ_NUM_THREADS is "many"' in out


def test_a_broken_driver(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def broken() -> int:
        raise DriverError(999, "CUDA_ERROR_UNKNOWN", "cuInit", "unknown error")

    monkeypatch.setattr(_core, "cuda_device_count", broken)
    facts = introspection.machine()
    assert facts["driver"] == {
        "problem": "cuInit failed: CUDA_ERROR_UNKNOWN (999); unknown error; the system's log may hold a "
        "message of the driver"
    }
    monkeypatch.setattr(_core, "cuda_device_count", lambda: 0)
    assert introspection.machine()["driver"] == {"problem": "the driver has no usable device"}
