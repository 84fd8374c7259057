"""What the loader makes of a driver that fails, of bad arguments on a device, of forks and of Python's end.

As scenarios.py: `python failures.py NAME`, one process a scenario.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import wootz
from wootz import _core, errors, modules

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

# ---- failures


@scenario
def driver_failures() -> None:
    cases = (
        ("cuDevicePrimaryCtxRetain", 2, "OUT_OF_MEMORY", errors.OutOfMemoryError),  # first: it is called once
        ("cuModuleLoadData", 2, "OUT_OF_MEMORY", errors.OutOfMemoryError),
        ("cuModuleLoadData", 200, "INVALID_IMAGE", errors.DriverError),
        ("cuModuleLoadData", 209, "NO_BINARY_FOR_GPU", errors.DriverError),
        ("cuModuleGetFunction", 500, "NOT_FOUND", errors.DriverError),
        ("cuCtxPushCurrent", 4, "DEINITIALIZED", errors.DriverError),
        ("cuLaunchKernel", 719, "LAUNCH_FAILED", errors.DriverError),
        ("cuLaunchKernel", 701, "OUT_OF_RESOURCES", errors.DriverError),
    )
    driver = Driver()
    for call, code, name, kind in cases:
        driver.clear()
        modules._modules.clear()
        driver.fail(call, code)
        with raises(kind, call, name, f"({code})") as caught:
            copy_on(library())
        assert isinstance(caught[0], errors.DriverError)
        assert (caught[0].code, caught[0].call) == (code, call)
        driver.check_balance()
        driver.clear()
        copy_on(library())


@scenario
def sticky() -> None:
    driver, lib = Driver(), library()
    kernel, x = lib.kernel("copy", dtype="f16"), GpuArray(np.zeros(16, F16))
    y = GpuArray(np.zeros(16, F16))
    kernel(x, out=y)
    driver.fail("cuLaunchKernel", 700)
    for _ in range(2):
        with raises(errors.DriverError, "CUDA_ERROR_ILLEGAL_ADDRESS (700)", "restart the process"):
            kernel(x, out=y)
    driver.check_balance()


@scenario
def unknown_code() -> None:
    driver, lib = Driver(), library()
    driver.fail("cuLaunchKernel", 987)
    with raises(errors.DriverError, "an unknown error (987)"):
        copy_on(lib)


@scenario
def memory() -> None:
    driver = Driver()
    driver.fail("cuMemAlloc", 2)
    with raises(errors.OutOfMemoryError, "cuMemAlloc", "free device memory"):
        wootz.to_device(np.zeros(4))
    driver.clear()
    driver.fail("cuMemcpyHtoD", 719)
    with raises(errors.DriverError, "cuMemcpyHtoD", "(719)"):
        wootz.to_device(np.zeros(4))
    gc.collect()
    assert len(driver.log("cuMemFree")) == 1, "what was allocated is freed when the copy fails"
    driver.check_balance()


@scenario
def no_device() -> None:
    driver = Driver()
    driver.fail("cuInit", 100)
    for _ in range(2):
        with raises(errors.DriverError, "cuInit", "CUDA_ERROR_NO_DEVICE (100)", "CUDA_VISIBLE_DEVICES"):
            _core.cuda_device_count()
    driver.clear()
    assert _core.cuda_device_count() == 1, "a failed start is tried again"


@scenario
def binary_and_index_disagree() -> None:
    driver = Driver()
    for sizes, message in (
        ("8 8", "argument 2 (n) has 4 bytes, the binary has fewer arguments"),
        ("8 8 8", "argument 2 (n) has 4 bytes, the binary has 8 there"),
        ("8 8 4 4", "the index lists 3 arguments, the binary has more"),
    ):
        folder = tools.Folder(Path(tempfile.mkdtemp()) / "a")
        image = f"FAKE\ncopy_u16 {sizes}\n".encode()
        folder.cell("copy", "-", "f16", "gpu90a", [folder.file("x.cubin", image)])
        with raises(errors.ArtifactError, "copy_u16", message, "rebuild"):
            copy_on(wootz.load(folder.write()))
        driver.check_balance()
    assert not launches(driver)


@scenario
def wrong_images() -> None:
    for image, name in ((b"\x7fELF", "INVALID_IMAGE"), (b"OTHER chip", "NO_BINARY_FOR_GPU")):
        folder = tools.Folder(Path(tempfile.mkdtemp()) / "a")
        folder.cell("copy", "-", "f16", "gpu90a", [folder.file("x.cubin", image)])
        with raises(errors.DriverError, "cuModuleLoadData", name):
            copy_on(wootz.load(folder.write()))


@scenario
def edited_cubin() -> None:
    driver, lib = Driver(), library()
    path = lib.path / "cubin" / "gpu90a.cubin"
    path.write_bytes(path.read_bytes().replace(b"copy_u16 8", b"copy_u16 4"))
    with raises(errors.ArtifactError, "gpu90a.cubin was changed"):
        copy_on(lib)
    assert not driver.log("cuModuleLoadData"), "what does not match its hash never reaches the driver"


@scenario
def grids() -> None:
    driver = Driver()
    for changed, message in (
        (
            {"grid": [1, 65536, 1]},
            "copy_u16: the launch's grid.y would be 65536; the device takes 1 to 65535",
        ),
        ({"grid": [1, 1, 65536]}, "grid.z would be 65536"),
        ({"grid": [2**31, 1, 1]}, "copy_u16: the launch's grid.x would be 2147483648"),
        ({"grid": [0, 1, 1]}, "grid.x would be 0"),
        ({"block": [1025, 1, 1]}, "copy_u16: the launch's block.x would be 1025; the device takes 1 to 1024"),
        ({"block": [64, 32, 1]}, "copy_u16: a block would have 2048 threads; the device takes 1024"),
    ):
        folder = tools.Folder(Path(tempfile.mkdtemp()) / "a")
        entry = {**tools.ENTRIES["copy"][0], **changed}
        folder.cell(
            "copy", "-", "f16", "gpu90a", [folder.file("x.cubin", tools.fake_cubin([entry]))], entries=[entry]
        )
        with raises(errors.ArgumentError, message):
            copy_on(wootz.load(folder.write()))
    assert not launches(driver)


@scenario
def arguments() -> None:
    """Bad arrays that only a device can have."""
    driver, lib = Driver(), library()
    kernel = lib.kernel("copy", dtype="f16")
    base = np.zeros(64, F16)
    start = -base.ctypes.data % 16 // 2
    ok = GpuArray(np.zeros(8, F16))
    with raises(errors.ArgumentError, "x starts at address", "multiple of 16"):
        kernel(GpuArray(base[start + 1 : start + 9]), out=ok)
    with raises(errors.ArgumentError, "x has strides [2]"):
        kernel(GpuArray(base[:16:2]), out=ok)
    with raises(errors.DtypeError, "x has elements of type f32"):
        kernel(GpuArray(np.zeros(8, np.float32)), out=ok)
    with raises(errors.DtypeError, "x has big-endian"):
        kernel(Interface(np.zeros(8, ">f2"), driver), out=ok)
    with raises(errors.ArgumentError, "out is read-only"):
        kernel(ok, out=Interface(base[:8], driver, data=(base.ctypes.data, True)))
    with raises(errors.DeviceError, "x is at address 16, which is no device's memory"):
        kernel(Interface(base[:8], driver, data=(0x10, False)), out=ok)
    with raises(errors.DeviceError, "which is no device's memory"):
        kernel(Interface(base[:8], driver, -2), out=ok)
    with raises(errors.ArgumentError, "x has a null address, and is not empty"):
        kernel(Interface(base[:8], driver, data=(0, False)), out=ok)
    driver.fail("cuPointerGetAttribute", 719)
    with raises(errors.DriverError, "cuPointerGetAttribute", "the context is lost"):
        kernel(Interface(base[:8], driver), out=ok)
    driver.clear()
    with raises(errors.ArgumentError, "out shares memory with x"):
        kernel(ok, out=ok)
    with raises(errors.ArgumentError, "pass out="):
        kernel(ok)
    assert not launches(driver)


@scenario
def fork() -> None:
    driver, lib = Driver(), library()
    pid = os.fork()
    if pid == 0:
        copy_on(lib)  # nothing was used before: the child may
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    copy_on(lib)
    array = wootz.to_device(np.zeros(4))
    calls = len(driver.log())
    pid = os.fork()
    if pid == 0:
        try:
            with raises(errors.DeviceError, "before this process was forked", "spawn"):
                copy_on(lib)
            del array
            modules._modules.clear()
            gc.collect()
            assert len(driver.log()) == calls, "a child must not call its parent's driver"
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    copy_on(lib)


@scenario
def exit_() -> None:
    """Left alive on purpose: arrays, modules, and an object that launches while the interpreter ends."""
    lib = library()
    copy_on(lib)
    array = wootz.to_device(np.zeros(4))
    kernel = lib.kernel("copy", dtype="f16")

    class Late:
        def __del__(self) -> None:
            with raises(RuntimeError, "the process is ending"):  # its class may be gone by then
                kernel(GpuArray(np.zeros(16, F16)), out=GpuArray(np.zeros(16, F16)))

    sys.modules["late"] = (Late(), array)  # type: ignore[assignment]


if __name__ == "__main__":
    main()
