"""Elementwise and row kernels on a CUDA device, beside torch's own and captured into graphs."""

from __future__ import annotations

from typing import Any

import needs
import pytest

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")
TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5}


def _randn(dtype: str, *shape: int) -> Any:
    return torch.randn(*shape, device="cuda").to(getattr(torch, TYPES[dtype]))


def _close(found: Any, wanted: Any, dtype: str) -> None:
    torch.testing.assert_close(found.double(), wanted.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [7, 128, 4096, 8192, 16384, 65535])
def test_rows_against_torch(lib: Any, dtype: str, n: int) -> None:
    functional = torch.nn.functional
    x, weight, bias, residual = (_randn(dtype, *s) for s in ((33, n), (n,), (n,), (33, n)))
    wide = x.double()

    def kernel(name: str, *operands: Any, **options: Any) -> Any:
        return lib.kernel(name, dtype=dtype, **options)(*operands)

    _close(kernel("softmax", x), wide.softmax(1), dtype)
    _close(kernel("log_softmax", x), wide.log_softmax(1), dtype)
    _close(kernel("rms_norm", x, weight), functional.rms_norm(wide, (n,), weight.double(), 1e-6), dtype)
    normed = functional.layer_norm(wide, (n,), weight.double(), bias.double(), 1e-5)
    _close(kernel("layer_norm", x, weight, bias), normed, dtype)
    total = x + residual
    fused = kernel("add_rms_norm", x, residual, weight)
    assert torch.equal(residual, total)
    _close(fused, functional.rms_norm(total.double(), (n,), weight.double(), 1e-6), dtype)
    assert torch.equal(kernel("reduce", x, op="max"), x.amax(1))
    assert torch.equal(wide.gather(1, kernel("reduce", x, op="argmax").long()[:, None])[:, 0], wide.amax(1))
    assert torch.equal(kernel("reduce_all", x.reshape(-1), op="max"), x.amax())


def test_types_and_broadcasting(lib: Any) -> None:
    a, b = _randn("bf16", 5, 1, 64), _randn("bf16", 9, 1)
    below = lib.kernel("compare", dtype="bf16", op="lt")(a, b)
    assert below.dtype is torch.bool
    assert torch.equal(below, a < b)
    assert torch.equal(lib.kernel("where", dtype="bf16")(below, a, b), torch.where(below, a, b))
    assert torch.equal(lib.kernel("binary_broadcast", dtype="bf16", op="mul")(a, b), a * b)
    assert torch.equal(lib.kernel("cast", dtype="bf16", out="f16")(a), a.half())


def test_the_same_bits_each_time(lib: Any) -> None:
    x = _randn("f32", 3, 1 << 20)
    for name, operand in (("reduce", x), ("reduce_all", x.reshape(-1))):
        kernel = lib.kernel(name, dtype="f32", op="sum")
        first = kernel(operand)
        assert all(torch.equal(first, kernel(operand)) for _ in range(5))


def test_captures_into_a_graph(lib: Any) -> None:
    """Two launches and a workspace that the caller keeps."""
    x, y = _randn("f16", 1 << 18), torch.empty((), dtype=torch.float16, device="cuda")
    kernel = lib.kernel("reduce_all", dtype="f16", op="max", device="cuda:0")
    space = torch.zeros(kernel.workspace_bytes(n=x.numel()), dtype=torch.uint8, device="cuda")
    kernel.preload("cuda:0")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, out=y, workspace=space)
    for _ in range(3):
        x.copy_(torch.randn(x.numel(), device="cuda"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, x.amax())
