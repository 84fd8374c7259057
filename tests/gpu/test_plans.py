"""Plans on a CUDA device: the streams and graphs of torch, CuPy and cuda.core, and what is refused."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import needs
import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError, DeviceError, DtypeError

pytestmark = pytest.mark.gpu
needs.device()

torch: Any = pytest.importorskip("torch")
N, K, FORMAT = 96, 520, "mxfp4"


@pytest.fixture(scope="module")
def weights() -> Any:
    return wootz.quantize(np.random.default_rng(3).standard_normal((N, K)).astype(np.float32), FORMAT)


@pytest.fixture(scope="module")
def q(weights: Any) -> Any:
    return weights.to("cuda:0")


@pytest.fixture
def plan(lib: wootz.Library) -> wootz.Plan:
    return lib.plan("qgemv", format=FORMAT, dtype="f32", device="cuda", m=1, n=N, k=K)


def randn(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda")


def close(y: Any, x: Any, weights: Any) -> None:
    want = np.asarray(x, np.float64) @ weights.dequantize().astype(np.float64).T
    assert np.abs(np.asarray(y, np.float64) - want).max() < 1e-4 * np.abs(want).max()


def fast_only(plan: wootz.Plan) -> wootz.Plan:
    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("this call went the careful way")

    plan._careful = fail  # type: ignore[method-assign]
    return plan


# ---- calls


def test_torch(plan: wootz.Plan, q: Any, weights: Any) -> None:
    x = randn(1, K)
    y = plan(x, q)
    close(y.cpu(), x.cpu(), weights)
    out = torch.empty(1, N, device="cuda")
    assert plan(x, q, out=out) is out
    assert torch.equal(out, y)
    bound = plan.bind(x, q, out=out)
    out.fill_(float("nan"))
    assert torch.equal(bound(), y)


def test_bound_plans_are_captured_and_made_during_a_capture(plan: wootz.Plan, q: Any, weights: Any) -> None:
    x, out, other = randn(1, K), torch.empty(1, N, device="cuda"), torch.empty(1, N, device="cuda")
    bound = plan.bind(x, q, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bound()
        late = plan.bind(x, q, out=other)
        late()
    for _ in range(3):
        x.copy_(randn(1, K))
        graph.replay()
        for found in (out, other):
            close(found.cpu(), x.cpu(), weights)
        out.fill_(float("nan"))
        close(late().cpu(), x.cpu(), weights)
        close(bound().cpu(), x.cpu(), weights)


def test_a_bound_plan_between_other_work(plan: wootz.Plan, q: Any, weights: Any) -> None:
    """Replays keep the order of their stream: what comes before is read, what comes after is not."""
    x, out = randn(1, K), torch.empty(1, N, device="cuda")
    bound = plan.bind(x, q, out=out)
    seen, inputs = [], []
    busy()
    for _ in range(20):
        fresh = randn(1, K)
        x.copy_(fresh)
        bound()
        seen.append(out.clone())
        inputs.append(fresh)
    for y, given in zip(seen, inputs):
        close(y.cpu(), given.cpu(), weights)


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="an older torch")
def test_torch_is_read_the_fast_way_and_allocates_nothing(plan: wootz.Plan, q: Any) -> None:
    x, out = randn(1, K), torch.empty(1, N, device="cuda")
    plan(x, q, out=out)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    for _ in range(100):
        fast_only(plan)(x, q, out=out)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    plan(x, q)


def test_cupy(plan: wootz.Plan, weights: Any) -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.asarray(np.random.default_rng(4).standard_normal((1, K)).astype(np.float32))
    y = plan(x, weights.map(cupy.asarray))
    assert isinstance(y, cupy.ndarray)
    close(cupy.asnumpy(y), cupy.asnumpy(x), weights)


def test_no_framework(plan: wootz.Plan, weights: Any) -> None:
    host = np.random.default_rng(5).standard_normal((1, K)).astype(np.float32)
    y = plan(wootz.to_device(host), weights.map(lambda field: wootz.to_device(field, "cuda:0")))
    close(y.numpy(), host, weights)


def busy() -> None:
    """Some milliseconds of work on the current stream."""
    big = torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        big = (big @ big).clamp(-1, 1)


def test_follows_torchs_current_stream(plan: wootz.Plan, q: Any, weights: Any) -> None:
    """The input is written late on a side stream; a launch on any other stream would read the old values."""
    x, fresh = torch.zeros(1, K, device="cuda"), randn(1, K)
    bound = plan.bind(x, q)
    busy()
    torch.cuda.synchronize()
    for call in (lambda: plan(x, q), bound):
        x.zero_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            busy()
            x.copy_(fresh)
            y = call()
        side.synchronize()
        close(y.cpu(), fresh.cpu(), weights)


class Protocol:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@pytest.mark.parametrize("kind", ["torch", "protocol", "integer", "cupy"])
def test_streams_of_every_kind(plan: wootz.Plan, q: Any, weights: Any, kind: str) -> None:
    x, fresh, out = torch.zeros(1, K, device="cuda"), randn(1, K), torch.empty(1, N, device="cuda")
    side = torch.cuda.Stream()
    stream: Any = {"torch": side, "protocol": Protocol(side.cuda_stream), "integer": side.cuda_stream}.get(
        kind
    )
    if kind == "cupy":
        stream = pytest.importorskip("cupy").cuda.Stream.from_external(Protocol(side.cuda_stream))
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        busy()
        x.copy_(fresh)
    plan(x, q, out=out, stream=stream)
    side.synchronize()
    close(out.cpu(), fresh.cpu(), weights)


def test_threads(lib: wootz.Library, q: Any, weights: Any) -> None:
    plan = lib.plan("qgemv", format=FORMAT, dtype="f32", device="cuda:0", m=1, n=N, k=K)
    failures: list[Any] = []

    def work(seed: int) -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                generator = torch.Generator("cuda").manual_seed(seed)
                x = torch.randn(1, K, device="cuda", generator=generator)
                out = torch.empty(1, N, device="cuda")
                for _ in range(200):
                    plan(x, q, out=out)
            stream.synchronize()
            close(out.cpu(), x.cpu(), weights)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert not failures, failures


def test_a_workspace_is_shared_by_streams(lib: wootz.Library) -> None:
    """A kernel with a workspace, on two streams by turns: results are those of one stream."""
    shape = {"m": 256, "n": 256, "k": 8192}
    plan = lib.plan("gemm", dtype="bf16", out="same", device="cuda:0", **shape)
    a, b = (randn(256, 8192).bfloat16() for _ in range(2))
    want = plan(a, b)
    torch.cuda.synchronize()
    streams, outs = [torch.cuda.Stream() for _ in range(2)], []
    for i in range(40):
        with torch.cuda.stream(streams[i % 2]):
            outs.append(plan(a, b))
    torch.cuda.synchronize()
    assert all(torch.equal(out, want) for out in outs)


def test_outputs_that_are_tensors(lib: wootz.Library, weights: Any, q: Any) -> None:
    plan = lib.plan("prepack", format=FORMAT, dtype=_prepack_dtype(lib), device="cuda", n=N, k=K)
    packed = plan(q)
    wanted = wootz.prepack(weights)
    for name, field in wanted.fields.items():
        assert np.array_equal(packed.fields[name].cpu().numpy(), field), name
    packed.fields["units"].zero_()
    assert plan(q, out=packed) is packed
    assert np.array_equal(packed.fields["units"].cpu().numpy(), wanted.fields["units"])


def _prepack_dtype(lib: wootz.Library) -> str:
    cells = lib.index.records("cells", f"prepack/{FORMAT}/")
    return str(next(cell["dtype"] for cell in cells if cell["files"]))


# ---- graphs


def test_torch_captures_and_replays_new_inputs(plan: wootz.Plan, q: Any, weights: Any) -> None:
    x, y = torch.zeros(1, K, device="cuda"), torch.empty(1, N, device="cuda")
    bound = plan.bind(x, q, out=y)
    for call in (lambda: plan(x, q, out=y), bound):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        for _ in range(3):
            x.copy_(randn(1, K))
            y.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            close(y.cpu(), x.cpu(), weights)


def test_cupy_captures(plan: wootz.Plan, weights: Any) -> None:
    cupy = pytest.importorskip("cupy")
    x, y = cupy.zeros((1, K), cupy.float32), cupy.empty((1, N), cupy.float32)
    q = weights.map(cupy.asarray)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        node = plan.graph_node(x, q, out=y)
        graph = stream.end_capture()
    other = cupy.zeros((1, K), cupy.float32)
    for source in (x, other):
        host = np.random.default_rng(6).standard_normal((1, K)).astype(np.float32)
        source.set(host)
        node.update(graph, source, q)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        close(cupy.asnumpy(y), host, weights)


def _core_device() -> Any:
    for name in ("cuda.core", "cuda.core.experimental"):
        try:
            found = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(found, "Device"):
            return found.Device(0)
    return pytest.skip("no cuda.core")


def test_cuda_core_captures(plan: wootz.Plan, q: Any, weights: Any) -> None:
    x, y = randn(1, K), torch.empty(1, N, device="cuda")
    device = _core_device()
    device.set_current()
    stream = device.create_stream()
    torch.cuda.synchronize()
    builder = stream.create_graph_builder()
    builder.begin_building()
    node = plan.graph_node(x, q, out=y, stream=getattr(builder, "stream", builder))
    graph = builder.end_building().complete()
    fresh = randn(1, K)
    for source in (x, fresh):
        node.update(graph, source, q)
        torch.cuda.synchronize()
        graph.launch(stream)
        stream.sync()
        close(y.cpu(), source.cpu(), weights)


def test_a_node_takes_other_arrays(plan: wootz.Plan, q: Any, weights: Any) -> None:
    x, y = randn(1, K), torch.empty(1, N, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        node = plan.graph_node(x, q, out=y)
    graph.instantiate()
    fresh, out = randn(1, K), torch.empty(1, N, device="cuda")
    assert node.update(graph, fresh, q, out=out) is out
    y.fill_(7)
    graph.replay()
    torch.cuda.synchronize()
    close(out.cpu(), fresh.cpu(), weights)
    assert (y == 7).all()
    with pytest.raises(ArgumentError, match="x has m=2"):
        node.update(graph, randn(2, K), q)
    with pytest.raises(ArgumentError, match="out shares memory with x"):
        node.update(graph, fresh, q, out=fresh[:, :N])


def test_a_node_of_an_early_launch(lib: wootz.Library) -> None:
    """Packed weights are read before the launch before has ended: the node keeps that leave."""
    n, k = 256, 512
    host = wootz.quantize(np.random.default_rng(3).standard_normal((n, k)).astype(np.float32), FORMAT)
    packed = wootz.prepack(host).to("cuda:0")
    plan = lib.plan("qmm_packed", format=FORMAT, dtype="bf16", device="cuda:0", m=16, n=n, k=k)
    x, fresh = (randn(16, k).bfloat16() for _ in range(2))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        first = plan.graph_node(x, packed)
        second = plan.graph_node(x, packed)
    graph.instantiate()
    second.update(graph, fresh, packed)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(first.out, plan(x, packed))
    assert torch.equal(second.out, plan(fresh, packed))


def test_graphs_that_are_not_the_nodes(plan: wootz.Plan, q: Any) -> None:
    x, y = randn(1, K), torch.empty(1, N, device="cuda")
    with pytest.raises(ArgumentError, match="stream is not being captured"):
        plan.graph_node(x, q, out=y)
    graphs = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            node = plan.graph_node(x, q, out=y)
        graph.instantiate()
        graphs.append(graph)
    with pytest.raises(ArgumentError, match="graph_exec does not hold this node"):
        node.update(graphs[0], x, q)
    node.update(graphs[1], x, q)
    gone = torch.cuda.CUDAGraph()
    with torch.cuda.graph(gone):
        node = plan.graph_node(x, q, out=y)
    with pytest.raises(ArgumentError, match="keep_graph=True"):
        node.update(gone, x, q)


# ---- refusals


class Wrapper(torch.Tensor):  # type: ignore[misc]
    """A tensor with no memory of its own."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise AssertionError("no operation of it may run")


def _fake(x: Any) -> Any:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(tuple(x.shape), device="cuda")


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (Wrapper, ArgumentError, "x is a Wrapper"),
        (lambda x: _fake(torch.empty(1, K)), ArgumentError, "x is a FakeTensor"),
        (lambda x: x.requires_grad_(), ArgumentError, "detach"),
        (lambda x: torch._neg_view(x), ArgumentError, "resolve_neg"),
        (lambda x: x.cpu(), DeviceError, "cpu"),
        (lambda x: x.half(), DtypeError, "f16"),
        (lambda x: x.to(torch.complex64), DtypeError, "complex64"),
        (lambda x: x.to(torch.float8_e4m3fnuz), DtypeError, "fnuz"),
        (lambda x: x.byte().view(torch.float4_e2m1fn_x2), DtypeError, "float4_e2m1fn"),
        (lambda x: randn(K, 1).T[:, ::2], ArgumentError, "strides|k="),
        (lambda x: randn(2 * K)[1 : K + 1].view(1, K), ArgumentError, "multiple of 16"),
        (lambda x: randn(2, K), ArgumentError, "m=2; the plan was made for m=1"),
    ],
)  # fmt: skip
def test_refusals(plan: wootz.Plan, q: Any, spoil: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        plan(spoil(randn(1, K)), q)
    plan(randn(1, K), q)


def test_distributed_tensors_are_refused(plan: wootz.Plan, q: Any, tmp_path: Any) -> None:
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available() or distributed.is_initialized():
        pytest.skip("no group of processes to be made here")
    tensor = pytest.importorskip("torch.distributed.tensor")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        mesh = tensor.DeviceMesh("cuda", [0])
        x = tensor.distribute_tensor(randn(1, K), mesh, [tensor.Replicate()])
        with pytest.raises(ArgumentError, match=r"x is a DTensor.*x\.to_local\(\)"):
            plan(x, q)
        plan(x.to_local(), q)
    finally:
        distributed.destroy_process_group()
