"""Kernels on a CUDA device with the arrays, streams and graphs of torch and CuPy (evidence/collect)."""

from __future__ import annotations

from typing import Any

import needs
import numpy as np
import pytest
import wootz

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")
cupy = pytest.importorskip("cupy")
N, K, FORMAT = 96, 520, "mxfp4"


@pytest.fixture(scope="module")
def weights() -> Any:
    return wootz.quantize(np.random.default_rng(3).standard_normal((N, K)).astype(np.float32), FORMAT)


def _randn(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda")


def _close(y: Any, x: Any, q: Any) -> None:
    want = np.asarray(x, np.float64) @ q.dequantize().astype(np.float64).T
    assert np.abs(np.asarray(y, np.float64) - want).max() < 1e-4 * np.abs(want).max()


def test_torch_gives_torch(lib: Any, weights: Any) -> None:
    x = torch.randn(3, K, device="cuda")
    y = lib.kernel("qgemv", format=FORMAT, dtype="f32")(x, weights.to("cuda:0"))
    assert isinstance(y, torch.Tensor)
    assert y.device == x.device
    assert y.shape == (3, N)
    _close(y.cpu(), x.cpu(), weights)


def test_cupy_gives_cupy_on_its_current_stream(lib: Any, weights: Any) -> None:
    kernel = lib.kernel("qgemv", format=FORMAT, dtype="f32")
    q = weights.map(cupy.asarray)
    host = np.random.default_rng(4).standard_normal((2, K)).astype(np.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = cupy.asarray(host)
        y = kernel(x, q)
        stream.synchronize()
    assert isinstance(y, cupy.ndarray)
    _close(cupy.asnumpy(y), host, weights)


def test_arrays_of_no_framework(lib: Any, weights: Any) -> None:
    host = np.random.default_rng(5).standard_normal((1, K)).astype(np.float32)
    q = weights.map(lambda field: wootz.to_device(field, "cuda:0"))
    y = lib.kernel("qgemv", format=FORMAT, dtype="f32")(wootz.to_device(host, "cuda:0"), q)
    _close(y.numpy(), host, weights)


def test_follows_torchs_current_stream(lib: Any, weights: Any) -> None:
    """The input is written late on a side stream; a launch on any other stream would read the old values."""
    kernel, q = lib.kernel("qgemv", format=FORMAT, dtype="f32"), weights.to("cuda:0")
    x, fresh = torch.zeros(1, K, device="cuda"), torch.randn(1, K, device="cuda")
    big = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(20):
            big = (big @ big).clamp(-1, 1)
        x.copy_(fresh)
        y = kernel(x, q)
    side.synchronize()
    _close(y.cpu(), fresh.cpu(), weights)


def test_captures_into_a_graph_and_replays_new_inputs(lib: Any, weights: Any) -> None:
    kernel, q = lib.kernel("qgemv", format=FORMAT, dtype="bf16"), weights.to("cuda:0")
    x = torch.zeros(1, K, device="cuda", dtype=torch.bfloat16)
    y = torch.empty(1, N, device="cuda", dtype=torch.bfloat16)
    kernel.preload("cuda:0")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, q, out=y)
    for _ in range(3):
        x.copy_(torch.randn(1, K, device="cuda"))
        y.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        want = x.double().cpu().numpy() @ weights.dequantize().astype(np.float64).T
        assert np.abs(y.double().cpu().numpy() - want).max() < 1e-2 * np.abs(want).max()


def test_no_rows_is_an_early_return(lib: Any, weights: Any) -> None:
    y = lib.kernel("qgemv", format=FORMAT, dtype="f32")(
        torch.empty(0, K, device="cuda"), weights.to("cuda:0")
    )
    assert y.shape == (0, N)


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (lambda x, q: (x.cpu(), q.to("cuda:0")), wootz.errors.DeviceError, "cpu"),
        (lambda x, q: (x, q), wootz.errors.DeviceError, "cpu"),
        (lambda x, q: (x.half(), q.to("cuda:0")), wootz.errors.DtypeError, "f16"),
        (lambda x, q: (_randn(K, 2).T, q.to("cuda:0")), wootz.errors.ArgumentError, "contig"),
        (lambda x, q: (_randn(2 * K + 1)[1:].view(2, K), q.to("cuda:0")), wootz.errors.ArgumentError, "16 b"),
        (lambda x, q: (_randn(9, K), q.to("cuda:0")), wootz.errors.ArgumentError, "m"),
        (lambda x, q: (_randn(2, K + 1), q.to("cuda:0")), wootz.errors.ArgumentError, "k"),
        (lambda x, q: (x.requires_grad_(), q.to("cuda:0")), wootz.errors.WootzError, "detach"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(
    lib: Any, weights: Any, spoil: Any, error: type[Exception], says: str
) -> None:
    kernel = lib.kernel("qgemv", format=FORMAT, dtype="f32", device="cuda:0")
    with pytest.raises(error, match=says):
        kernel(*spoil(torch.randn(2, K, device="cuda"), weights))


def test_elementwise_keeps_shape_and_bits(lib: Any) -> None:
    a = torch.randn(7, 40, device="cuda", dtype=torch.float16)
    a[0, 0] = float("nan")
    assert torch.equal(lib.kernel("copy", dtype="f16")(a).view(torch.int16), a.view(torch.int16))
    b = torch.randn(7, 40, device="cuda", dtype=torch.float16)
    assert torch.equal(lib.kernel("binary", op="mul", dtype="f16")(a[1:], b[1:]), a[1:] * b[1:])
