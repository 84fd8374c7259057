"""From the first import to the first result, in milliseconds: prebuilt kernels, Triton and NVRTC, each in
fresh processes.

The device's context is made before, by the driver alone, and timed apart: it is the same for all. What is
computed is a + b of 2^20 float32. wootz: from `import wootz` (NumPy's import included) through load() and
plan() to the sum on the host. wootz, arrays there: the same without NumPy, to the kernel's end, on arrays
that the driver alone made before the clock starts. Triton: from `import torch` to its kernel's end, with an
empty cache and with a full one. NVRTC: from the import of cuda.core through its Program to its kernel's end.

python benchmarks/cold_start.py [--repeat 5] [--json FILE] [--artifacts DIR]
"""

from __future__ import annotations

import argparse
import array
import ctypes
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

SIZE = 1 << 20
BLOCK = 256
SOURCE = """
extern "C" __global__ void add(const float* a, const float* b, float* c, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""

Marks = dict[str, float]
"""What was done last, and seconds when."""
Timed = Callable[[Callable[[str], None]], None]


# ---- children: one process each


def check(result: int) -> None:
    if result != 0:
        sys.exit(f"the CUDA driver answered {result}")


def make_context() -> ctypes.CDLL:
    driver = ctypes.CDLL(os.environ.get("WOOTZ_LIBCUDA") or "libcuda.so.1")
    context, device = ctypes.c_void_p(), ctypes.c_int()
    check(driver.cuInit(0))
    check(driver.cuDeviceGet(ctypes.byref(device), 0))
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(driver.cuCtxSetCurrent(context))
    return driver


class Array:
    """float32 [SIZE] on the device, of no library."""

    def __init__(self, driver: ctypes.CDLL, values: Iterable[float] = ()) -> None:
        self.address = ctypes.c_uint64()
        check(driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(4 * SIZE)))
        host = array.array("f", values) or array.array("f", bytes(4 * SIZE))
        check(driver.cuMemcpyHtoD_v2(self.address, *memory_of(host)))
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (SIZE,),
            "typestr": "<f4",
            "data": (self.address.value, False),
            "strides": None,
            "stream": None,
        }

    def read(self, driver: ctypes.CDLL) -> array.array[float]:
        host = array.array("f", bytes(4 * SIZE))
        check(driver.cuMemcpyDtoH_v2(memory_of(host)[0], self.address, memory_of(host)[1]))
        return host


def memory_of(host: array.array[float]) -> tuple[ctypes.c_void_p, ctypes.c_size_t]:
    """Its address, and its bytes."""
    address, count = host.buffer_info()
    return ctypes.c_void_p(address), ctypes.c_size_t(count * host.itemsize)


def with_wootz(mark: Callable[[str], None]) -> None:
    import wootz

    mark("import")
    import numpy as np

    lib = wootz.load(os.environ.get("WOOTZ_ARTIFACTS"))
    mark("load")
    plan = lib.plan("binary", op="add", dtype="f32", device="cuda:0", n=SIZE)
    mark("plan")
    a, b = np.arange(SIZE, dtype=np.float32), np.ones(SIZE, np.float32)
    sum_ = plan(wootz.to_device(a, "cuda:0"), wootz.to_device(b, "cuda:0")).numpy()
    mark("result")
    assert np.array_equal(sum_, a + b)


def with_wootz_arrays_there(driver: ctypes.CDLL) -> Timed:
    a, b, out = Array(driver, map(float, range(SIZE))), Array(driver, [1.0] * SIZE), Array(driver)

    def timed(mark: Callable[[str], None]) -> None:
        import wootz

        mark("import")
        lib = wootz.load(os.environ.get("WOOTZ_ARTIFACTS"))
        mark("load")
        plan = lib.plan("binary", op="add", dtype="f32", device="cuda:0", n=SIZE)
        mark("plan")
        plan(a, b, out=out)
        check(driver.cuCtxSynchronize())
        mark("result")
        assert "numpy" not in sys.modules, "something imported NumPy, which this row leaves out"
        # float32 has every integer up to 2^24
        assert out.read(driver) == array.array("f", map(float, range(1, SIZE + 1)))

    return timed


def with_triton(mark: Callable[[str], None]) -> None:
    import torch

    mark("import")
    from triton_kernels import add

    mark("import of Triton")
    a, b = torch.arange(SIZE, dtype=torch.float32, device="cuda"), torch.ones(SIZE, device="cuda")
    c = torch.empty_like(a)
    add[(SIZE // BLOCK,)](a, b, c, SIZE, block=BLOCK)
    torch.cuda.synchronize()
    mark("result")
    assert torch.equal(c, a + b)


def with_nvrtc(mark: Callable[[str], None]) -> None:
    try:
        from cuda import core

        core.Program  # noqa: B018
    except (ImportError, AttributeError):
        from cuda.core import experimental as core
    import numpy as np

    mark("import")
    device = core.Device(0)
    device.set_current()
    capability = device.compute_capability
    options = core.ProgramOptions(arch=f"sm_{capability.major}{capability.minor}")
    kernel = core.Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("add")
    mark("compile")
    stream = device.create_stream()
    a, b, c = (device.allocate(4 * SIZE, stream=stream) for _ in range(3))
    core.launch(stream, core.LaunchConfig(grid=SIZE // BLOCK, block=BLOCK), kernel, a, b, c, np.uint32(SIZE))
    stream.sync()
    mark("result")


CHILDREN: dict[str, Callable[[ctypes.CDLL], Timed]] = {
    "wootz": lambda _: with_wootz,
    "wootz-arrays-there": with_wootz_arrays_there,
    "triton": lambda _: with_triton,
    "nvrtc": lambda _: with_nvrtc,
}
"""By name, with the driver: what makes ready and returns what is timed, given where to mark its phases."""


def child(name: str) -> None:
    """Prints milliseconds by phase, and of all but the context."""
    marks: Marks = {}
    start = time.perf_counter()
    driver = make_context()
    context = (time.perf_counter() - start) * 1e3
    timed = CHILDREN[name](driver)
    last = start = time.perf_counter()
    timed(lambda what: marks.__setitem__(what, time.perf_counter()))
    phases = {"context": context}
    for what, when in marks.items():
        phases[what], last = (when - last) * 1e3, when
    phases["all"] = (marks["result"] - start) * 1e3
    print(json.dumps(phases))


# ---- the parent


def run(name: str, cache: str, artifacts: str | None) -> dict[str, float] | None:
    """One fresh process; None where what it needs is not installed."""
    environment = {**os.environ, "TRITON_CACHE_DIR": cache}
    if artifacts:
        environment["WOOTZ_ARTIFACTS"] = artifacts
    done = subprocess.run(
        [sys.executable, __file__, "--child", name], capture_output=True, text=True, env=environment
    )
    if done.returncode == 0:
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found
    print(f"{name}: not measured ({(done.stderr.strip().splitlines() or ['no reason given'])[-1]})")
    return None


def measure(name: str, repeat: int, warm: bool, artifacts: str | None) -> dict[str, float] | None:
    """Medians over `repeat` processes. warm: what one process leaves in Triton's cache, the next finds."""
    runs = []
    with tempfile.TemporaryDirectory() as shared:
        for i in range(repeat + warm):
            with tempfile.TemporaryDirectory() as own:
                found = run(name, shared if warm else own, artifacts)
            if found is None:
                return None
            if i >= warm:
                runs.append(found)
    return {phase: statistics.median(each[phase] for each in runs) for phase in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--artifacts", help="artifact folder (default: the installed one)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    rows = {}
    for label, name, warm in (
        ("wootz", "wootz", True),
        ("wootz, arrays there", "wootz-arrays-there", True),
        ("triton, empty cache", "triton", False),
        ("triton, full cache", "triton", True),
        ("nvrtc", "nvrtc", True),
    ):
        found = measure(name, options.repeat, warm, options.artifacts)
        if found is None:
            continue
        rows[label] = found
        phases = ", ".join(f"{phase} {ms:.1f}" for phase, ms in found.items() if phase != "all")
        print(f"{label:>20} {found['all']:9.1f} ms   ({phases})")
    if options.json:
        report = {"date": datetime.date.today().isoformat(), "python": sys.version.split()[0], "ms": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
