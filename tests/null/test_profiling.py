"""Ranges around calls, and the switch of a profiler: with stand-ins for the packages that do it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz import profiling
from wootz.errors import ArgumentError, DeviceError, DriverError, MissingPackageError
from wootz.kernel import Kernel

from tests.null import loader_tools as tools


class Domain:
    """As nvtx.get_domain's."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def get_event_attributes(self, message: str) -> str:
        return f"range {message}"

    def push_range(self, attributes: str) -> None:
        self.calls.append(attributes)

    def pop_range(self) -> None:
        self.calls.append("pop")


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    profiling._domain.cache_clear()
    yield
    profiling.nvtx(False)
    profiling._domain.cache_clear()


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Domain:
    made = Domain()
    module = types.SimpleNamespace(get_domain=lambda name: {"wootz": made}[name])
    monkeypatch.setitem(sys.modules, "nvtx", module)  # type: ignore[arg-type]
    return made


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    return wootz.load(tools.cpu_folder(tmp_path_factory.mktemp("profiling") / "a", tools.image()))


# ---- ranges


def test_kernels_got_while_on_mark_their_calls(lib: wootz.Library, domain: Domain) -> None:
    x, y = np.ones(4, np.float16), np.zeros(4, np.float16)
    with profiling.nvtx(True):
        copy = lib.kernel("copy", dtype="f16")
    assert copy(x, out=y) is y
    assert domain.calls == ["range copy/-/f16", "pop"]
    with pytest.raises(ArgumentError):
        copy(x[::2], out=y)
    assert domain.calls[2:] == ["range copy/-/f16", "pop"], "a call that fails ends its range"
    assert copy.name == "copy/-/f16"
    assert repr(copy).startswith("<kernel copy/-/f16")
    assert copy.workspace_bytes("cpu", n=4) == 0


def test_off_there_is_nothing_between(lib: wootz.Library, domain: Domain) -> None:
    before = lib.kernel("copy", dtype="f16")
    with profiling.nvtx():
        with profiling.nvtx(False):
            assert type(lib.kernel("copy", dtype="f16")) is Kernel
        assert type(lib.kernel("copy", dtype="f16")) is not Kernel
        before(np.ones(4, np.float16))
    assert type(before) is type(lib.kernel("copy", dtype="f16")) is Kernel
    assert not domain.calls
    profiling.nvtx(True)
    assert type(lib.kernel("copy", dtype="f16")) is not Kernel


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, lib: wootz.Library) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(MissingPackageError, match="package nvtx: pip install nvtx"):
        profiling.nvtx(True)
    assert type(lib.kernel("copy", dtype="f16")) is Kernel
    monkeypatch.setattr(profiling, "_on", True)  # as WOOTZ_NVTX=1 has it
    with pytest.raises(ImportError, match="pip install nvtx"):
        lib.kernel("copy", dtype="f16")


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("", False)])
def test_the_environment(value: str, on: bool) -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; from wootz import profiling; print(profiling._on)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"WOOTZ_NVTX": value}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{on}\n"


@pytest.mark.skipif(importlib.util.find_spec("nvtx") is None, reason="nvtx is not installed")
def test_the_real_package(lib: wootz.Library) -> None:
    with profiling.nvtx(True):
        copy = lib.kernel("copy", dtype="f16")
    assert copy(np.ones(4, np.float16)).sum() == 4


# ---- what a profiler records


class Status(IntEnum):
    cudaSuccess = 0
    cudaErrorNoDevice = 100


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """torch, CuPy and the bindings: their calls in order."""
    calls: list[str] = []

    def add(module: str, result: Any = None, **names: str) -> None:
        made = {name: lambda text=text: (calls.append(text), result)[1] for name, text in names.items()}
        monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(**made))  # type: ignore[arg-type]

    add("torch")
    add("torch.cuda.profiler", start="torch on", stop="torch off")
    add("cupy")
    add("cupy.cuda.runtime", profilerStart="cupy on", profilerStop="cupy off")
    success = (Status.cudaSuccess,)
    add("cuda.bindings.runtime", success, cudaProfilerStart="cuda on", cudaProfilerStop="cuda off")
    return calls


@pytest.mark.parametrize(
    ("without", "name"), [((), "torch"), (("torch",), "cupy"), (("torch", "cupy"), "cuda")]
)
def test_capture(
    packages: list[str], monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...], name: str
) -> None:
    for package in without:
        monkeypatch.delitem(sys.modules, package)
    with profiling.capture():
        packages.append("work")
    assert packages == [f"{name} on", "work", f"{name} off"]
    packages.clear()
    with pytest.raises(KeyError), profiling.capture():
        raise KeyError
    assert packages == [f"{name} on", f"{name} off"]


def test_capture_with_none_of_them(packages: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("torch", "cupy"):
        monkeypatch.delitem(sys.modules, package)
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    with (
        pytest.raises(MissingPackageError, match="torch or CuPy, imported, or cuda-bindings"),
        profiling.capture(),
    ):
        packages.append("work")
    assert not packages


def test_capture_without_a_device(packages: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> None:
        raise RuntimeError("no CUDA in this build")

    monkeypatch.setattr(sys.modules["torch.cuda.profiler"], "start", failing)
    with (
        pytest.raises(DeviceError, match="cudaProfilerStart failed: no CUDA in this build"),
        profiling.capture(),
    ):
        packages.append("work")
    for package in ("torch", "cupy"):
        monkeypatch.delitem(sys.modules, package)
    runtime = sys.modules["cuda.bindings.runtime"]
    monkeypatch.setattr(runtime, "cudaProfilerStart", lambda: (Status.cudaErrorNoDevice,))
    with (
        pytest.raises(DriverError, match=r"cudaProfilerStart failed: cudaErrorNoDevice \(100\)"),
        profiling.capture(),
    ):
        packages.append("work")
    assert not packages


def test_importing_it_imports_none_of_them(tmp_path: Path) -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; from wootz import profiling; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"'nvtx'", "'torch'", "'cupy'", "'cuda'"} & set(done.stdout.strip("[]\n").split(", "))


def test_plans_and_what_they_bind(lib: wootz.Library, domain: Domain) -> None:
    x = np.ones(4, np.float16)
    with profiling.nvtx(True):
        plan = lib.plan("copy", dtype="f16", device="cpu", n=4)
    bound = plan.bind(x)
    assert domain.calls == []
    np.testing.assert_array_equal(plan(x), x)
    np.testing.assert_array_equal(bound(), x)
    assert domain.calls == ["range copy/-/f16", "pop"] * 2
