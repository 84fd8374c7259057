"""Kernels made from templates on a CUDA device: stubs, clusters, workspaces, packed weights, and bad input.

Each test skips where the library ships no such kernel for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import needs
import numpy as np
import pytest
import wootz
from wootz import _core
from wootz.errors import ArgumentError, DeviceError, DtypeError, FormatError, NoKernelError

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")
DEVICE = "cuda:0"
FORMATS = ("int4", "mxfp4", "nvfp4")


def kernel(lib: Any, name: str, **request: Any) -> Any:
    """The kernel, loaded; skips where the library has none for this device."""
    try:
        found = lib.kernel(name, device=DEVICE, **request)
        found.preload()
    except NoKernelError as error:
        pytest.skip(str(error))
    return found


def randn(*shape: int, dtype: Any = None, seed: int = 0) -> Any:
    generator = torch.Generator(device=DEVICE).manual_seed(seed + sum(shape))
    return torch.randn(*shape, device=DEVICE, generator=generator).to(dtype or torch.bfloat16)


def close(y: Any, wanted: Any, tolerance: float = 1e-2) -> None:
    wanted = wanted.double()
    error = (y.double() - wanted).abs().max().item()
    assert error <= tolerance * wanted.abs().max().item(), f"off by {error}"


# ---- dense


@pytest.mark.parametrize("m", [1, 3, 17, 128, 1000])
@pytest.mark.parametrize(("n", "k"), [(520, 264), (77, 55), (4232, 136)])
def test_gemm_with_everything(lib: Any, m: int, n: int, k: int) -> None:
    gemm = kernel(lib, "gemm", dtype="bf16", out="same")
    a, b, c, bias = randn(m, k), randn(n, k), randn(m, n), randn(n)
    y = gemm(a, b)
    assert (y.dtype, y.device, tuple(y.shape)) == (torch.bfloat16, a.device, (m, n))
    close(y, a.double() @ b.double().T)
    y = gemm(a, b, c=c, bias=bias, alpha=0.5, beta=-2.0, activation="relu")
    product = 0.5 * (a.double() @ b.double().T)
    close(y, (product - 2.0 * c.double() + bias.double()).clamp(min=0))


@pytest.mark.parametrize("out", ["same", "f32"])
@pytest.mark.parametrize("shape", [(3, 520, 264), (64, 136, 72), (1000, 77, 55), (2048, 4232, 136)])
def test_gemm_in_place(lib: Any, out: str, shape: tuple[int, int, int]) -> None:
    """y is c: the bits of a call with memory of its own, of every variant."""
    gemm, (m, n, k) = kernel(lib, "gemm", dtype="bf16", out=out), shape
    a, b, bias = randn(m, k), randn(n, k), randn(n)
    c = randn(m, n, dtype=torch.bfloat16 if out == "same" else torch.float32)
    wanted = gemm(a, b, c=c, bias=bias, alpha=0.5, beta=-2.0, activation="silu")
    for _ in range(20):
        y = c.clone()
        assert gemm(a, b, c=y, bias=bias, alpha=0.5, beta=-2.0, activation="silu", out=y) is y
        assert torch.equal(y, wanted)
    with pytest.raises(ArgumentError, match=r"beta is 1\.0 and c is not given"):
        gemm(a, b, beta=1)


def test_gemm_in_clusters_many_times(lib: Any) -> None:
    """Launches follow each other on one stream, on other pointers: the parameters are filled each time."""
    gemm = kernel(lib, "gemm", dtype="f16", out="f32")
    pairs = [
        (randn(2048, 512, dtype=torch.float16, seed=i), randn(4096, 512, dtype=torch.float16, seed=i))
        for i in range(4)
    ]
    results = [gemm(a, b) for a, b in pairs]
    for (a, b), y in zip(pairs, results, strict=True):
        assert y.dtype == torch.float32
        close(y, a.float() @ b.float().T, 1e-3)


def test_int8_is_exact(lib: Any) -> None:
    gemm = kernel(lib, "gemm", dtype="i8", out="same")
    for m, n, k in ((1, 64, 64), (130, 520, 272), (1000, 77, 55)):
        a, b = (
            torch.randint(-128, 128, shape, device=DEVICE, dtype=torch.int8) for shape in ((m, k), (n, k))
        )
        y = gemm(a, b)
        assert y.dtype == torch.int32
        assert torch.equal(y.cpu(), a.cpu().int() @ b.cpu().int().T)


@pytest.mark.parametrize("raw", [False, True])
def test_fp8_by_its_name_and_by_its_bytes(lib: Any, raw: bool) -> None:
    gemm = kernel(lib, "gemm_fp8", dtype="e4m3", out="bf16")
    a, b = (randn(*shape).to(torch.float8_e4m3fn) for shape in ((33, 272), (136, 272)))
    one, many = torch.full((1,), 0.5, device=DEVICE), torch.rand(136, device=DEVICE) + 0.5
    given = (a.view(torch.uint8), b.view(torch.uint8)) if raw else (a, b)
    y = gemm(*given, one, many)
    assert y.dtype == torch.bfloat16
    close(y, 0.5 * many.double() * (a.double() @ b.double().T))
    with pytest.raises(ArgumentError, match=r"scale_b has shape \[64\]; want \[1\] or \[n\] = \[136\]"):
        gemm(*given, one, many[:64])
    with pytest.raises(DtypeError, match="scale_a has elements of type f64"):
        gemm(*given, one.double(), many)
    with pytest.raises(DtypeError, match="a has elements of type i8"):
        gemm(a.view(torch.int8), b, one, many)


def test_scales_of_blocks(lib: Any) -> None:
    gemm = kernel(lib, "gemm_fp8_block", dtype="e4m3", out="bf16")
    m, n, k = 70, 256, 384
    a, b = (randn(*shape).to(torch.float8_e4m3fn) for shape in ((m, k), (n, k)))
    scale_a, scale_b = torch.rand(3, 72, device=DEVICE) + 0.5, torch.rand(2, 3, device=DEVICE) + 0.5
    wide_a = a.double() * scale_a[:, :m].T.double().repeat_interleave(128, 1)
    wide_b = b.double() * scale_b.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    close(gemm(a, b, scale_a, scale_b), wide_a @ wide_b.T)
    for wrong in (scale_a[:2], scale_a.T.contiguous(), torch.rand(3, 70, device=DEVICE)):
        with pytest.raises(
            ArgumentError, match=r"scale_a has shape .*; want \[ceildiv\(k, 128\), .* = \[3, 72\]"
        ):
            gemm(a, b, wrong, scale_b)


# ---- streams, graphs, memory


def test_a_call_with_out_captures_into_a_graph(lib: Any) -> None:
    gemm = kernel(lib, "gemm", dtype="bf16", out="same")
    a, b = randn(256, 264), randn(520, 264)
    y = torch.empty(256, 520, device=DEVICE, dtype=torch.bfloat16)
    space = torch.zeros(max(gemm.workspace_bytes(m=256, n=520, k=264), 16), device=DEVICE, dtype=torch.uint8)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemm(a, b, out=y, workspace=space)
    for i in range(3):
        a.copy_(randn(256, 264, seed=i))
        y.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        close(y, a.double() @ b.double().T)


def test_follows_the_current_stream(lib: Any) -> None:
    gemm = kernel(lib, "gemm", dtype="bf16", out="same")
    a, fresh, b = torch.zeros(64, 264, device=DEVICE, dtype=torch.bfloat16), randn(64, 264), randn(520, 264)
    big = randn(4096, 4096)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(20):
            big = (big @ big).clamp(-1, 1)
        a.copy_(fresh)
        y = gemm(a, b)
    side.synchronize()
    close(y, fresh.double() @ b.double().T)


def test_workspaces(lib: Any) -> None:
    """Of every dense kernel that wants one at some size."""
    found = 0
    for dtype, out in (("bf16", "same"), ("f16", "same")):
        gemm = kernel(lib, "gemm", dtype=dtype, out=out)
        for m, n, k in ((1, 4096, 4096), (64, 512, 8192), (4096, 4096, 512)):
            size = gemm.workspace_bytes(m=m, n=n, k=k)
            if size == 0:
                continue
            found += 1
            a, b = (
                randn(m, k, dtype=getattr(torch, _TORCH[dtype])),
                randn(n, k, dtype=getattr(torch, _TORCH[dtype])),
            )
            space = torch.zeros(size, device=DEVICE, dtype=torch.uint8)
            first, again = (gemm(a, b, workspace=space) for _ in range(2))
            close(first, a.double() @ b.double().T)
            assert torch.equal(first, again), "a call leaves its workspace fit for the next"
            assert torch.equal(first, gemm(a, b))
            with pytest.raises(ArgumentError, match=f"workspace has {size - 1} bytes; the call needs {size}"):
                gemm(a, b, workspace=space[:-1])
            odd = torch.zeros(size + 16, device=DEVICE, dtype=torch.uint8)[16:]
            with pytest.raises(ArgumentError, match=r"workspace starts at address .* multiple of 128"):
                gemm(a, b, workspace=odd)
            with pytest.raises(DeviceError, match="workspace is on cpu"):
                gemm(a, b, workspace=torch.zeros(size, dtype=torch.uint8))
    if not found:
        pytest.skip("no dense kernel of this library wants a workspace")


_TORCH = {"bf16": "bfloat16", "f16": "float16"}


# ---- packed weights


@pytest.fixture(scope="module", params=FORMATS)
def weights(lib: Any, request: Any) -> Any:
    if request.param not in lib.formats():
        pytest.skip(f"the library has no format {request.param}")
    host = np.random.default_rng(7).standard_normal((264, 520)).astype(np.float32)
    return wootz.quantize(host, lib.format(request.param))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("m", [0, 1, 3, 16, 17, 64, 127, 128, 1000])
def test_qmm_packed(lib: Any, weights: Any, dtype: str, m: int) -> None:
    qmm = kernel(lib, "qmm_packed", format=weights.format, dtype=dtype)
    x, w = randn(m, 520, dtype=getattr(torch, _TORCH[dtype])), wootz.prepack(weights).to(DEVICE)
    y = qmm(x, w)
    assert (y.dtype, tuple(y.shape)) == (x.dtype, (m, 264))
    if m:
        close(y, x.double() @ torch.from_numpy(weights.dequantize()).to(DEVICE).double().T)


def test_natural_and_packed_agree(lib: Any, weights: Any) -> None:
    packed = kernel(lib, "qmm_packed", format=weights.format, dtype="bf16")
    natural = kernel(lib, "qmm", format=weights.format, dtype="bf16")
    x = randn(33, 520)
    close(packed(x, wootz.prepack(weights).to(DEVICE)), natural(x, weights.to(DEVICE)))


def test_prepack_on_the_device(lib: Any, weights: Any) -> None:
    prepack = kernel(lib, "prepack", format=weights.format, dtype="f16")
    made, wanted = prepack(weights.to(DEVICE)), wootz.prepack(weights)
    assert isinstance(made, wootz.PackedTensor)
    for name, field in wanted.fields.items():
        assert np.array_equal(made.fields[name].cpu().numpy(), field), name


BadWeights = Callable[[Any, Any], tuple[Any, ...]]
BAD: dict[str, tuple[BadWeights, type[Exception], str]] = {
    "natural": (lambda x, q: (x, q.to(DEVICE)), ArgumentError, "natural layout.*wootz.prepack"),
    "no tensor": (lambda x, q: (x, x), ArgumentError, "w is a Tensor; want a PackedTensor"),
    "on the host": (lambda x, q: (x, wootz.prepack(q)), DeviceError, "is on cpu"),
    "dtype": (
        lambda x, q: (x.float(), wootz.prepack(q).to(DEVICE)),
        DtypeError,
        "x has elements of type f32",
    ),
    "shape": (lambda x, q: (x[:, :512].contiguous(), wootz.prepack(q).to(DEVICE)), ArgumentError, "k=520"),
    "strides": (lambda x, q: (x.T.contiguous().T, wootz.prepack(q).to(DEVICE)), ArgumentError, "strides"),
    "alignment": (
        lambda x, q: (
            torch.zeros(2 * 520 + 1, device=DEVICE, dtype=x.dtype)[1:].view(2, 520),
            wootz.prepack(q).to(DEVICE),
        ),
        ArgumentError,
        "multiple of 16",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(lib: Any, weights: Any, name: str) -> None:
    make, error, message = BAD[name]
    qmm = kernel(lib, "qmm_packed", format=weights.format, dtype="bf16")
    with pytest.raises(error, match=message):
        qmm(*make(randn(2, 520), weights))


def test_another_format(lib: Any, weights: Any) -> None:
    other = next((name for name in FORMATS if name in lib.formats() and name != weights.format.name), None)
    if other is None:
        pytest.skip("the library has one format only")
    qmm = kernel(lib, "qmm_packed", format=other, dtype="bf16")
    with pytest.raises(FormatError, match=f"w has format {weights.format.name}"):
        qmm(randn(2, 520), wootz.prepack(weights).to(DEVICE))


# ---- kernels of other chips


def test_a_kernel_for_another_chip(lib: Any) -> None:
    """What is shipped for chips that are not there is refused by name, before anything is loaded."""
    here = _core.cuda_device_info(0)["capability"]
    rows = {row["key"]: row for row in lib.targets if row["backend"] == "cuda"}
    stems: dict[str, list[dict[str, Any]]] = {}
    for cell in lib.cells():
        if cell["files"] and cell["target"] in rows:
            stems.setdefault(cell["key"].rpartition("/")[0], []).append(cell)
    foreign = [
        cells[0]
        for cells in stems.values()
        if all(rows[cell["target"]]["capability"][0] > here[0] for cell in cells)
    ]
    if not foreign:
        pytest.skip("the library has no kernel for later chips alone")
    cell = foreign[0]
    format = cell["format"] if cell["format"] != "-" else None
    found = lib.kernel(cell["kernel"], format=format, dtype=cell["dtype"], device=DEVICE, **cell["options"])
    with pytest.raises(NoKernelError, match=f"compute capability {here[0]}.*shipped for: .*{cell['target']}"):
        found.preload()
