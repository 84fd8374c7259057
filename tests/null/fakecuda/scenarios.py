"""What the loader does with a driver, seen by the stand-in that WOOTZ_LIBCUDA names.

`python scenarios.py NAME`, one process a scenario: a driver is loaded once a process.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import wootz
from wootz import arrays, errors

from tests.null import loader_tools as tools
from tests.null.fakecuda.standin import (
    F16,
    Driver,
    GpuArray,
    Interface,
    copy_on,
    launches,
    library,
    main,
    raises,
    scenario,
)

# ---- launching


@scenario
def launch() -> None:
    driver, lib = Driver(), library()
    assert driver.log() == [], "opening a library must touch no driver"
    kernel = lib.kernel("copy", dtype="f16", device="cuda")
    assert driver.log() == [], "neither must asking for a kernel"
    x, out = np.zeros(1000, F16), np.zeros(1000, F16)
    y = Interface(out, driver)
    assert kernel(Interface(x, driver), out=y) is y
    args = f"{x.ctypes.data},{out.ctypes.data},1000"
    assert launches(driver) == [
        f"cuLaunchKernel copy_u16 device=0 grid=4,1,1 block=1,1,1 shared=0 stream=1 args={args}"
    ], launches(driver)
    assert driver.log("cuModuleLoadData") == ["cuModuleLoadData FAKE gpu90a"], "the exact target comes first"
    driver.clear()
    kernel(Interface(x, driver), out=y)
    assert len(launches(driver)) == 1
    assert not driver.log("cuModule")
    assert not driver.log("cuDevicePrimaryCtxRetain"), "a context is retained once"
    driver.check_balance()


@scenario
def quantised() -> None:
    driver, lib = Driver(), library()
    q = wootz.quantize(np.ones((5, 70), np.float32), lib.format("toy")).map(lambda a: wootz.to_device(a))
    x = wootz.to_device(np.ones((3, 70), np.float32))
    y = lib.kernel("qgemv", format="toy", device="cuda:0")(x, q)
    assert isinstance(y, wootz.DeviceArray)
    assert y.shape == (3, 5)
    (line,) = launches(driver)
    assert "gemv_many device=0 grid=5,1,1" in line
    assert line.endswith(",3,5,70,80,18"), line
    assert y.numpy().shape == (3, 5)
    driver.check_balance()


@scenario
def no_rows() -> None:
    driver, lib = Driver(), library()
    q = wootz.quantize(np.ones((5, 8), np.float32), lib.format("toy")).map(lambda a: wootz.to_device(a))
    y = lib.kernel("qgemv", format="toy")(wootz.to_device(np.ones((0, 8), np.float32)), q)
    assert y.shape == (0, 5)
    assert not launches(driver)


@scenario
def device_arrays() -> None:
    driver = Driver()
    for dtype in (np.float32, F16, ml_dtypes.bfloat16, np.uint8):
        host = np.arange(40).astype(dtype).reshape(5, 8)
        copy = wootz.to_device(host[:, ::2], "cuda")
        view = arrays.view(copy, "x")
        assert (view.dtype, view.device, view.shape) == (arrays.view(host, "x").dtype, "cuda:0", (5, 4))
        assert (copy.numpy() == host[:, ::2]).all()
        assert copy.numpy().dtype == host.dtype
    kept = len(driver.log("cuMemAlloc"))
    del copy
    gc.collect()
    assert len(driver.log("cuMemFree")) == kept - 1, "a view keeps the memory alive"
    del view
    gc.collect()
    assert len(driver.log("cuMemFree")) == kept
    with raises(errors.DeviceError, "copies to CUDA devices"):
        wootz.to_device(host, "cpu")
    driver.check_balance()


@scenario
def second_device() -> None:
    driver, lib = Driver(), library()
    driver.device(count=2)
    kernel, x = lib.kernel("copy", dtype="f16"), np.zeros(16, F16)
    out = np.zeros(16, F16)
    kernel(GpuArray(x, 1), out=GpuArray(out, 1))
    kernel(Interface(x, driver, 1), out=Interface(out, driver, 1))
    assert ["device=1" in line for line in launches(driver)] == [True, True]
    with raises(errors.DeviceError, "out is on cuda:0, x is on cuda:1"):
        kernel(GpuArray(x, 1), out=GpuArray(out, 0))
    with raises(errors.DeviceError, "out is on cpu, x is on cuda:1"):
        kernel(GpuArray(x, 1), out=out)
    with raises(errors.DeviceError, "x is on cuda:1, the kernel was asked for on cuda:0"):
        lib.kernel("copy", dtype="f16", device="cuda:0")(GpuArray(x, 1), out=GpuArray(out, 1))
    with raises(errors.DriverError, "CUDA_ERROR_INVALID_DEVICE", "cuDeviceGet", "CUDA_VISIBLE_DEVICES"):
        kernel(GpuArray(x, 2), out=GpuArray(out, 2))
    driver.check_balance()


@scenario
def many_threads() -> None:
    driver, lib = Driver(), library()
    kernel = lib.kernel("copy", dtype="f16")
    x, y = GpuArray(np.zeros(16, F16)), GpuArray(np.zeros(16, F16))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                kernel(x, out=y, stream=3)
            driver.check_balance()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert not failures, failures
    assert len(driver.log("cuDevicePrimaryCtxRetain")) == 1


# ---- streams


def stream_of(line: str) -> str:
    return line.partition("stream=")[2].partition(" ")[0]


@scenario
def streams() -> None:
    driver, lib = Driver(), library()
    kernel = lib.kernel("copy", dtype="f16")
    x, y = GpuArray(np.zeros(16, F16)), GpuArray(np.zeros(16, F16))
    kernel(x, out=y)
    assert (x.streams, y.streams) == ([1], [1]), (
        "strangers are asked to order their work before the default stream"
    )
    kernel(x, out=y, stream=77)
    assert x.streams[-1] == 77
    kernel(x, out=y, stream=0)
    assert x.streams[-1] == 1, "DLPack forbids 0"
    assert [stream_of(line) for line in launches(driver)] == ["1", "77", "0"]
    assert not driver.log("cuStreamWaitEvent")


@scenario
def interface_streams() -> None:
    driver, lib = Driver(), library()
    kernel = lib.kernel("copy", dtype="f16")
    out = Interface(np.zeros(16, F16), driver)
    kernel(Interface(np.zeros(16, F16), driver, stream=55), out=out, stream=66)
    assert driver.log("cuEventRecord") == ["cuEventRecord 55"]
    assert driver.log("cuStreamWaitEvent") == ["cuStreamWaitEvent 66"]
    order = [line.split()[0] for line in driver.log() if line.startswith(("cuEvent", "cuStream", "cuLaunch"))]
    assert order == [
        "cuEventCreate",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuEventDestroy",
        "cuLaunchKernel",
    ], order
    driver.clear()
    kernel(Interface(np.zeros(16, F16), driver, stream=66), out=out, stream=66)
    kernel(Interface(np.zeros(16, F16), driver, stream=1), out=out)
    assert not driver.log("cuEvent"), "one stream needs no event"
    driver.check_balance()


class FakeTorch:
    """As much of torch as the loader looks at."""

    class Tensor(GpuArray):
        requires_grad = False

    class cuda:
        stream = 10

        @classmethod
        def current_stream(cls, device: int) -> Any:
            cls.stream += 1
            return type("Stream", (), {"cuda_stream": cls.stream})

    float16 = "float16"

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
        return cls.Tensor(np.zeros(shape, dtype), device)


@scenario
def framework_stream_is_read_at_every_call() -> None:
    sys.modules["torch"] = FakeTorch  # type: ignore[assignment]
    driver, lib = Driver(), library()
    kernel, x = lib.kernel("copy", dtype="f16"), FakeTorch.Tensor(np.zeros(16, F16))
    y = kernel(x)
    assert isinstance(y, FakeTorch.Tensor)
    kernel(x, out=y)
    kernel(x, out=y, stream=FakeTorch.cuda.current_stream(0))
    assert [stream_of(line) for line in launches(driver)] == ["11", "12", "13"]
    assert set(x.streams) == {-1}, "no synchronisation: the launch is on the tensors' own stream"
    kernel(GpuArray(np.zeros(16, F16)), out=y)
    assert driver.log("cuEventRecord") == ["cuEventRecord 1"], (
        "a stranger's work comes before the current stream's"
    )
    assert driver.log("cuStreamWaitEvent") == ["cuStreamWaitEvent 14"]


# ---- choosing


@scenario
def targets() -> None:
    driver, lib = Driver(), library()
    driver.device(capability=(8, 9))
    copy_on(lib)
    assert driver.log("cuModuleLoadData") == ["cuModuleLoadData FAKE gpu80"]
    for capability in ((7, 5), (10, 0), (12, 1)):
        driver.device(capability=capability)
        text = f"compute capability {capability[0]}.{capability[1]}"
        with raises(errors.NoKernelError, "copy/-/f16", "cuda:0 (Fake GPU", text, "gpu80, gpu90a"):
            copy_on(lib)


@scenario
def text_for_a_later_device() -> None:
    driver = Driver()
    folder = tools.Folder(Path(tempfile.mkdtemp()) / "a")
    row = {
        "key": "text",
        "backend": "cuda",
        "capability": [8, 0],
        "suffix": "",
        "isa": ["8.5"],
        "extension": "ptx",
    }
    folder.targets = [row]
    folder.add_all("text", [folder.file("ptx/text.ptx", tools.fake_cubin(tools.ENTRIES["copy"], "text"))])
    lib = wootz.load(folder.write())
    driver.device(capability=(12, 0), version=12040)
    with raises(errors.NoKernelError, "text"):
        copy_on(lib)
    driver.device(capability=(12, 0), version=12050)
    copy_on(lib)


@scenario
def compressed_binaries() -> None:
    driver = Driver()
    folder = tools.Folder(Path(tempfile.mkdtemp()) / "a")
    image = tools.fake_fatbin(tools.fake_cubin(tools.ENTRIES["copy"], "gpu90a"))
    folder.add_all("gpu90a", [folder.file("fatbin/gpu90a.fatbin", image)])
    lib = wootz.load(folder.write())
    driver.device(version=12030)
    with raises(
        errors.DeviceError, "fatbin/gpu90a.fatbin is compressed", "CUDA 12.4", "cuda:0", "PTX up to 8.3"
    ):
        copy_on(lib)
    assert not driver.log("cuModuleLoadData")
    driver.device(version=12040)
    copy_on(wootz.load(folder.path))
    assert driver.log("cuModuleLoadData") == ["cuModuleLoadData FAKE gpu90a"]


@scenario
def shared_memory() -> None:
    driver = Driver()

    def kernel(shared: int) -> Any:
        folder = tools.Folder(Path(tempfile.mkdtemp()) / "a")
        entry = {**tools.ENTRIES["copy"][0], "shared": shared, "block": [128, 2, 1]}
        folder.cell(
            "copy", "-", "f16", "gpu80", [folder.file("x.cubin", tools.fake_cubin([entry]))], entries=[entry]
        )
        driver.device(capability=(8, 0))
        found = wootz.load(folder.write()).kernel("copy", dtype="f16")
        return lambda: found(GpuArray(np.zeros(16, F16)), out=GpuArray(np.zeros(16, F16)))

    kernel(1024)()
    assert not driver.log("cuFuncSetAttribute")
    kernel(65536)()
    assert driver.log("cuFuncSetAttribute") == ["cuFuncSetAttribute 8=65536"]
    assert "block=128,2,1 shared=65536" in launches(driver)[-1]
    with raises(errors.DeviceError, "copy_u16 needs 233472 bytes of shared memory a block", "has 232448"):
        kernel(233472)()
    driver.check_balance()


@scenario
def preload() -> None:
    driver, lib = Driver(), library()
    kernel = lib.kernel("qgemv", format="toy", device="cuda:0")
    kernel.preload()
    assert driver.log("cuModuleGetFunction") == [
        "cuModuleGetFunction gemv_one",
        "cuModuleGetFunction gemv_many",
    ]
    driver.clear()
    q = wootz.quantize(np.ones((5, 8), np.float32), lib.format("toy")).map(lambda a: wootz.to_device(a))
    x, y = (wootz.to_device(np.ones(shape, np.float32)) for shape in ((1, 8), (1, 5)))
    driver.clear()
    kernel(x, q, out=y)
    calls = {line.split()[0] for line in driver.log()}
    assert calls == {"cuCtxPushCurrent", "cuLaunchKernel", "cuCtxPopCurrent"}, calls


if __name__ == "__main__":
    main()
