"""On a device: what `wootz info` says of it, arrays of every dtype that torch has, profilers."""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from typing import Any

import needs
import numpy as np
import pytest
import wootz
from wootz import arrays, info, introspection, profiling
from wootz.errors import ArgumentError, DeviceError, DtypeError, WootzError

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")
TAKEN = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "bool",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip


# ---- info


def test_the_device(lib: Any, capsys: pytest.CaptureFixture[str]) -> None:
    torch.zeros(1, device="cuda")  # a context is active, so that free memory is known
    assert info.main(["--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    device, known = facts["devices"][0], torch.cuda.get_device_properties(0)
    assert device["name"] == known.name
    assert device["capability"] == f"{known.major}.{known.minor}"
    assert device["sms"] == known.multi_processor_count
    assert device["memory_bytes"] == known.total_memory
    assert device["integrated"] is bool(known.is_integrated)
    assert 0 < device["free_bytes"] < device["memory_bytes"]
    assert facts["library"]["cells"] == lib.index.count("cells")
    assert info.main([]) == 0
    print(capsys.readouterr().out)


def test_what_is_named_is_what_loads(lib: Any) -> None:
    for cell in introspection.picked(lib, "cuda:0", "copy"):
        assert cell["target"] in cell["cell"]
        lib.kernel("copy", dtype=cell["cell"].split("/")[2]).preload("cuda:0")


# ---- arrays


def torch_types() -> list[Any]:
    return sorted({each for each in vars(torch).values() if isinstance(each, torch.dtype)}, key=str)


def made(dtype: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.empty((2, 16), dtype=dtype, device="cuda")
        except (RuntimeError, TypeError, NotImplementedError):
            pytest.skip(f"torch makes no {dtype} on the device")


@pytest.mark.parametrize("dtype", torch_types(), ids=str)
def test_torch_dtypes_are_taken_or_refused_by_name(dtype: Any) -> None:
    array, name = made(dtype), str(dtype).rpartition(".")[2]
    if name in TAKEN:
        view = arrays.view(array, "x")
        assert (view.dtype, view.device, view.shape) == (TAKEN[name], "cuda:0", (2, 16))
        assert view.address == array.data_ptr()
        return
    kind = DtypeError if name.startswith(("float", "complex")) else WootzError
    with pytest.raises(kind, match=r"^x "):
        arrays.view(array, "x")


def test_torch_subclasses_and_lazy_tensors() -> None:
    class Marked(torch.Tensor):  # type: ignore[misc]
        pass

    plain = torch.zeros(16, dtype=torch.float16, device="cuda")
    assert arrays.view(plain.as_subclass(Marked), "x").address == plain.data_ptr()
    with pytest.raises(ArgumentError, match=r"x requires gradients.*x\.detach"):
        arrays.view(torch.nn.Parameter(plain), "x")
    complex_ = torch.zeros(4, dtype=torch.complex64, device="cuda")
    with pytest.raises(ArgumentError, match=r"x\.resolve_conj\(\)"):
        arrays.view(complex_.conj(), "x")
    with pytest.raises(ArgumentError, match=r"x\.resolve_neg\(\)"):
        arrays.view(complex_.conj().imag, "x")
    with pytest.raises(WootzError, match=r"^x "):
        arrays.view(torch.zeros(3, device="meta"), "x")
    with pytest.raises(WootzError, match=r"^x "):
        arrays.view(torch.eye(3, device="cuda").to_sparse(), "x")


def test_an_address_that_is_no_devices() -> None:
    host = np.zeros(16, np.float32)

    class Claims:
        def __init__(self) -> None:
            data = host.ctypes.data, False
            self.__cuda_array_interface__ = {"version": 3, "shape": (16,), "typestr": "<f4", "data": data}

    with pytest.raises(DeviceError, match=r"^x is at address \d+, which is no device's memory"):
        arrays.view(Claims(), "x")


# ---- profilers


def test_capture_through_torch_and_the_bindings(lib: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(64, dtype=torch.float16, device="cuda")
    with profiling.capture():
        lib.kernel("copy", dtype="f16")(x)
    pytest.importorskip("cuda.bindings.runtime")
    for package in ("torch", "cupy"):
        monkeypatch.delitem(sys.modules, package, raising=False)
    with profiling.capture():
        pass


@pytest.mark.skipif(importlib.util.find_spec("nvtx") is None, reason="nvtx is not installed")
def test_ranges(lib: Any) -> None:
    x = torch.ones(64, dtype=torch.float16, device="cuda")
    with profiling.nvtx(True):
        copy = lib.kernel("copy", dtype="f16")
    assert bool((copy(x) == x).all())
    assert isinstance(wootz.load(), wootz.Library)
