"""Plans on the stand-in of libcuda: their fast way, workspaces, streams and graphs.

As scenarios.py: `python plans.py NAME`, one process a scenario.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import Any

import numpy as np
import wootz
from wootz import errors

from tests.null import loader_tools, stub_tools
from tests.null.fakecuda.standin import (
    F16,
    Driver,
    GpuArray,
    launches,
    library,
    main,
    make_type,
    raises,
    scenario,
    wait_for,
)

F32 = np.float32
ALIGNED = 256


def host(*shape: int, dtype: Any = F16) -> np.ndarray[Any, Any]:
    """Zeros that begin at a multiple of 256 bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + ALIGNED, np.uint8)
    start = -raw.ctypes.data % ALIGNED
    return raw[start : start + size].view(dtype).reshape(shape)


def no_careful_way(plan: wootz.Plan) -> wootz.Plan:
    """The same plan; calls that are not read the fast way fail."""

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("this call went the careful way")

    plan._careful = fail  # type: ignore[method-assign]
    return plan


def calls(driver: Driver) -> list[str]:
    """What the driver was asked, but for contexts."""
    return [line.split()[0] for line in driver.log() if not line.startswith("cuCtx")]


def stream_of(line: str) -> int:
    return int(line.partition("stream=")[2].partition(" ")[0])


def copy_plan(n: int = 16) -> wootz.Plan:
    return library().plan("copy", dtype="f16", device="cuda", n=n)


def gemm_plan(entries: list[Any], image: bytes | None = None, **settled: Any) -> wootz.Plan:
    lib = wootz.load(stub_tools.folder(entries, image).write())
    return lib.plan("gemm", dtype="f16", device="cuda:0", **{"m": 4, "n": 24, "k": 32, **settled})


def gemm_arrays(kind: Any) -> tuple[Any, Any, Any]:
    return kind(host(4, 32)), kind(host(24, 32)), kind(host(4, 24, dtype=F32))


SPACE = {
    **stub_tools.ANY,
    "args": [["x", "ptr", "in"], ["y", "ptr", "out"], ["space", "ptr", "workspace"]],
    "workspace": ["mul", ["mul", "m", "n"], 4],
    "zeroed": True,
}


# ---- the fast way


@scenario
def launch() -> None:
    driver, kind = Driver(), make_type()
    plan = no_careful_way(copy_plan())
    assert plan.device == "cuda:0"
    assert driver.log("cuModuleGetFunction") == ["cuModuleGetFunction copy_u16"]
    x, y = kind(host(16)), kind(host(16))
    for stream in (7, 9, 0):
        kind.current = stream
        driver.clear()
        assert plan(x, out=y) is y
        assert calls(driver) == ["cuLaunchKernel"], "a call launches, and does nothing else"
        (line,) = launches(driver)
        assert stream_of(line) == stream, "the current stream is read at each call"
        assert line.endswith(f" args={x.array.ctypes.data},{y.array.ctypes.data},16")
    plan(x, out=y, stream=11)
    plan(x, out=y, stream=type("S", (), {"__cuda_stream__": lambda self: (0, 12)})())
    assert [stream_of(line) for line in launches(driver)[1:]] == [11, 12]
    with raises(errors.ArgumentError, "stream is a str"):
        plan(x, out=y, stream="7")
    with raises(errors.ArgumentError, "stream is a bool"):
        plan(x, out=y, stream=True)
    driver.check_balance()


@scenario
def quantised() -> None:
    driver, lib, kind = Driver(), library(), make_type()
    q = wootz.quantize(np.ones((5, 70), F32), lib.format("toy"))
    q = q.map(lambda a: kind(np.ascontiguousarray(a)))
    plan = lib.plan("qgemv", format="toy", device="cuda", m=3, n=5, k=70)
    x, y = kind(host(3, 70, dtype=F32)), kind(host(3, 5, dtype=F32))
    no_careful_way(plan)(x, w=q, out=y)
    (line,) = launches(driver)
    assert "gemv_many device=0 grid=5,1,1" in line
    codes, scale = (q.fields[name].array.ctypes.data for name in ("codes", "scale"))
    wanted = f"{x.array.ctypes.data},{codes},{scale},{y.array.ctypes.data},3,5,70,80,18"
    assert line.endswith(f"args={wanted}"), line


@scenario
def not_just_so() -> None:
    """Everything that the fast way leaves to the other, which has words for it."""
    Driver().device(count=2)
    kind, other = make_type(), make_type()
    plan, x, y = copy_plan(), kind(host(16)), kind(host(16))
    both = kind(host(32))
    for given, out, error, parts in (
        (kind(host(17)), y, errors.ArgumentError, ("x", "n=17", "made for n=16")),
        (kind(host(16, dtype=F32)), y, errors.DtypeError, ("x", "f32", "f16")),
        (kind(host(32)[::2]), y, errors.ArgumentError, ("x", "strides")),
        (kind(host(24)[1:17]), y, errors.ArgumentError, ("x", "no multiple of 16")),
        (kind(host(16), 1), y, errors.DeviceError, ("x is on cuda:1", "cuda:0")),
        (x, kind(host(16), 1), errors.DeviceError, ("out is on cuda:1, x is on cuda:0",)),
        (x, kind(host(4, 4)), errors.ArgumentError, ("out", "[4, 4]", "[16]")),
        (kind(both.array[:16]), kind(both.array[8:24]), errors.ArgumentError, ("out shares memory with x",)),
        (host(16), y, errors.DeviceError, ("x is on cpu",)),
    ):
        kind.__dlpack__, kind.__dlpack_device__ = _export, _device
        with raises(error, *parts):
            plan(given, out=out)
    kind.fails = True
    plan(x, out=y)  # its table fails: read by the export
    kind.fails = False
    other.__dlpack__, other.__dlpack_device__ = _export, _device
    kind.reads = 0
    plan(x, out=other(host(16)))  # two libraries, and two current streams
    assert kind.reads == 1


def _export(self: Any, **more: Any) -> Any:
    return GpuArray(self.array, self.device).__dlpack__(**more)


def _device(self: Any) -> tuple[int, int]:
    return 2, self.device


@scenario
def tables() -> None:
    driver = Driver()
    managed = make_type(view=False)
    plan = no_careful_way(copy_plan())
    plan(managed(host(16)), out=managed(host(16)))
    assert managed.deleted == 2, "what is exported is given back"
    assert managed.reads == 0
    plain = make_type()
    plan(plain(host(16)), out=plain(host(16)))
    assert (plain.reads, plain.deleted) == (1, 1), "what is written is asked whether it may be"
    newer = make_type(major=2, previous=plain)
    plan(newer(host(16)), out=newer(host(16)))
    assert (newer.reads, plain.reads) == (0, 2), "an earlier table is found behind a later one"
    assert len(launches(driver)) == 3
    careful = copy_plan()
    for unknown in (make_type(major=2), make_type(requires_grad=False)):
        unknown.__dlpack__, unknown.__dlpack_device__ = _export, _device
        careful(unknown(host(16)), out=unknown(host(16)))
        assert unknown.reads == 0
    locked = make_type(readonly=True)
    with raises(AssertionError, "went the careful way"):
        plan(plain(host(16)), out=locked(host(16)))


@scenario
def lazy_tensors() -> None:
    """torch's own types are asked what their memory does not say; its subclasses are not read this way."""
    driver = Driver()
    tensor = make_type(requires_grad=False, negative=False, is_neg=lambda self: self.negative)
    torch: Any = type(sys)("torch")
    torch.Tensor, torch.nn = tensor, type("nn", (), {"Parameter": type("Parameter", (tensor,), {})})
    sys.modules["torch"] = torch
    x, y, plan = tensor(host(16)), tensor(host(16)), copy_plan()
    parameter = torch.nn.Parameter(host(16))
    no_careful_way(plan)
    plan(x, out=y)
    plan(parameter, out=y)
    assert (tensor.reads, tensor.deleted) == (4, 0), "torch has nothing that is read-only"
    for spoil in ({"requires_grad": True}, {"negative": True}):
        vars(x).update(spoil)
        with raises(AssertionError, "went the careful way"):
            plan(x, out=y)
        for name in spoil:
            del vars(x)[name]
    with raises(AssertionError, "went the careful way"):
        plan(type("Sub", (tensor,), {})(host(16)), out=y)
    assert len(launches(driver)) == 2


@scenario
def strangers() -> None:
    """Arrays that only the careful way reads are launched by the same plan."""
    driver, plan = Driver(), copy_plan()
    x, y = GpuArray(host(16)), GpuArray(host(16))
    assert plan(x, out=y) is y
    assert x.streams == [1]
    own = wootz.to_device(host(16))
    made = plan(own)
    assert isinstance(made, wootz.DeviceArray)
    assert plan(own, out=made, stream=5) is made
    assert [stream_of(line) for line in launches(driver)] == [1, 1, 5]
    driver.check_balance()


@scenario
def nothing_is_allocated() -> None:
    driver, kind = Driver(), make_type()
    plan = gemm_plan([SPACE])
    x, w, y = gemm_arrays(kind)
    plan(x, w, out=y)  # the first on a stream asks whether it is being captured
    driver.clear()
    for _ in range(3):
        no_careful_way(plan)(x, w, out=y)
    assert set(calls(driver)) == {"cuLaunchKernel"}, calls(driver)
    driver.check_balance()


@scenario
def bound() -> None:
    driver, kind = Driver(), make_type()
    plan, x, y = copy_plan(), kind(host(16)), kind(host(16))
    kind.__dlpack__, kind.__dlpack_device__ = _export, _device
    addresses = f"args={x.array.ctypes.data},{y.array.ctypes.data},16"
    made = plan.bind(x, out=y)
    assert made.out is y
    del x, plan
    gc.collect()
    for stream, wanted in ((None, 1), (4, 4), (None, 1)):
        driver.clear()
        assert made(stream) is y
        assert calls(driver) == ["cuStreamIsCapturing", "cuGraphLaunch"]
        (line,) = launches(driver)
        assert stream_of(line) == wanted
        assert line.endswith(addresses)
    assert made(stream=type("S", (), {"ptr": 6})()) is y
    with raises(TypeError, "takes stream= and nothing else"):
        made(1, 2)  # type: ignore[call-arg]
    with raises(TypeError, "takes stream= and nothing else"):
        made(x=1)  # type: ignore[call-arg]
    with raises(errors.ArgumentError, "stream is a str"):
        made("x")
    driver.fail("cuGraphLaunch", 719)
    with raises(errors.DriverError, "cuGraphLaunch failed", "719"):
        made()
    driver.check_balance()
    assert driver.live()["execs"] == 1
    del made
    gc.collect()
    assert [driver.live()[each] for each in ("streams", "graphs", "execs")] == [0, 0, 0]


STEADY = 8
"""Calls on one stream before a plan makes a graph of its launches."""
REPLAYED = ["cuStreamIsCapturing", "cuGraphExecKernelNodeSetParams", "cuGraphLaunch"]


@scenario
def repeated_calls() -> None:
    """Calls that come again on one stream become launches of a graph, with the arguments of each."""
    driver, kind = Driver(), make_type()
    plan, out = no_careful_way(copy_plan()), kind(host(16))
    some = [kind(host(16)) for _ in range(3)]
    driver.clear()
    for _ in range(STEADY - 1):
        plan(some[0], out=out, stream=5)
    assert calls(driver) == ["cuLaunchKernel"] * (STEADY - 1)
    plan(some[0], out=out, stream=5)
    assert launches(driver)[-1].startswith("cuGraphLaunch stream=5 copy_u16")
    for x in some:
        driver.clear()
        plan(x, out=out, stream=5)
        assert calls(driver) == REPLAYED
        (update,) = driver.log("cuGraphExecKernelNodeSetParams")
        assert update.endswith(f" args={x.array.ctypes.data},{out.array.ctypes.data},16")
    driver.clear()
    for _ in range(STEADY + 1):
        plan(some[0], out=out, stream=6)
    assert calls(driver) == ["cuLaunchKernel"] * (STEADY + 1), "the graph is its own stream's"
    plan(some[0], out=out, stream=5)
    assert calls(driver)[-3:] == REPLAYED
    driver.clear()
    driver.fail("cuGraphExecKernelNodeSetParams", 1, times=1)
    plan(some[0], out=out, stream=5)
    plan(some[0], out=out, stream=5)
    assert [line.split()[0] for line in launches(driver)] == ["cuLaunchKernel", "cuGraphLaunch"]
    driver.clear()
    driver.capture(5)
    for _ in range(STEADY):
        plan(some[0], out=out, stream=5)
    assert not driver.log("cuGraphLaunch"), "a capture holds kernel nodes"
    driver.instantiate(5)
    plan(some[0], out=out, stream=5)
    assert driver.log("cuGraphLaunch")
    driver.check_balance()
    del plan
    gc.collect()
    assert [driver.live()[each] for each in ("streams", "graphs", "execs")] == [0, 0, 0]


@scenario
def repeated_calls_where_no_graph_can_be_made() -> None:
    driver, kind = Driver(), make_type()
    plan, x, y = no_careful_way(copy_plan()), kind(host(16)), kind(host(16))
    driver.fail("cuGraphInstantiateWithFlags", 2, times=1)
    for _ in range(STEADY + 3):
        plan(x, out=y)
    assert len(launches(driver)) == STEADY + 3
    assert len(driver.log("cuGraphInstantiateWithFlags")) == 1, "it is tried once"
    assert [driver.live()[each] for each in ("streams", "graphs", "execs")] == [0, 0, 0]
    driver.check_balance()


@scenario
def bound_where_no_graph_can_be_made() -> None:
    driver, kind = Driver(), make_type()
    kind.__dlpack__, kind.__dlpack_device__ = _export, _device
    plan, x, y = copy_plan(), kind(host(16)), kind(host(16))
    for call in ("cuGraphInstantiateWithFlags", "cuStreamCreate"):
        driver.clear()
        driver.fail(call, 2, times=1)
        made = plan.bind(x, out=y)
        assert made() is y
        assert calls(driver)[-1] == "cuLaunchKernel"
    driver.check_balance()


@scenario
def repeated_calls_with_a_workspace() -> None:
    driver, kind = Driver(), make_type()
    plan = gemm_plan([SPACE])
    x, w, y = gemm_arrays(kind)
    for _ in range(STEADY):
        plan(x, w, out=y, stream=3)
    driver.clear()
    plan(x, w, out=y, stream=3)
    assert calls(driver) == REPLAYED
    plan(x, w, out=y, stream=4)
    assert "cuStreamWaitEvent" in calls(driver), "another stream waits for the graph"
    driver.check_balance()


@scenario
def bound_under_capture() -> None:
    """A bound plan's call becomes a node of its own, as another plan's does."""
    driver, kind = Driver(), make_type()
    kind.__dlpack__, kind.__dlpack_device__ = _export, _device
    plan, x, y = copy_plan(), kind(host(16)), kind(host(16))
    driver.capture(7)
    made = plan.bind(x, out=y)  # makes a graph beside the capture
    driver.clear()
    made(stream=7)
    made(stream=8)
    assert calls(driver) == ["cuStreamIsCapturing", "cuLaunchKernel", "cuStreamIsCapturing", "cuGraphLaunch"]
    driver.instantiate(7)
    made(stream=7)
    assert launches(driver)[-1].startswith("cuGraphLaunch stream=7 copy_u16 ")
    driver.check_balance()


@scenario
def bound_by_threads() -> None:
    """One graph: its launches come one after the other."""
    driver, kind = Driver(), make_type()
    kind.__dlpack__, kind.__dlpack_device__ = _export, _device
    made = copy_plan().bind(kind(host(16)), out=kind(host(16)))
    driver.block("cuGraphLaunch")
    threads = [threading.Thread(target=made, args=(stream,)) for stream in (3, 4)]
    for each in threads:
        each.start()
    wait_for(driver.blocked)
    time.sleep(0.05)
    assert driver.blocked() == 1
    driver.block("")
    for each in threads:
        each.join()
    assert len(driver.log("cuGraphLaunch")) == 2


@scenario
def failures() -> None:
    driver, kind = Driver(), make_type()
    plan, x, y = no_careful_way(copy_plan()), kind(host(16)), kind(host(16))
    driver.fail("cuLaunchKernel", 701)
    with raises(errors.DriverError, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        plan(x, out=y)
    driver.clear()
    plan(x, out=y)
    driver.check_balance()


# ---- what is settled


@scenario
def scalars_and_options() -> None:
    driver, kind = Driver(), make_type()
    kind.__dlpack__, kind.__dlpack_device__ = _export, _device
    x, w, y = gemm_arrays(kind)
    bias = kind(host(24, dtype=F32))
    plan = gemm_plan([stub_tools.WIDE], stub_tools.stub(), alpha=0.5, activation="silu", bias=True)
    driver.clear()
    no_careful_way(plan)(x, w, bias, out=y, stream=9)
    first, *rest = calls(driver)
    assert (first, rest) == (
        "cuStreamIsCapturing",
        ["cuTensorMapEncodeTiled", "cuMemsetD8Async", "cuLaunchKernelEx"],
    )
    assert " stream=9 attribute4=2,1,1 args=" in launches(driver)[0]
    del plan._careful  # type: ignore[method-assign]
    plan(x, w, bias=bias, out=y, alpha=0.5, activation="silu")
    for wrong, message in (
        ({"alpha": 0.25}, "alpha is 0.25; the plan was made for alpha=0.5"),
        ({"activation": "relu"}, "activation is 1; the plan was made for activation=2"),
        ({"bias": None}, "bias is not given; the plan was made with it: make one with bias=False"),
    ):
        with raises(errors.ArgumentError, message):
            plan(x, w, out=y, **{"bias": bias, **wrong})
    bare = gemm_plan([stub_tools.WIDE], stub_tools.stub())
    with raises(errors.ArgumentError, "bias is given; the plan was made without it"):
        bare(x, w, bias, out=y)
    with raises(errors.ArgumentError, "bias is 3; want True where calls give it"):
        gemm_plan([stub_tools.WIDE], stub_tools.stub(), bias=3)
    told = plan.describe()
    assert (told["symbol"], told["grid"], told["workspace_bytes"]) == ("gemm_wide", None, 4096)
    assert told["scalars"] == {"alpha": 0.5, "activation": 2}
    assert told["operands"]["bias"] == {"shape": [24], "dtype": "f32", "alignment": 16}


@scenario
def measured() -> None:
    """A plan takes what was fastest on a device of its name, and else the usual one."""
    driver, kind = Driver(), make_type()
    other = {**stub_tools.ANY, "symbol": "gemm_other"}
    shape = {"m": 4, "n": 24, "k": 32}
    rows = [
        {"shape": shape, "symbol": "gemm_wide", "us": 1.0, "device": "another"},
        {"shape": shape, "symbol": "gemm_other", "us": 2.0, "device": "Fake GPU"},
    ]
    entries = [stub_tools.WIDE, stub_tools.ANY, other]
    made = stub_tools.folder(entries, stub_tools.stub(), measured=rows)
    lib = wootz.load(made.write())
    plan = lib.plan("gemm", dtype="f16", device="cuda:0", **shape)
    told = plan.describe()
    assert (told["symbol"], told["chosen"]) == ("gemm_other", "tuned: m=4 n=24 k=32 on Fake GPU")
    x, w, y = gemm_arrays(kind)
    driver.clear()
    no_careful_way(plan)(x, w, out=y)
    assert " gemm_other " in launches(driver)[0]
    far = lib.plan("gemm", dtype="f16", device="cuda:0", m=64, n=24, k=32).describe()
    assert (far["symbol"], far["chosen"]) == ("gemm_wide", "default order")
    rows[1]["symbol"] = "gemm_wide"
    lib = wootz.load(
        stub_tools.folder([WIDE_REFUSES, stub_tools.ANY], stub_tools.stub(), measured=rows).write()
    )
    told = lib.plan("gemm", dtype="f16", device="cuda:0", **shape).describe()
    assert (told["symbol"], told["chosen"]) == ("gemm_any", "default order")


WIDE_REFUSES = {**stub_tools.WIDE, "when": [["ge", "k", 64]]}

MAP = {"of": "w", "dtype": "f16", "dims": ["k", "n"], "strides": [["mul", "k", 2]], "box": [64, 8]}
MAPPED = {
    **stub_tools.ANY,
    "args": [["x", "ptr", "in"], ["w_map", "map", "map"], ["y", "ptr", "out"]],
    "maps": {"w_map": MAP},
}


@scenario
def maps() -> None:
    driver, kind = Driver(), make_type()
    kind.__dlpack__, kind.__dlpack_device__ = _export, _device
    x, w, y = gemm_arrays(kind)
    plan = gemm_plan([MAPPED])
    driver.clear()
    no_careful_way(plan)(x, w, out=y)
    place = w.array.ctypes.data
    assert f"address={place} dims=32,24 strides=64" in driver.log("cuTensorMapEncodeTiled")[0]
    assert f"{{{place};2;32;24;0" in launches(driver)[0]
    made = plan.bind(x, w, out=y)
    driver.clear()
    made()
    made()
    assert calls(driver) == ["cuStreamIsCapturing", "cuGraphLaunch"] * 2, "maps are encoded once"
    assert f"{{{place};2;32;24;0" in launches(driver)[1]


@scenario
def no_variant() -> None:
    Driver()
    with raises(errors.ArgumentError, "no variant for", "k=8", "k >= 16"):
        gemm_plan([stub_tools.WIDE], stub_tools.stub(), k=8)


# ---- workspaces


@scenario
def workspace() -> None:
    driver, kind = Driver(), make_type()
    plan = gemm_plan([SPACE])
    assert plan.workspace_bytes == 384
    assert driver.log("cuMemAlloc") == ["cuMemAlloc 384"]
    (zeroed,) = driver.log("cuMemsetD8Async")
    assert zeroed.endswith("value=0 bytes=384 stream=1")
    assert driver.log("cuStreamSynchronize") == ["cuStreamSynchronize 1"], (
        "a launch on any stream comes after"
    )
    x, w, y = gemm_arrays(kind)
    for _ in range(3):
        plan(x, w, out=y)
    assert len(driver.log("cuMemset")) == 1, "the kernel leaves zeros"
    assert {line.rpartition(",")[2] for line in launches(driver)} == {zeroed.split()[1]}
    del plan
    gc.collect()
    assert len(driver.log("cuMemFree")) == 1
    driver.check_balance()


@scenario
def streams_share_a_workspace() -> None:
    driver, kind = Driver(), make_type()
    plan = no_careful_way(gemm_plan([SPACE]))
    x, w, y = gemm_arrays(kind)
    driver.clear()
    for stream in (5, 5, 6, 0, 1, 5):
        plan(x, w, out=y, stream=stream)
    ordered = [
        line for line in driver.log() if line.startswith(("cuEventRecord", "cuStreamWait", "cuLaunch"))
    ]
    short = [
        " ".join(line.split()[:2]) if "cuLaunch" not in line else str(stream_of(line)) for line in ordered
    ]
    assert short == [
        "5", "5",
        "cuEventRecord 5", "cuStreamWaitEvent 6", "6",
        "cuEventRecord 6", "cuStreamWaitEvent 1", "0",
        "1",
        "cuEventRecord 1", "cuStreamWaitEvent 5", "5",
    ], short  # fmt: skip
    driver.clear()
    driver.capture(8)
    plan(x, w, out=y, stream=8)
    assert not driver.log("cuEventRecord"), "nothing is ordered into a capture"
    plan(x, w, out=y, stream=9)
    assert [line.split()[1] for line in driver.log("cuEventRecord")] == ["5"], "nor behind one"
    assert [line.split()[1] for line in driver.log("cuStreamWaitEvent")] == ["9"]
    with raises(errors.ArgumentError, "default stream of each thread"):
        plan(x, w, out=y, stream=2)
    without = copy_plan()
    a, b = kind(host(16)), kind(host(16))
    driver.clear()
    without(a, out=b, stream=1)
    without(a, out=b, stream=2)
    assert calls(driver) == ["cuLaunchKernel"] * 2, "streams that share nothing are not ordered"
    driver.check_balance()


@scenario
def threads_share_a_workspace() -> None:
    driver, kind = Driver(), make_type()
    plan = no_careful_way(gemm_plan([SPACE]))
    x, w, y = gemm_arrays(kind)
    driver.clear()
    failures: list[BaseException] = []

    def work(stream: int) -> None:
        try:
            for _ in range(50):
                plan(x, w, out=y, stream=stream)
            driver.check_balance()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(stream,)) for stream in (3, 4, 5)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert not failures, failures
    last, ran = 0, set(launches(driver))
    for line in driver.log():
        if line.startswith("cuStreamWaitEvent"):
            last = int(line.split()[1])
        elif line in ran:
            assert last in (0, stream_of(line)), "a launch came between an order and its launch"
            last = stream_of(line)
    assert len(launches(driver)) == 150


@scenario
def workspace_without_memory() -> None:
    driver = Driver()
    driver.fail("cuMemAlloc", 2)
    with raises(errors.OutOfMemoryError, "cuMemAlloc"):
        gemm_plan([SPACE])
    driver.check_balance()


# ---- graphs


@scenario
def graph_node() -> None:
    driver, kind = Driver(), make_type()
    kind.__dlpack__, kind.__dlpack_device__ = _export, _device
    plan, x, y = copy_plan(), kind(host(16)), kind(host(16))
    with raises(errors.ArgumentError, "stream is not being captured"):
        plan.graph_node(x, out=y, stream=5)
    assert not launches(driver)
    driver.capture(5)
    node = plan.graph_node(x, out=y, stream=5)
    assert (len(node), node.out) == (1, y)
    graph = driver.instantiate(5)
    fresh, other = kind(host(16)), kind(host(16))
    driver.clear()
    assert node.update(graph, fresh, out=other) is other
    assert calls(driver) == ["cuGraphExecKernelNodeSetParams"]
    (line,) = driver.log("cuGraphExecKernelNodeSetParams")
    places = f"{fresh.array.ctypes.data},{other.array.ctypes.data}"
    assert line.endswith(f" copy_u16 grid=1,1,1 block=1,1,1 shared=0 args={places},16"), line
    assert node.update(graph, fresh) is other, "without out= it writes where it did"
    with raises(errors.ArgumentError, "x has n=17; the plan was made for n=16"):
        node.update(graph, kind(host(17)), out=other)
    with raises(errors.ArgumentError, "out shares memory with x"):
        node.update(graph, other, out=other)
    driver.capture(6)
    plan.graph_node(x, out=y, stream=6)
    second = driver.instantiate(6)
    with raises(errors.ArgumentError, "graph_exec does not hold this node", "CUDA_ERROR_INVALID_VALUE"):
        node.update(second, fresh)
    for wrong, says in (
        ("graph", "graph_exec is a str"),
        (None, "graph_exec is a NoneType"),
        (True, "graph_exec is a bool"),
        (0, "graph_exec is 0"),
    ):
        with raises(errors.ArgumentError, says):
            node.update(wrong, fresh)
    driver.check_balance()


@scenario
def graph_handles() -> None:
    """The graphs of other libraries."""
    driver, kind = Driver(), make_type()
    kind.__dlpack__, kind.__dlpack_device__ = _export, _device
    plan, x, y = copy_plan(), kind(host(16)), kind(host(16))
    driver.capture(5)
    node = plan.graph_node(x, out=y, stream=5)
    handle = driver.instantiate(5)

    class Torch:
        kept = True

        def raw_cuda_graph(self) -> int:
            if not self.kept:
                raise RuntimeError("not kept")
            return 1

        def raw_cuda_graph_exec(self) -> int:
            return handle

    class Cupy:
        graphExec = handle

    class Core:
        class handle:
            def __int__(self) -> int:
                return handle

        handle = handle()  # type: ignore[assignment]

    for graph in (handle, Torch(), Cupy(), Core()):
        node.update(graph, x)
    gone = Torch()
    gone.kept = False
    with raises(errors.ArgumentError, "keep_graph=True"):
        node.update(gone, x)


@scenario
def graph_of_a_stub() -> None:
    driver, kind = Driver(), make_type()
    kind.__dlpack__, kind.__dlpack_device__ = _export, _device
    x, w, y = gemm_arrays(kind)
    first = {
        "symbol": "gemm_any_first", "args": [["x", "ptr", "in"], ["space", "ptr", "workspace"]],
        "block": [32, 1, 1], "grid": ["m", 1, 1],
    }  # fmt: skip
    plan = gemm_plan([{**stub_tools.WIDE, "pdl": True, "prologue": [first]}], stub_tools.stub())
    driver.capture(5)
    node = plan.graph_node(x, w, out=y, stream=5)
    assert len(node) == 2, "the launch, and what comes before it"
    assert "attribute4=2,1,1 attribute6=1" in launches(driver)[1]
    graph = driver.instantiate(5)
    fresh = kind(host(4, 32))
    driver.clear()
    node.update(graph, fresh, w)
    assert calls(driver) == [
        "cuGraphExecKernelNodeSetParams", "cuTensorMapEncodeTiled", "cuGraphExecKernelNodeSetParams",
    ], "the memory that the stub sets has a node of its own"  # fmt: skip
    before, after = driver.log("cuGraphExec")
    assert f"args={fresh.array.ctypes.data}," in before
    assert f"{{{fresh.array.ctypes.data};2;32;4" in after
    driver.check_balance()


@scenario
def graph_of_nothing() -> None:
    driver, kind = Driver(), make_type()
    kind.__dlpack__, kind.__dlpack_device__ = _export, _device
    plan = copy_plan(0)
    assert not driver.log("cuModuleGetFunction")
    empty = kind(host(0))
    assert plan(empty, out=kind(host(0))).shape == (0,)
    with raises(errors.ArgumentError, "has nothing to compute"):
        plan.graph_node(empty, out=kind(host(0)), stream=5)
    assert not launches(driver)


@scenario
def cpu_makes_no_graph() -> None:
    Driver()
    folder = loader_tools.cpu_folder(stub_tools.folder([stub_tools.ANY]).path / "cpu", loader_tools.image())
    plan = wootz.load(folder).plan("copy", dtype="f16", device="cpu", n=16)
    with raises(errors.DeviceError, "graphs are CUDA's"):
        plan.graph_node(host(16), out=host(16))


if __name__ == "__main__":
    main()
