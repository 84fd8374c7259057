"""Several devices in one process, of several architectures, and many threads at once.

As scenarios.py: `python devices.py NAME`, one process a scenario.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import wootz
from wootz import _core, errors, modules

from tests.null import loader_tools as tools
from tests.null import stub_tools as stubs
from tests.null.fakecuda.standin import F16, Driver, GpuArray, launches, main, raises, scenario, wait_for

CAPABILITIES = ((8, 0), (9, 0), (12, 0))
TARGETS = ("gpu80", "gpu90a", "gpu120a")
CALLS = 30


def mixed() -> Driver:
    """A driver with a device of each capability."""
    driver = Driver()
    driver.device(count=len(CAPABILITIES))
    for number, capability in enumerate(CAPABILITIES):
        driver.capability(number, capability)
    return driver


def folder(targets: Sequence[str] = TARGETS, note: str = "") -> tools.Folder:
    """`copy` for f16 with binaries for these targets, each a file of its own. note: makes other bytes."""
    made = tools.Folder(Path(tempfile.mkdtemp()) / "a")
    row = {"key": "gpu120a", "backend": "cuda", "capability": [12, 0], "suffix": "a", "isa": []}
    made.targets.append({**row, "extension": "cubin"})
    for target in targets:
        image = tools.fake_cubin(tools.ENTRIES["copy"], target + note)
        made.cell("copy", "-", "f16", target, [made.file(f"{target}.cubin", image)])
    return made


def copies(targets: Sequence[str] = TARGETS, note: str = "") -> wootz.Kernel:
    return wootz.load(folder(targets, note).write()).kernel("copy", dtype="f16")


def call(kernel: wootz.Kernel, device: int, **more: Any) -> None:
    kernel(GpuArray(np.zeros(16, F16), device), out=GpuArray(np.zeros(16, F16), device), **more)


def at_once(*work: Callable[[], None]) -> None:
    """Runs all of them, each in a thread, begun together. Raises the first error."""
    start, failures = threading.Barrier(len(work)), []

    def run(each: Callable[[], None]) -> None:
        start.wait()
        try:
            each()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@scenario
def each_device_has_its_binary() -> None:
    driver, kernel = mixed(), copies()
    for device in (2, 0, 1, 0, 2):
        call(kernel, device)
    assert driver.log("cuModuleLoadData") == [
        f"cuModuleLoadData FAKE {TARGETS[device]}" for device in (2, 0, 1)
    ]
    assert [line.split()[2] for line in launches(driver)] == [
        f"device={device}" for device in (2, 0, 1, 0, 2)
    ]
    assert driver.log("cuDevicePrimaryCtxRetain") == [f"cuDevicePrimaryCtxRetain {n}" for n in (2, 0, 1)]
    call(copies(), 1)
    assert len(driver.log("cuModuleLoadData")) == 3, "the same bytes are loaded once a device"
    driver.check_balance()


@scenario
def one_binary_on_two_devices() -> None:
    driver, kernel = mixed(), copies()
    driver.capability(0, (9, 0))
    call(kernel, 0)
    call(kernel, 1)
    assert driver.log("cuModuleLoadData") == ["cuModuleLoadData FAKE gpu90a"] * 2
    assert driver.live()["modules"] == 2
    driver.check_balance()


@scenario
def only_for_one_of_them() -> None:
    driver, kernel = mixed(), copies(["gpu120a"])
    call(kernel, 2)
    for device, capability in ((0, "8.0"), (1, "9.0")):
        with raises(
            errors.NoKernelError, f"copy/-/f16 has no binary for cuda:{device}",
            f"compute capability {capability}", "it is shipped for: gpu120a",
        ):  # fmt: skip
            call(kernel, device)
    call(kernel, 2)
    assert len(driver.log("cuModuleLoadData")) == 1
    assert not driver.log("cuDevicePrimaryCtxRetain 0"), "what runs nothing retains no context"
    driver.check_balance()


@scenario
def numbers_out_of_range() -> None:
    driver, kernel = mixed(), copies()
    for device in (3, 255, 300, 2**31 - 1):
        with raises(errors.DeviceError, "CUDA_ERROR_INVALID_DEVICE", "CUDA_VISIBLE_DEVICES"):
            call(kernel, device)
        for use in (_core.cuda_synchronize, lambda n: wootz.to_device(np.zeros(4), f"cuda:{n}")):
            with raises(errors.DeviceError):
                use(device)
    with raises(errors.DeviceError):
        call(kernel, -1)
    for text in ("cuda:-1", "cuda:", "cuda:1.0", "cuda:x", "cuda:99999999999", "cuda:" + "9" * 5000, "gpu:0"):
        with raises(errors.DeviceError, "device is ", 'want "cpu", "cuda", "cuda:N" or "metal"'):
            wootz.to_device(np.zeros(4), text)
    driver.device(count=0)
    with raises(errors.DeviceError, "CUDA_VISIBLE_DEVICES"):
        wootz.to_device(np.zeros(4))
    driver.check_balance()


@scenario
def first_loads_at_once() -> None:
    """Many threads need the same binaries on all devices: each is loaded once a device."""
    driver, kernel = mixed(), copies()
    others = [copies() for _ in range(3)]

    def work(number: int) -> Callable[[], None]:
        def run() -> None:
            for i in range(CALLS):
                each = (kernel, *others)[(number + i) % 4]
                call(each, (number + i) % 3, stream=number + 1)

        return run

    driver.block("cuModuleLoadData")
    blocked: list[int] = []

    def watch() -> None:
        wait_for(lambda: driver.blocked() == 3)
        time.sleep(0.3)  # for any other thread that would load
        blocked.append(driver.blocked())
        driver.block("")

    at_once(watch, *[work(number) for number in range(8)])
    assert blocked == [3], "one load a device"
    assert Counter(driver.log("cuModuleLoadData")) == Counter(f"cuModuleLoadData FAKE {t}" for t in TARGETS)
    assert Counter(driver.log("cuDevicePrimaryCtxRetain")) == Counter(
        f"cuDevicePrimaryCtxRetain {n}" for n in range(3)
    )
    assert len(driver.log("cuInit")) == 1
    assert len(launches(driver)) == 8 * CALLS
    driver.check_balance()


@scenario
def a_load_keeps_nobody_else_waiting() -> None:
    """While a binary is loaded for one device, others are, and launches go on."""
    driver, kernel = mixed(), copies()
    call(kernel, 0)
    driver.block("cuDevicePrimaryCtxRetain")
    slow = threading.Thread(target=call, args=(kernel, 1))
    slow.start()
    wait_for(driver.blocked)
    driver.block("cuModuleLoadData")  # the first goes on, into the next wait
    wait_for(lambda: driver.log("cuModuleLoadData FAKE gpu90a"))
    call(kernel, 0)
    assert driver.blocked() == 1
    driver.block("cuModuleUnload")
    slow.join()
    driver.block("cuDevicePrimaryCtxRetain")
    slow = threading.Thread(target=call, args=(kernel, 2))
    slow.start()
    wait_for(driver.blocked)
    call(kernel, 1)
    driver.block("")
    slow.join()
    driver.check_balance()


@scenario
def a_failed_first_load_is_tried_by_the_next() -> None:
    driver, kernel, failures = mixed(), copies(), []
    driver.fail("cuModuleLoadData", 2, times=3)

    def run() -> None:
        try:
            call(kernel, 1)
        except errors.OutOfMemoryError as error:
            failures.append(error)

    at_once(*[run] * 8)
    assert len(failures) == 3, "each failure has the thread that met it"
    assert len(launches(driver)) == 5
    assert len(driver.log("cuModuleLoadData")) == 4
    driver.check_balance()


@scenario
def stubs_at_once() -> None:
    """Occupancy, leave for shared memory and clusters, asked for by many threads on two devices."""
    driver, kernel = mixed(), stubs.kernel([stubs.WIDE], stubs.stub(CLUSTER=16))
    driver.capability(0, (9, 0))

    def work(device: int) -> Callable[[], None]:
        x, w, y = (
            wootz.to_device(np.zeros(shape, kind), f"cuda:{device}")
            for shape, kind in (((4, 32), F16), ((24, 32), F16), ((4, 24), np.float32))
        )
        return lambda: [kernel(x, w, out=y, stream=5) for _ in range(CALLS)] and None

    at_once(*[work(number % 2) for number in range(6)])
    assert len(driver.log("cuModuleLoadData")) == 2
    assert Counter(line.split()[2] for line in launches(driver)) == {f"device={n}": 3 * CALLS for n in (0, 1)}
    assert driver.live()["memory"] <= 6 * 3
    driver.check_balance()


@scenario
def leave_for_shared_memory_is_never_taken_back() -> None:
    """Two users of one function: the second wants less, and the first goes on with what it has."""
    driver, path = mixed(), tempfile.mkdtemp()
    made = tools.Folder(Path(path) / "a")
    entry = {**tools.ENTRIES["copy"][0], "shared": ["mul", "n", 1024]}
    made.cell("copy", "-", "f16", "gpu80", [made.file("x.cubin", tools.fake_cubin([entry]))], entries=[entry])
    lib = wootz.load(made.write())
    large, small = (lib.kernel("copy", dtype="f16") for _ in range(2))

    def run(kernel: wootz.Kernel, n: int) -> None:
        kernel(GpuArray(np.zeros(n, F16)), out=GpuArray(np.zeros(n, F16)))

    for kernel, n in ((large, 160), (small, 80), (large, 150), (small, 200), (large, 190)):
        run(kernel, n)
    assert driver.log("cuFuncSetAttribute") == [f"cuFuncSetAttribute 8={n * 1024}" for n in (160, 200)]
    at_once(*[lambda n=n, k=k: run(k, n) for n in (210, 190, 220, 60) for k in (large, small)])  # type: ignore[misc]
    driver.check_balance()


@scenario
def fork_while_another_thread_loads() -> None:
    """The child of such a fork has no CUDA, says so, and waits for nothing: locks of the other thread too."""
    driver = mixed()
    host = tools.cpu_folder(Path(tempfile.mkdtemp()) / "a", tools.image())
    for blocked in ("cuInit", "cuModuleLoadData"):
        driver.block(blocked)
        kernel = copies(note=blocked)
        slow = threading.Thread(target=call, args=(kernel, 1))
        slow.start()
        wait_for(driver.blocked)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with raises(errors.DeviceError, "before this process was forked"):
                    call(kernel, 1)
                x = np.ones(16, F16)
                assert (wootz.load(host).kernel("copy", dtype="f16")(x) == x).all()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        driver.block("")
        slow.join()
        call(kernel, 1)
    driver.check_balance()


@scenario
def unloading() -> None:
    """A binary goes when nobody has it any more, on its own device."""
    driver = mixed()
    kernel = copies()
    for device in range(3):
        call(kernel, device)
    modules._modules.clear()
    assert driver.live()["modules"] == 3, "the kernel has them"
    del kernel
    assert driver.live()["modules"] == 0
    driver.check_balance()


@scenario
def without_the_lock_of_python() -> None:
    """In a build of Python that has none, the loader does not bring it back."""
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    before, driver, kernel = enabled(), mixed(), copies()
    call(kernel, 0)
    assert enabled() == before
    driver.check_balance()


if __name__ == "__main__":
    main()
