"""wootz.torch on a CUDA device: ops against float64, torch.compile, torch.export, CUDA graphs, streams.

Each test skips where the library ships no such kernel for the device.
"""

from __future__ import annotations

import copy
import io
from typing import Any

import needs
import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError, DeviceError, NoKernelError

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")

import wootz.torch as wt  # noqa: E402

DEVICE = "cuda:0"
FORMATS = ["int4_g128", "mxfp4", "nvfp4", "q4_0", "affine4", "fp8_e4m3_b128"]
ROWS = [0, 1, 3, 16, 64, 1000]
SIZES = [(77, 200), (512, 1024)]
OWN_WARNINGS = pytest.mark.filterwarnings("ignore")
"""torch's compiler and its files warn of what is theirs."""


@pytest.fixture(scope="module")
def ops(lib: Any) -> Any:
    return wt.register(lib, "wootz")


def shipped(ops: Any, name: str, **request: Any) -> Any:
    """The function of a kernel; skips where the library has none for this device."""
    try:
        ops.library.kernel(name, device=DEVICE, **request).preload()
    except NoKernelError as error:
        pytest.skip(str(error))
    return getattr(ops, name)


def randn(*shape: int, dtype: Any = None, seed: int = 0) -> Any:
    generator = torch.Generator(device=DEVICE).manual_seed(seed + sum(shape))
    return torch.randn(*shape, device=DEVICE, generator=generator).to(dtype or torch.bfloat16)


def weights(ops: Any, format: str, n: int = 77, k: int = 200, packed: bool = False, seed: int = 0) -> Any:
    w = np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32)
    q = wootz.quantize(w, ops.library.format(format))
    return (wootz.prepack(q) if packed else q).map(lambda field: torch.from_numpy(field).to(DEVICE))


def numbers(q: Any) -> Any:
    return torch.from_numpy(q.dequantize()).double().to(DEVICE)


def close(y: Any, wanted: Any, tolerance: float = 1.5e-2) -> None:
    assert y.shape == wanted.shape
    if y.numel():
        error = (y.double() - wanted).abs().max().item()
        assert error <= tolerance * wanted.abs().max().item(), f"off by {error}"


# ---- the ops


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_a_layer_of_any_format_and_any_number_of_rows(
    ops: Any, format: str, packed: bool, dtype: Any, n: int, k: int
) -> None:
    q = weights(ops, format, n, k, packed)
    bias = randn(n, dtype=dtype)
    module, w = wt.QuantLinear(q, bias), numbers(q)
    for rows in ROWS:
        x = randn(rows, k, dtype=dtype)
        for _ in range(3):  # the kernel, then its plan
            y = module(x)
            assert y.dtype == dtype
            close(y, x.double() @ w.T + bias.double())


@pytest.mark.parametrize("rows", [1, 8, 9, 100])
def test_f32_rows_come_in_slices(ops: Any, rows: int) -> None:
    q, x = weights(ops, "mxfp4"), randn(rows, 200, dtype=torch.float32)
    close(ops.linear(x, q), x.double() @ numbers(q).T, 1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_tensors_of_a_format(ops: Any, format: str) -> None:
    q = weights(ops, format)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(ops.dequant(q, dtype=dtype), numbers(q).float().to(dtype))
    packed, want = ops.prepack(q), wootz.prepack(q)
    assert all(np.array_equal(packed.fields[name].cpu(), each) for name, each in want.fields.items())
    x = randn(5, 200)
    for y in (ops.qgemv(x, q), ops.qmm(x, q), ops.qmm_packed(x, packed)):
        close(y, x.double() @ numbers(q).T)


@pytest.mark.parametrize("rows", [0, 1, 130])
def test_activations(ops: Any, rows: int) -> None:
    quantise = shipped(ops, "quantize_activations", format="mxfp4", dtype="f32")
    x = randn(rows, 256, dtype=torch.float32)
    on_device, on_host = quantise(x, format="mxfp4"), quantise(x.cpu(), format="mxfp4")
    for name, each in on_host.fields.items():
        assert torch.equal(on_device.fields[name].cpu(), each)


@pytest.mark.parametrize("m", [0, 1, 17, 1000])
def test_dense_products(ops: Any, m: int) -> None:
    gemm, n, k = shipped(ops, "gemm", dtype="bf16", out="same"), 77, 55
    a, b, c, bias = randn(m, k), randn(n, k), randn(m, n), randn(n)
    close(gemm(a, b), a.double() @ b.double().T)
    for _ in range(3):
        y = gemm(a, b, c=c, bias=bias, alpha=0.5, beta=-2.0, activation="relu")
        close(y, (0.5 * (a.double() @ b.double().T) - 2 * c.double() + bias.double()).clamp(min=0))
    assert gemm(a, b, out="f32").dtype == torch.float32
    i, j = (torch.randint(-9, 9, (rows, 64), device=DEVICE, dtype=torch.int8) for rows in (m, n))
    assert torch.equal(gemm(i, j).double(), i.double() @ j.double().T)


def test_fp8_products(ops: Any) -> None:
    gemm, m, n, k = shipped(ops, "gemm_fp8", dtype="e4m3", out="bf16"), 64, 128, 256
    a, b = (randn(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
    scale_a, scale_b = (torch.rand(rows, device=DEVICE) + 0.5 for rows in (m, n))
    y = gemm(a, b, scale_a, scale_b, out="bf16")
    close(y, (a.double() * scale_a[:, None]) @ (b.double() * scale_b[:, None]).T)


def _groups() -> tuple[Any, Any, Any]:
    counts = torch.tensor([5, 0, 20], dtype=torch.int32, device=DEVICE)
    offsets = torch.tensor([30, 0, 2], dtype=torch.int32, device=DEVICE)
    return randn(40, 128), counts, offsets


def _grouped(x: Any, matrices: Any) -> Any:
    y = torch.zeros(40, matrices[0].shape[0], dtype=torch.float64, device=DEVICE)
    for first, count, w in zip((30, 0, 2), (5, 0, 20), matrices):
        y[first : first + count] = x[first : first + count].double() @ w.double().T
    return y


def test_groups_of_packed_weights(ops: Any) -> None:
    grouped = shipped(ops, "grouped_qmm", format="int4_g128", dtype="bf16")
    x, counts, offsets = _groups()
    members = [weights(ops, "int4_g128", 72, 128, packed=True, seed=i) for i in range(3)]
    bank = wootz.stack(members).map(lambda field: torch.from_numpy(field).to(DEVICE))
    for _ in range(3):
        close(grouped(x, bank, counts, offsets), _grouped(x, [numbers(each) for each in members]))
    assert not grouped(x, bank, counts * 0, offsets).any()
    fields = list(bank.fields.values())
    torch.library.opcheck(
        torch.ops.wootz.grouped_qmm.default, (x, fields, "int4_g128", [3, 72, 128], counts, offsets)
    )


def test_groups_of_dense_weights(ops: Any) -> None:
    grouped = shipped(ops, "grouped_gemm", dtype="bf16")
    x, counts, offsets = _groups()
    bank = randn(3, 72, 128)
    close(grouped(x, bank, counts, offsets), _grouped(x, list(bank)))


@pytest.mark.parametrize("packed", [False, True])
def test_opcheck(ops: Any, packed: bool) -> None:
    q = weights(ops, "nvfp4", packed=packed)
    layout = "packed" if packed else "natural"
    args = (randn(20, 200), list(q.fields.values()), "nvfp4", [77, 200], layout)
    assert set(torch.library.opcheck(torch.ops.wootz.linear.default, args).values()) == {"SUCCESS"}
    shipped(ops, "gemm", dtype="bf16", out="same")
    found = torch.library.opcheck(torch.ops.wootz.gemm.default, (randn(20, 64), randn(48, 64)))
    assert set(found.values()) == {"SUCCESS"}


# ---- compiled, exported, captured


def model(ops: Any, packed: bool, dtype: Any) -> Any:
    first = wt.QuantLinear(weights(ops, "int4_g128", 264, 200, packed), randn(264, dtype=dtype))
    return torch.nn.Sequential(first, torch.nn.GELU(), wt.QuantLinear(weights(ops, "mxfp4", 77, 264, packed)))


@OWN_WARNINGS
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(ops: Any, packed: bool, dtype: Any, mode: str) -> None:
    module = model(ops, packed, dtype)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, mode=mode, dynamic=False)
    with torch.inference_mode():
        for rows in (1, 16, 64):
            for turn in range(4):  # warm up, capture, replay
                x = randn(rows, 200, dtype=dtype, seed=turn)
                close(compiled(x).clone(), module(x).double())


def test_compiled_for_any_number_of_rows(ops: Any) -> None:
    module, graphs = model(ops, True, torch.bfloat16), []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=backend)
    with torch.inference_mode():
        for rows in (2, 3, 16, 64, 1000):
            x = randn(rows, 200)
            close(compiled(x), module(x).double())
    assert len(graphs) == 1


@OWN_WARNINGS
@pytest.mark.parametrize("packed", [False, True])
def test_exported_and_loaded(ops: Any, packed: bool) -> None:
    module, file = model(ops, packed, torch.bfloat16), io.BytesIO()
    rows = ({0: torch.export.Dim("m", min=0, max=4096)},)
    torch.export.save(torch.export.export(module, (randn(4, 200),), dynamic_shapes=rows), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for count in (1, 9, 70):
        x = randn(count, 200)
        close(loaded(x), module(x).double())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rows", [1, 16, 64, 1000])
def test_captured_into_a_graph(ops: Any, packed: bool, rows: int) -> None:
    module = model(ops, packed, torch.bfloat16)
    x = torch.zeros(rows, 200, dtype=torch.bfloat16, device=DEVICE)
    with torch.inference_mode():
        module(x[:1])  # loads the binaries; the plans of this number of rows are not made by it
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module(x)
        for turn in range(3):
            x.copy_(randn(rows, 200, seed=turn))
            y.fill_(float("nan"))
            graph.replay()
            close(y, module(x).double())


def test_follows_the_current_stream(ops: Any) -> None:
    """The input is written late on a side stream; a launch on any other stream would read the old values."""
    q = weights(ops, "int4_g128", packed=True)
    module, w = wt.QuantLinear(q), numbers(q)
    for rows in (1, 64):
        x, fresh, big = torch.zeros(rows, 200, device=DEVICE).bfloat16(), randn(rows, 200), randn(4096, 4096)
        for _ in range(2):
            module(x)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(20):
                big = (big @ big).clamp(-1, 1)
            x.copy_(fresh)
            y = module(x)
        side.synchronize()
        close(y, fresh.double() @ w.T)


def test_two_streams_share_a_plan(ops: Any) -> None:
    q = weights(ops, "int4_g128", 512, 1024, packed=True)
    module, w = wt.QuantLinear(q), numbers(q)
    xs = [randn(16, 1024, seed=i) for i in range(8)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    ys = []
    for i, x in enumerate(xs):
        with torch.cuda.stream(streams[i % 2]):
            ys.append(module(x))
    torch.cuda.synchronize()
    for x, y in zip(xs, ys):
        close(y, x.double() @ w.T)


# ---- modules, and what is refused


def test_a_layer_moves_there_and_back(ops: Any) -> None:
    linear = torch.nn.Linear(200, 77, device=DEVICE)
    module = wt.QuantLinear.from_linear(linear, "nvfp4")
    assert module.codes.device.type == "cuda"
    x = randn(4, 200, dtype=torch.float32)
    want = module(x)
    host = copy.deepcopy(module).to("cpu", torch.float16)
    assert host.scale1.dtype == torch.float32
    close(host(x.cpu()), want.cpu().double(), 1e-3)
    back = host.to(DEVICE)
    assert torch.equal(back.codes, module.codes)
    other = wt.QuantLinear.from_linear(torch.nn.Linear(200, 77), "nvfp4").to(DEVICE)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), want)


def test_what_is_refused(ops: Any) -> None:
    module = wt.QuantLinear(weights(ops, "mxfp4", packed=True))
    with pytest.raises(DeviceError, match="x is on cpu, the weights are on cuda:0"):
        module(torch.randn(1, 200).half())
    with pytest.raises(NoKernelError, match="no product of f32 activations"):
        module(randn(1, 200, dtype=torch.float32))
    with pytest.raises(ArgumentError, match="x requires grad"):
        module(randn(1, 200).requires_grad_())
    q = weights(ops, "mxfp4")
    with pytest.raises(DeviceError, match="move"):
        ops.qgemv(torch.randn(1, 200).half(), q)


def test_rows_of_a_larger_array(ops: Any) -> None:
    q = weights(ops, "mxfp4", k=203)
    x = randn(40, 203)
    for part in (x[1:7], x[::2], x[3:30], x.T.contiguous().T):
        close(ops.linear(part, q), part.double() @ numbers(q).T)
