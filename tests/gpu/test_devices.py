"""Devices of one host: which one a call runs on, what each has loaded, threads, contexts, forks.

What needs two devices is left out on a machine with one.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
import wootz
from wootz import _core, modules

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")
N, K, FORMAT = 96, 520, "mxfp4"
CALLS = 200
two = pytest.mark.skipif(_core.cuda_device_count() < 2, reason="one device")
EVERY = [pytest.param(0), pytest.param(1, marks=two)]


@pytest.fixture(scope="module")
def weights() -> Any:
    return wootz.quantize(np.random.default_rng(3).standard_normal((N, K)).astype(np.float32), FORMAT)


@pytest.fixture
def kernel(lib: Any) -> Any:
    return lib.kernel("qgemv", format=FORMAT, dtype="f32")


def rows(device: int, seed: int = 0, m: int = 2) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((m, K)).astype(np.float32)).to(
        f"cuda:{device}"
    )


def close(y: Any, x: Any, q: Any) -> None:
    want = x.cpu().numpy().astype(np.float64) @ q.dequantize().astype(np.float64).T
    assert np.abs(y.cpu().numpy() - want).max() < 1e-4 * np.abs(want).max()


def current_context() -> int:
    """The driver's context of this thread."""
    context = ctypes.c_void_p()
    assert ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context)) == 0
    return context.value or 0


@pytest.mark.parametrize("device", EVERY)
def test_the_device_comes_from_the_tensor(kernel: Any, weights: Any, device: int) -> None:
    """And torch's current device stays what it was, as does the driver's context."""
    x, q = rows(device), weights.to(f"cuda:{device}")
    for current in range(torch.cuda.device_count()):
        torch.cuda.set_device(current)
        torch.zeros(1, device="cuda")  # its context is current from here on
        before = current_context()
        y = kernel(x, q)
        assert y.device == torch.device("cuda", device)
        assert torch.cuda.current_device() == current
        assert current_context() == before
        close(y, x, weights)
    torch.cuda.set_device(0)


@two
def test_interleaved_calls_on_two_devices(kernel: Any, weights: Any) -> None:
    """Each device has two streams, and results of its own on each."""
    q = [weights.to(f"cuda:{device}") for device in range(2)]
    lanes = [
        (device, torch.cuda.Stream(device), rows(device, 2 * device + i)) for device in (0, 1) for i in (0, 1)
    ]
    outputs = [torch.full((2, N), float("nan"), device=x.device) for _, _, x in lanes]
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    for _ in range(CALLS):
        for (device, stream, x), y in zip(lanes, outputs):
            with torch.cuda.stream(stream):
                kernel(x, q[device], out=y)
    for (_, stream, x), y in zip(lanes, outputs):
        stream.synchronize()
        close(y, x, weights)


@two
def test_arrays_of_two_devices_are_refused(kernel: Any, lib: Any, weights: Any) -> None:
    x = rows(1)
    with pytest.raises(wootz.errors.DeviceError, match=r"w\.\w+ is on cuda:0, x is on cuda:1"):
        kernel(x, weights.to("cuda:0"))
    with pytest.raises(wootz.errors.DeviceError, match=r"out is on cuda:0, x is on cuda:1"):
        kernel(x, weights.to("cuda:1"), out=torch.empty(2, N, device="cuda:0"))
    fixed = lib.kernel("qgemv", format=FORMAT, dtype="f32", device="cuda:0")
    with pytest.raises(wootz.errors.DeviceError, match=r"x is on cuda:1, the kernel was asked for on cuda:0"):
        fixed(x, weights.to("cuda:1"))


@two
def test_each_device_loads_its_own(kernel: Any, weights: Any) -> None:
    for device in range(2):
        kernel(rows(device), weights.to(f"cuda:{device}"))
    loaded = dict.fromkeys(modules._modules._made)
    assert {"cuda:0", "cuda:1"} <= {where for _, where in loaded}
    kernel(rows(1), weights.to("cuda:1"))
    assert dict.fromkeys(modules._modules._made) == loaded


@pytest.mark.parametrize("count", [pytest.param(1), pytest.param(2, marks=two)])
def test_threads(lib: Any, weights: Any, count: int) -> None:
    """Eight threads, streams of their own, all devices; a kernel that none has used before is loaded once."""
    kernel = lib.kernel("dequant", format=FORMAT, dtype="f32")
    q = [weights.to(f"cuda:{device}") for device in range(count)]
    want, start, failures = weights.dequantize(), threading.Barrier(8), []

    def work(number: int) -> None:
        try:
            device = number % count
            with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
                start.wait()
                for _ in range(CALLS):
                    y = kernel(q[device])
                assert np.array_equal(y.cpu().numpy(), want)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures, failures


# ---- processes of their own

HEAD = """
import atexit, ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")

def active(number):  # of a device's primary context
    device, flags, state = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), number) == 0
    assert cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(state)) == 0
    return state.value

def say(*words):
    print(*words, flush=True)

import numpy as np

def use(number):
    import wootz
    kernel = wootz.load().kernel("copy", dtype="f32")
    x = wootz.to_device(np.arange(8, dtype=np.float32), f"cuda:{number}")
    y = wootz.to_device(np.zeros(8, np.float32), f"cuda:{number}")
    kernel(x, out=y)
    assert y.numpy().tolist() == list(range(8))
    return kernel, x, y
"""


FORKS = "-Wignore:This process:DeprecationWarning"  # of a process that has threads, as the driver's


def child(body: str, **environment: str) -> list[str]:
    """The lines that a script says, after HEAD; it has to end well, and quietly."""
    path = os.pathsep.join([str(Path(wootz.__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, FORKS, "-c", HEAD + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("devices", [pytest.param(1), pytest.param(2, marks=two)])
@pytest.mark.parametrize(
    "keep",
    ["use({})", "kept{0} = use({0})", "sys.modules['late{0}'] = use({0})"],
    ids=["dropped", "kept", "late"],
)
def test_contexts_are_given_back(devices: int, keep: str) -> None:
    """The handler is registered first, so that it runs last."""
    lines = child(
        f"""
        say([active(n) for n in range({devices})])
        atexit.register(lambda: say([active(n) for n in range({devices})]))
        import wootz
        say([active(n) for n in range({devices})])
        """
        + "".join(f"\n        {keep.format(n)}" for n in range(devices))
        + f"\n        say([active(n) for n in range({devices})])\n"
    )
    none, all_ = str([0] * devices), str([1] * devices)
    assert lines == [none, none, all_, none]


@two
def test_a_device_that_is_not_used_has_no_context() -> None:
    assert child("kept = use(1); say(active(0), active(1))") == ["0 1"]


def test_fork_after_use_says_so() -> None:
    lines = child(
        """
        kept = use(0)
        pid = os.fork()
        if pid == 0:
            try:
                use(0)
            except RuntimeError as error:
                say(error)
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        use(0)
        say("and the parent goes on")
        """
    )
    assert "CUDA was used before this process was forked" in lines[0]
    assert lines[1:] == ["and the parent goes on"]


def test_fork_before_use() -> None:
    lines = child(
        """
        import wootz
        kernel = wootz.load().kernel("copy", dtype="f32")
        pid = os.fork()
        use(0)
        say("used")
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
        """
    )
    assert lines == ["used", "used"]


def _refused(body: str, **environment: str) -> str:
    (line,) = child(
        f"import wootz\ntry:\n    {body}\nexcept wootz.errors.DeviceError as error: say(error)", **environment
    )
    return line


@pytest.mark.parametrize(
    ("call", "environment", "says"),
    [
        ("use(0)", {"CUDA_VISIBLE_DEVICES": ""}, "(100)"),
        ("use(99)", {}, "(101)"),
        ("use(1)", {"CUDA_VISIBLE_DEVICES": "0"}, "(101)"),
        ("use(0)", {"WOOTZ_LIBCUDA": "/nonexistent/libcuda.so"}, "the CUDA driver cannot be loaded"),
    ],
)
def test_devices_that_are_not_there(call: str, environment: dict[str, str], says: str) -> None:
    assert says in _refused(call, **environment)


def test_python_runs_while_a_call_waits() -> None:
    """A call that waits for the device keeps no other thread."""
    big = torch.randn(8192, 8192, device="cuda")
    torch.cuda.synchronize()
    stream, ticks, done = torch.cuda.current_stream(), 0, threading.Event()

    def wait() -> None:
        _core.cuda_synchronize(0, stream.cuda_stream or 1)
        done.set()

    for _ in range(100):
        torch.mm(big, big)
    thread: Any = threading.Thread(target=wait)
    thread.start()
    while not done.is_set():
        ticks += 1
    thread.join()
    assert ticks > 1000
