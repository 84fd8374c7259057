"""Kernels that move bits, and gemm_i8_dp4a, on a CUDA device, beside torch's own."""

from __future__ import annotations

from typing import Any

import needs
import pytest

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")
TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "i8": "int8"}


def _raw(dtype: str, *shape: int) -> Any:
    """Random bits, NaN of every kind among them."""
    kind = getattr(torch, TYPES[dtype])
    size = torch.empty((), dtype=kind).element_size()
    bits = torch.randint(0, 256, (*shape[:-1], shape[-1] * size), dtype=torch.uint8, device="cuda")
    return bits.view(kind)


def _same(found: Any, wanted: Any) -> bool:
    """Bit for bit."""
    assert found.shape == wanted.shape
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32}[found.element_size()]
    return bool(torch.equal(found.view(kind), wanted.contiguous().view(kind)))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("t", "n", "k"), [(700, 300, 64), (33, 9, 1024), (5, 4, 40000), (999, 50, 77)])
def test_rows(lib: Any, dtype: str, t: int, n: int, k: int) -> None:
    x = _raw(dtype, n, k)
    indices = torch.randint(-3, n + 3, (t,), dtype=torch.int32, device="cuda")
    known = (indices >= 0) & (indices < n)
    wanted = torch.where(known[:, None], x[indices.clamp(0, n - 1).long()], torch.zeros_like(x[:1]))
    assert _same(lib.kernel("gather", dtype=dtype)(x, indices), wanted)
    rows = torch.randperm(n + 5, device="cuda")[:n].int() - 2
    y, known = _raw(dtype, n, k), (rows >= 0) & (rows < n)
    wanted = y.clone()
    wanted[rows[known].long()] = x[known]
    assert lib.kernel("scatter", dtype=dtype)(x, rows, y) is y
    assert _same(y, wanted)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 64, 192), (1, 1000, 1), (2, 129, 65), (70, 16, 48), (1, 4096, 2080)])
def test_transpose(lib: Any, dtype: str, shape: tuple[int, int, int]) -> None:
    x = _raw(dtype, *shape)
    assert _same(lib.kernel("transpose", dtype=dtype)(x), x.transpose(1, 2))


@pytest.mark.parametrize("dtype", TYPES)
def test_views(lib: Any, dtype: str) -> None:
    x = _raw(dtype, 6, 16, 10, 96)
    copy = lib.kernel("copy_strided", dtype=dtype)
    views = [
        x, x[:, :, :, 32:64], x[1:, ::3, :, 5:], x.permute(0, 2, 1, 3), x.permute(0, 1, 3, 2),
        x.permute(3, 2, 1, 0), x.permute(0, 2, 3, 1), x[:, :1].expand(6, 8, 10, 96), x[2, 3, 4, 1::7],
        x[0, 0, 0, 0], x.reshape(-1)[1:].as_strided((500, 64), (64, 1)), x.reshape(960, 96).T,
    ]  # fmt: skip
    for view in views:
        assert _same(copy(view), view)


def test_more_than_four_billion_bytes(lib: Any) -> None:
    """Places past 2^32, in elements and in bytes."""
    if torch.cuda.mem_get_info()[0] < 30 << 30:
        pytest.skip("too little memory is free")
    rows = (1 << 32) // 4096 + 8
    x = torch.arange(rows, device="cuda")[:, None].to(torch.int8).expand(rows, 4096).contiguous()
    indices = torch.tensor([rows - 1, 0, rows - 2, -1], dtype=torch.int32, device="cuda")
    y = lib.kernel("gather", dtype="i8")(x, indices)
    assert _same(y[:3], x[[rows - 1, 0, rows - 2]])
    lib.kernel("scatter", dtype="i8")(y[:1].contiguous() + 1, indices[:1], x)
    assert bool((x[rows - 1] == y[0] + 1).all())
    turned = lib.kernel("transpose", dtype="i8")(x[None])[0]
    assert _same(turned[-1], x[:, -1])
    view = x[1:, 16:4080]
    assert _same(lib.kernel("copy_strided", dtype="i8")(view)[-5:], view[-5:])
    assert _same(lib.kernel("copy_strided", dtype="i8")(x.T)[-1], x[:, -1])


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (300, 200, 1024), (65, 129, 1000), (7, 33, 4097)])
def test_products_of_bytes(lib: Any, m: int, n: int, k: int) -> None:
    x, w = _raw("i8", m, k), _raw("i8", n, k)
    y = lib.kernel("gemm_i8_dp4a", dtype="i8")(x, w)
    assert torch.equal(y.double(), x.double() @ w.double().T)


def test_captures_into_a_graph(lib: Any) -> None:
    x, indices = _raw("f16", 64, 128), torch.randperm(64, device="cuda").int()
    y = torch.zeros_like(x)
    scatter = lib.kernel("scatter", dtype="f16", device="cuda:0")
    scatter.preload("cuda:0")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scatter(x, indices, y)
    for _ in range(3):
        x.copy_(_raw("f16", 64, 128))
        indices.copy_(torch.randperm(64, device="cuda").int())
        graph.replay()
        torch.cuda.synchronize()
        assert _same(y[indices.long()], x)


def test_a_node_writes_to_another_array(lib: Any) -> None:
    plan = lib.plan("scatter", dtype="f16", device="cuda:0", t=64, n=64, k=128)
    x, indices = _raw("f16", 64, 128), torch.randperm(64, device="cuda").int()
    y, other = (torch.zeros_like(x) for _ in range(2))
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        node = plan.graph_node(x, indices, y)
    graph.instantiate()
    assert node.out is y
    assert node.update(graph, x, indices, other) is other
    graph.replay()
    torch.cuda.synchronize()
    assert _same(other[indices.long()], x)
    assert not y.view(torch.int16).any()
