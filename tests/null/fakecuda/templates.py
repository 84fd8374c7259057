"""Kernels made from templates, as the loader launches them: stubs, clusters, tensor maps, workspaces.

As scenarios.py: `python templates.py NAME`, one process a scenario.
"""

from __future__ import annotations

import gc
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import wootz
from wootz import _core, errors, modules

from tests.null import stub_tools as tools
from tests.null.fakecuda.standin import F16, Driver, GpuArray, Interface, launches, main, raises, scenario

F32 = np.float32


def operands(m: int = 4, n: int = 24, k: int = 32) -> tuple[Any, Any, Any]:
    """x, w and memory for y."""
    x, w, y = (np.zeros(shape, dtype) for shape, dtype in (((m, k), F16), ((n, k), F16), ((m, n), F32)))
    return wootz.to_device(x), wootz.to_device(w), wootz.to_device(y)


def place(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def words(line: str) -> list[int]:
    """The 64-bit words of a launch's parameter block."""
    found = re.search(r"args=\{([\d;]+)\}$", line)
    assert found, line
    return [int(word) for word in found[1].split(";")]


def double(word: int) -> float:
    return float(np.array([word], np.uint64).view(np.float64)[0])


# ---- stubs


@scenario
def stub() -> None:
    driver, kernel = Driver(), tools.kernel([tools.WIDE, tools.ANY], tools.stub())
    x, w, y = operands()
    bias = wootz.to_device(np.zeros(24, F32))
    driver.clear()
    assert kernel(x, w, bias, out=y, alpha=0.5, activation="silu", stream=9) is y
    (line,) = launches(driver)
    assert line.startswith("cuLaunchKernelEx gemm_wide device=0 grid=128,1,1 block=384,1,1 shared=100000"), (
        line
    )
    assert " stream=9 attribute4=2,1,1 args=" in line
    block = words(line)
    assert len(block) == tools.PARAMS // 8
    assert block[:4] == [place(x), 2, 32, 4], "the tensor map: address, rank, extents"
    assert block[16:23] == [place(x), place(w), place(bias), place(y), 4, 24, 32]
    assert (double(block[23]), double(block[24])) == (0.5, 2.0)
    assert block[26] == 4096
    assert block[27] == (64 << 32) | 132, "clusters that run at once, and multiprocessors"
    assert driver.log("cuOccupancyMaxActiveClusters") == [
        "cuOccupancyMaxActiveClusters gemm_wide grid=2,1,1 block=384,1,1 shared=100000"
    ]
    assert driver.log("cuFuncSetAttribute") == ["cuFuncSetAttribute 8=100000"]
    (encode,) = driver.log("cuTensorMapEncodeTiled")
    assert f"type=6 address={place(x)} dims=32,4 strides=64 box=64,128 steps=1,1" in encode
    assert driver.log("cuMemsetD8Async") == [f"cuMemsetD8Async {block[25]} value=0 bytes=512 stream=9"]
    assert driver.log("cuMemAlloc") == ["cuMemAlloc 4096"]
    assert len(driver.log("cuMemFree")) == 1, "a workspace of the loader's own goes with the call"
    driver.check_balance()


@scenario
def stub_again() -> None:
    """What a call costs once all is loaded, and what of it a stream under capture would see."""
    driver, kernel = Driver(), tools.kernel([tools.WIDE, tools.ANY], tools.stub())
    kernel.preload("cuda")
    assert not launches(driver)
    x, w, y = operands()
    space = wootz.to_device(np.zeros(4096, np.uint8))
    kernel(x, w, out=y, workspace=space)
    driver.clear()
    kernel(x, w, out=y, workspace=space)
    calls = [line.split()[0] for line in driver.log()]
    assert [call for call in calls if not call.startswith("cuCtx")] == [
        "cuTensorMapEncodeTiled", "cuMemsetD8Async", "cuLaunchKernelEx",
    ], calls  # fmt: skip
    assert calls.count("cuCtxPushCurrent") == 1
    block = words(launches(driver)[0])
    assert block[18] == 0, "an operand that is not given is a null pointer"
    assert block[25:27] == [place(space), 4096]
    driver.check_balance()


@scenario
def stub_passes() -> None:
    """Entries whose conditions do not hold, or whose stub cannot, leave the call to the next."""
    driver, kernel = Driver(), tools.kernel([tools.WIDE, tools.ANY], tools.stub())
    for k, entry in ((12, "gemm_any"), (20, "gemm_any"), (24, "gemm_wide")):
        x, w, y = operands(k=k)
        driver.clear()
        kernel(x, w, out=y)
        assert [line.split()[1] for line in launches(driver)] == [entry], launches(driver)
    x, w, y = operands(k=20)
    driver.clear()
    kernel(x, w, out=y, alpha=2, activation=1)
    alpha = int(np.array([2], F32).view(np.uint32)[0])
    assert launches(driver)[0].endswith(f"args={place(x)},{place(w)},0,{place(y)},4,24,20,{alpha},1")
    with raises(
        errors.ArgumentError, "gemm/-/f16 has no variant for m=4, k=20, n=24", "has_bias=0", "what its stub"
    ):
        tools.kernel([tools.WIDE], tools.stub())(x, w, out=y)


@scenario
def stub_fails() -> None:
    driver, kernel = Driver(), tools.kernel([tools.WIDE], tools.stub())

    def call(m: int) -> None:
        x, w, y = operands(m)
        kernel(x, w, out=y)

    with raises(errors.ArtifactError, "stub/gemm/x.so: the query of gemm_wide failed with code 77"):
        call(13)
    with raises(errors.ArtifactError, "the query of gemm_wide describes no launch"):
        call(14)
    with raises(errors.ArtifactError, "filling the parameters of gemm_wide failed with code 78"):
        call(15)
    for m in (4, 16):
        driver.fail("cuTensorMapEncodeTiled", 1)
        with raises(
            errors.DriverError, "cuTensorMapEncodeTiled failed: CUDA_ERROR_INVALID_VALUE (1)",
            "gemm_wide: address 0x", f"extents 32 x {m}, strides in bytes 64, box 64 x 128",
        ):  # fmt: skip
            call(m)
        driver.clear()
    driver.fail("cuMemsetD8Async", 700)
    with raises(errors.DriverError, "cuMemsetD8Async failed", "(700)"):
        call(4)
    driver.clear()
    driver.fail("cuLaunchKernelEx", 719)
    with raises(errors.DriverError, "cuLaunchKernelEx failed", "(719)"):
        call(4)
    driver.clear()
    call(4)
    driver.check_balance()


@scenario
def stub_of_another_build() -> None:
    driver, (x, w, y) = Driver(), operands()
    image = tools.stub()
    other = {"source_sha256": "ab" * 32}
    cases: list[tuple[Callable[[], wootz.Kernel], tuple[str, ...]]] = [
        (lambda: tools.kernel([tools.WIDE], image, **other), ("different builds", tools.BUILD, "ab" * 32)),
        (
            lambda: tools.kernel([tools.WIDE], image, source_sha256=None),
            ("different builds", tools.BUILD, "unknown"),
        ),
        (
            lambda: tools.kernel([tools.WIDE], image, params=tools.PARAMS - 128),
            ("gemm_wide takes a parameter block of 128 bytes", "x.so fills one of 256", "different builds"),
        ),
        (
            lambda: tools.kernel([{**tools.WIDE, "stub": "gemm_long"}], image),
            ("x.so has no symbol gemm_long_query",),
        ),
        (lambda: tools.kernel([tools.WIDE]), ("gemm_wide needs a stub, and the index has none",)),
        (lambda: tools.kernel([tools.WIDE], b"\x7fELF no"), ("x.so cannot be loaded",)),
        (
            lambda: tools.kernel([tools.WIDE], tools.tools.image()),
            ("x.so has no symbol wootz_stub_build",),
        ),
    ]
    for make, parts in cases:
        with raises(errors.ArtifactError, *parts):
            make()(x, w, out=y)
    made = tools.folder([tools.WIDE], image)
    path = made.path / "x.cubin"
    path.write_bytes(path.read_bytes().replace(b"gemm_wide 256", b"gemm_wide 256 8"))
    made.cells[0]["files"] = [made.file("x.cubin", path.read_bytes())]
    with raises(errors.ArtifactError, "gemm_wide takes several parameters"):
        wootz.load(made.write()).kernel("gemm", dtype="f16")(x, w, out=y)
    assert not launches(driver)
    driver.check_balance()


@scenario
def stub_is_checked_before_it_runs() -> None:
    """The hash is compared before the object is opened: its constructors do not run."""
    Driver()
    x, w, y = operands()
    mark = Path(tempfile.mkdtemp()) / "ran"
    image = tools.stub(tools.RAN.replace("NAME", str(mark)))
    made = tools.folder([tools.WIDE], image)
    path = made.path / "stub" / "gemm" / "x.so"
    for damaged, message in (
        (image[:-1] + bytes([image[-1] ^ 1]), "x.so was changed: its sha256 is"),
        (image[:-1], "x.so has"),
        (None, "x.so is missing"),
    ):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with raises(errors.ArtifactError, message):
            wootz.load(made.write()).kernel("gemm", dtype="f16")(x, w, out=y)
        assert not mark.exists()
    path.write_bytes(image)
    wootz.load(made.write()).kernel("gemm", dtype="f16")(x, w, out=y)
    assert mark.exists()
    for wrong in ({"file": 5}, {"size": None}, {"file": "../x.so"}):
        made.cells[0]["stub"] = {**made.file("stub/gemm/x.so", tools.stub(BUILD="x")), **wrong}
        with raises(errors.ArtifactError):
            wootz.load(made.write()).kernel("gemm", dtype="f16")(x, w, out=y)


@scenario
def stub_and_the_device() -> None:
    driver, (x, w, y) = Driver(), operands()
    with raises(errors.DeviceError, "gemm_wide needs 300000 bytes of shared memory", "has 232448"):
        tools.kernel([tools.WIDE], tools.stub(SHARED=300000))(x, w, out=y)
    driver.clusters(1)
    with raises(errors.DeviceError, "gemm_wide runs in clusters of 2 blocks", "has room for none"):
        tools.kernel([tools.WIDE], tools.stub())(x, w, out=y)
    driver.clusters(128)
    driver.clear()
    tools.kernel([tools.WIDE], tools.stub(CLUSTER=1, SHARED=1024))(x, w, out=y)
    assert not driver.log("cuOccupancy")
    assert not driver.log("cuFuncSetAttribute")
    assert launches(driver)[0].startswith("cuLaunchKernel gemm_wide device=0 grid=3,1,1"), launches(driver)
    tools.kernel([{**tools.WIDE, "pdl": True}], tools.stub(CLUSTER=16))(x, w, out=y)
    assert "cuFuncSetAttribute 14=1" in driver.log("cuFuncSetAttribute")
    assert (
        "grid=128,1,1 block=384,1,1 shared=100000 stream=1 attribute4=16,1,1 attribute6=1 "
        in launches(driver)[1]
    )
    driver.check_balance()


@scenario
def targets() -> None:
    """A kernel for a chip that is not there."""
    driver, (x, w, y) = Driver(), operands()
    made = tools.folder([tools.WIDE], tools.stub(), target="chip")
    made.targets = [
        {"key": "chip", "backend": "cuda", "capability": [12, 0], "suffix": "a", "extension": "cubin"}
    ]
    kernel = wootz.load(made.write()).kernel("gemm", dtype="f16")
    with raises(
        errors.NoKernelError, "gemm/-/f16 has no binary", "compute capability 9.0", "shipped for: chip"
    ):
        kernel(x, w, out=y)
    assert not driver.log("cuModuleLoadData")


# ---- plain entries


@scenario
def clusters() -> None:
    driver, (x, w, y) = Driver(), operands(m=6)
    driver.clear()
    entry = {**tools.ANY, "grid": [4, "m", 1], "cluster": [2, 3, 1], "pdl": True, "shared": 65536}
    tools.kernel([entry])(x, w, out=y, stream=5)
    (line,) = launches(driver)
    wanted = (
        "gemm_any device=0 grid=4,6,1 block=64,1,1 shared=65536 stream=5 attribute4=2,3,1 attribute6=1 args="
    )
    assert line.startswith(f"cuLaunchKernelEx {wanted}"), line
    assert driver.log("cuFuncSetAttribute") == ["cuFuncSetAttribute 8=65536"]
    driver.clear()
    tools.kernel([{**tools.ANY, "pdl": True}])(x, w, out=y)
    assert "stream=1 attribute6=1 args=" in launches(driver)[0]
    tools.kernel([{**tools.ANY, "grid": [16, 1, 1], "cluster": [16, 1, 1]}])(x, w, out=y)
    assert driver.log("cuFuncSetAttribute") == ["cuFuncSetAttribute 14=1"]
    for grid in ([3, "m", 1], [1, "m", 1]):
        with raises(errors.ArtifactError, "gemm_any: a grid of", "no multiple of its clusters of 2"):
            tools.kernel([{**tools.ANY, "grid": grid, "cluster": [2, 1, 1]}])(x, w, out=y)
    with raises(errors.ArtifactError, "cluster is [0, 1, 1]"):
        tools.kernel([{**tools.ANY, "cluster": [0, 1, 1]}])(x, w, out=y)
    driver.check_balance()


def packing() -> _core.Steps:
    """A launch that writes packed weights."""
    module = _core.CudaModule(0, tools.cubin([{"symbol": "pack", "args": []}]))
    function = module.function("pack", (), 0)
    return _core.Steps(0, 0, [function.step((), (1, 1, 1), (1, 1, 1), packs=True)])


@scenario
def early() -> None:
    """A launch that may start early waits for one that writes packed weights, on the same stream alone."""
    driver, (x, w, y) = Driver(), operands()
    ready = tools.kernel([{**tools.ANY, "pdl": True}])
    ready(x, w, out=y, stream=5)
    driver.clear()
    packing().launch((), stream=5)
    for stream in (6, 5, 5):
        ready(x, w, out=y, stream=stream)
    asked = ["attribute6=1" in line for line in launches(driver)[1:]]
    assert asked == [True, False, True], launches(driver)
    driver.check_balance()


@scenario
def shared_by_formula() -> None:
    driver = Driver()
    kernel = tools.kernel([{**tools.ANY, "shared": ["mul", "k", 1024]}])
    for k in (32, 64, 48, 128):
        x, w, y = operands(k=k)
        kernel(x, w, out=y)
        assert f" shared={k * 1024} " in launches(driver)[-1]
    assert driver.log("cuFuncSetAttribute") == ["cuFuncSetAttribute 8=65536", "cuFuncSetAttribute 8=131072"]
    x, w, y = operands(k=256)
    with raises(errors.DeviceError, "gemm_any needs 262144 bytes of shared memory", "has 232448"):
        kernel(x, w, out=y)


@scenario
def shared_in_all() -> None:
    """What the code declares itself counts towards what needs no asking, and towards what the device has."""
    driver, (x, w, y) = Driver(), operands()
    driver.static_shared(1024)
    for dynamic, asked in ((47 * 1024, []), (48 * 1024, ["cuFuncSetAttribute 8=49152"])):
        driver.clear()
        tools.kernel([{**tools.ANY, "shared": dynamic}])(x, w, out=y)
        assert driver.log("cuFuncSetAttribute") == asked
    with raises(errors.DeviceError, "gemm_wide needs 233472 bytes of shared memory", "has 232448"):
        tools.kernel([tools.WIDE], tools.stub(SHARED=232448))(x, w, out=y)
    driver.static_shared(64 * 1024)
    driver.clear()
    modules._modules.clear()  # the same bytes would be the same function
    tools.kernel([{**tools.ANY, "shared": 16}])(x, w, out=y)
    assert driver.log("cuFuncSetAttribute") == ["cuFuncSetAttribute 8=16"]


MAP = {
    "of": "w",
    "dtype": "f16",
    "dims": ["k", "n"],
    "strides": [["mul", "k", 2]],
    "box": [64, 8],
    "swizzle": 64,
}
MAPPED = {**tools.ANY, "args": [["x", "ptr", "in"], ["w_map", "map", "map"], ["y", "ptr", "out"]]}


@scenario
def maps() -> None:
    driver, (x, w, y) = Driver(), operands()
    driver.clear()
    kernel = tools.kernel([{**MAPPED, "maps": {"w_map": MAP}}])
    kernel(x, w, out=y)
    (encoded,) = driver.log("cuTensorMapEncodeTiled")
    assert f" type=6 address={place(w)} dims=32,24 strides=64 box=64,8 steps=1,1" in encoded
    assert encoded.endswith(" interleave=0 swizzle=2 promotion=3 fill=0")
    (line,) = launches(driver)
    assert f"args={place(x)},{{{place(w)};2;32;24;0" in line, line
    odd = operands(k=7)
    with raises(
        errors.DriverError, "cuTensorMapEncodeTiled failed", "w_map (map): address 0x",
        "extents 7 x 24, strides in bytes 14, box 64 x 8",
    ):  # fmt: skip
        kernel(odd[0], odd[1], out=odd[2])
    bias = {"of": "bias", "dtype": "f32", "dims": ["n"], "strides": [], "box": [32]}
    driver.clear()
    tools.kernel([{**MAPPED, "maps": {"w_map": bias}}])(x, w, out=y)
    assert not driver.log("cuTensorMapEncodeTiled")
    assert f"{{{';'.join(['0'] * 16)}}}" in launches(driver)[0], "no operand: a map of zeros"
    driver.check_balance()


@scenario
def maps_that_are_none() -> None:
    Driver()
    x, w, y = operands()
    for change, message in (
        ({"dtype": "f64"}, "element type f64"),
        ({"swizzle": 48}, "swizzle 48"),
        ({"promotion": 1}, "promotion 1"),
        ({"box": [64, 257]}, "box 64 x 257"),
        ({"box": [64]}, "cannot be read"),
        ({"of": "z"}, "cannot be read"),
        ({"dims": ["k", "z"]}, "uses 'z'"),
        ({"strides": []}, "cannot be read"),
    ):
        with raises(errors.ArtifactError, message):
            tools.kernel([{**MAPPED, "maps": {"w_map": {**MAP, **change}}}])(x, w, out=y)
    with raises(errors.ArtifactError, "argument 'w_map' of unknown role 'map'"):
        tools.kernel([MAPPED])(x, w, out=y)
    nine = {
        **MAPPED,
        "args": [[f"m{i}", "map", "map"] for i in range(9)],
        "maps": {f"m{i}": MAP for i in range(9)},
    }
    with raises(errors.ArtifactError, "more than 8 tensor maps"):
        tools.kernel([nine])(x, w, out=y)


@scenario
def prologue() -> None:
    driver, (x, w, y) = Driver(), operands()
    first = {
        "symbol": "gemm_any_first", "args": [["x", "ptr", "in"], ["space", "ptr", "workspace"]],
        "block": [32, 1, 1], "grid": ["m", 1, 1],
    }  # fmt: skip
    never = {**first, "symbol": "gemm_any_never", "when": [["gt", "m", 99]]}
    driver.clear()
    entry = {**tools.ANY, "workspace": 4096, "prologue": [first, never]}
    tools.kernel([entry])(x, w, out=y, stream=3)
    before, after = launches(driver)
    assert before.startswith(
        "cuLaunchKernel gemm_any_first device=0 grid=4,1,1 block=32,1,1 shared=0 stream=3"
    )
    assert after.startswith("cuLaunchKernel gemm_any device=0 grid=1,4,1 block=64,1,1 shared=0 stream=3")
    assert int(before.rpartition(",")[2]) != 0
    driver.clear()
    tools.kernel([{**tools.WIDE, "prologue": [{**first, "args": first["args"][:1]}]}], tools.stub())(
        x, w, out=y
    )
    assert [line.split()[1] for line in launches(driver)] == ["gemm_any_first", "gemm_wide"]
    driver.check_balance()


# ---- workspaces

SPACE = {
    **tools.ANY,
    "args": [["x", "ptr", "in"], ["y", "ptr", "out"], ["space", "ptr", "workspace"]],
    "workspace": ["mul", ["mul", "m", "n"], 4],
}


@scenario
def workspace() -> None:
    driver, (x, w, y) = Driver(), operands()
    kernel = tools.kernel([SPACE])
    assert kernel.workspace_bytes("cuda", m=4, n=24, k=32) == 384
    driver.clear()
    kernel(x, w, out=y)
    assert driver.log("cuMemAlloc") == ["cuMemAlloc 384"]
    assert not driver.log("cuMemset"), "only those that want zeros get them"
    space = wootz.to_device(np.zeros(96, F32))
    kernel(x, w, out=y, workspace=space)
    assert launches(driver)[-1].endswith(f",{place(space)}")
    for wrong, message in (
        (wootz.to_device(np.zeros(383, np.uint8)), "workspace has 383 bytes; the call needs 384"),
        (Interface(aligned(400, 64), driver), "workspace starts at address .* no multiple of 128 bytes"),
        (Interface(aligned(800, 0)[::2], driver), "workspace has strides"),
        (Interface(aligned(400, 0), driver, data=(place(space), True)), "workspace is read-only"),
        ([0] * 400, "workspace is a list"),
        (y, "workspace shares memory with y"),
        (w, "workspace shares memory with w"),
    ):
        with raises(errors.ArgumentError) as caught:
            kernel(x, w, out=y, workspace=wrong)
        assert re.search(message, str(caught[0])), caught
    with raises(errors.DeviceError, "workspace is on cpu, x is on cuda:0"):
        kernel(x, w, out=y, workspace=np.zeros(400, np.uint8))
    driver.check_balance()


def aligned(size: int, offset: int) -> Any:
    raw = np.zeros(size + 256, np.uint8)
    start = -raw.ctypes.data % 128 + offset
    return raw[start : start + size]


@scenario
def workspace_zeroed() -> None:
    driver, (x, w, y) = Driver(), operands()
    kernel = tools.kernel([{**SPACE, "zeroed": True}])
    driver.clear()
    kernel(x, w, out=y, stream=6)
    (line,) = driver.log("cuMemsetD8Async")
    assert line.endswith("value=0 bytes=384 stream=6"), line
    assert line.split()[1] == launches(driver)[0].rpartition(",")[2]
    order = [each.split()[0] for each in driver.log()]
    assert order.index("cuMemsetD8Async") < order.index("cuLaunchKernel") < order.index("cuMemFree")
    space = wootz.to_device(np.zeros(384, np.uint8))
    driver.clear()
    kernel(x, w, out=y, workspace=space)
    assert not driver.log("cuMemsetD8Async"), "the caller zeroes once, and the kernel leaves zeros"


@scenario
def workspace_of_a_stranger() -> None:
    driver, kernel = Driver(), tools.kernel([SPACE])
    x, w, y = (GpuArray(np.zeros(s, t)) for s, t in (((4, 32), F16), ((24, 32), F16), ((4, 24), F32)))
    with raises(errors.ArgumentError, "cannot make arrays of", "pass workspace= with 384 bytes"):
        kernel(x, w, out=y)
    driver.fail("cuMemAlloc", 2)
    with raises(errors.OutOfMemoryError, "cuMemAlloc"):
        a, b, c = operands()
        kernel(a, b, out=c)
    driver.clear()
    driver.fail("cuMemAlloc", 2, after=3)
    a, b, c = operands()
    with raises(errors.OutOfMemoryError, "cuMemAlloc"):
        kernel(a, b, out=c)
    assert not launches(driver)
    driver.check_balance()


@scenario
def workspace_sizes() -> None:
    Driver()
    kernel = tools.kernel([tools.WIDE, SPACE], tools.stub())
    assert kernel.workspace_bytes("cuda", m=4, n=24, k=32) == 4096
    assert kernel.workspace_bytes("cuda", m=4, n=24, k=20, alpha=3.0, activation="relu", bias=True) == 384
    bias = {**SPACE, "when": [["eq", "has_bias", 1]], "workspace": 7}
    both = tools.kernel([bias, {**SPACE, "workspace": ["add", "activation", 100]}])
    assert both.workspace_bytes("cuda:0", m=1, n=1, k=1, bias=True) == 7
    assert both.workspace_bytes("cuda:0", m=1, n=1, k=1, activation="silu") == 102
    assert tools.kernel([tools.ANY]).workspace_bytes("cuda", m=1, n=1, k=1) == 0
    for sizes, message in (
        ({"m": 1, "n": 2}, "workspace_bytes needs k= of gemm("),
        ({"m": 1, "n": 2, "k": 3, "q": 4}, "gemm has no argument 'q'"),
        ({"m": -1, "n": 2, "k": 3}, "m is -1; want an extent"),
        ({"m": 1, "n": 2, "k": 3, "activation": "gelu"}, "activation is 'gelu'"),
    ):
        with raises(errors.ArgumentError, message):
            kernel.workspace_bytes("cuda", **sizes)
    with raises(errors.NoKernelError, "has no binary for cpu"):
        kernel.workspace_bytes(m=1, n=1, k=1)


class FakeTorch:
    """As much of torch as the loader looks at, with the stream that memory is made on."""

    class Tensor(GpuArray):
        requires_grad = False

    class cuda:
        current = 10

        class ExternalStream:
            def __init__(self, stream: int, device: int) -> None:
                self.cuda_stream = stream

        @classmethod
        def current_stream(cls, device: int) -> Any:
            return cls.ExternalStream(cls.current, device)

        @classmethod
        def default_stream(cls, device: int) -> Any:
            return cls.ExternalStream(0, device)

        class stream:
            def __init__(self, stream: Any) -> None:
                self.stream = stream.cuda_stream

            def __enter__(self) -> None:
                FakeTorch.cuda.current, self.before = self.stream, FakeTorch.cuda.current

            def __exit__(self, *_: Any) -> None:
                FakeTorch.cuda.current = self.before

    uint8, float32 = np.uint8, np.float32
    made: ClassVar[list[tuple[Any, int]]] = []

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
        cls.made.append((shape, cls.cuda.current))
        return cls.Tensor(
            aligned(int(np.prod(shape)) * np.dtype(dtype).itemsize, 0).view(dtype).reshape(shape), device
        )


@scenario
def workspace_in_the_order_of_the_stream() -> None:
    """A caching allocator gives dropped memory away again, in the order of the stream that it was made on."""
    sys.modules["torch"] = FakeTorch  # type: ignore[assignment]
    driver, kernel = Driver(), tools.kernel([SPACE])
    x, w = (FakeTorch.Tensor(np.zeros(shape, F16)) for shape in ((4, 32), (24, 32)))
    for stream, made in ((None, 10), (77, 77), (1, 0), (0, 0)):
        FakeTorch.made.clear()
        kernel(x, w, stream=stream)
        assert FakeTorch.made == [((4, 24), 10), ((384,), made)], FakeTorch.made
        assert f"stream={made if stream != 1 else 1} " in launches(driver)[-1]
    gc.collect()


# ---- drivers that lack something


@scenario
def old() -> None:
    """With a driver of the time before clusters."""
    Driver()
    x, w, y = operands()
    tools.kernel([tools.ANY])(x, w, out=y)
    with raises(errors.DeviceError, "too old: it lacks cuLaunchKernelEx", "CUDA 11.8 or later"):
        tools.kernel([{**tools.ANY, "pdl": True}])(x, w, out=y)
    with raises(errors.DeviceError, "too old: it lacks cuTensorMapEncodeTiled", "CUDA 12.0 or later"):
        tools.kernel([{**MAPPED, "maps": {"w_map": MAP}}])(x, w, out=y)
    with raises(errors.DeviceError, "too old: it lacks cuOccupancyMaxActiveClusters"):
        tools.kernel([tools.WIDE], tools.stub())(x, w, out=y)
    with raises(errors.DeviceError, "too old: it lacks cuTensorMapEncodeTiled"):
        tools.kernel([tools.WIDE], tools.stub(CLUSTER=1))(x, w, out=y)


if __name__ == "__main__":
    main()
