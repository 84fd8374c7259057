"""Attention and its caches on a CUDA device, beside torch's own attention and captured into a graph."""

from __future__ import annotations

from typing import Any

import needs
import pytest
import wootz

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")
TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 3e-5}


def _randn(dtype: str, *shape: int) -> Any:
    return torch.randn(*shape, device="cuda").to(getattr(torch, TYPES[dtype]))


def _ints(*values: Any) -> Any:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def _close(found: Any, wanted: Any, dtype: str) -> None:
    torch.testing.assert_close(found.double(), wanted.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def _attend(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """torch's, in float64; the last query stands at the last key."""
    s, t = q.shape[2], k.shape[2]
    mask = torch.ones(s, t, dtype=torch.bool, device="cuda").tril(t - s) if causal else None
    wide = [each.double() for each in (q, k, v)]
    function = torch.nn.functional.scaled_dot_product_attention
    return function(*wide, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("b", "h", "hk", "s", "t", "d"),
    [
        (2, 8, 2, 1, 4096, 128), (1, 32, 8, 1, 777, 64), (1, 8, 8, 333, 333, 128), (2, 6, 3, 100, 257, 80),
        (1, 4, 1, 65, 300, 256), (3, 2, 1, 7, 50, 61), (64, 32, 8, 1, 1024, 128),
    ],
)  # fmt: skip
def test_against_torch(
    lib: Any, dtype: str, causal: bool, b: int, h: int, hk: int, s: int, t: int, d: int
) -> None:
    q, k, v = _randn(dtype, b, h, s, d), _randn(dtype, b, hk, t, d), _randn(dtype, b, hk, t, d)
    found = lib.kernel("attention", dtype=dtype)(q, k, v, causal=causal)
    _close(found, _attend(q, k, v, causal), dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_pages(lib: Any, dtype: str) -> None:
    """Rows appended to pages in disorder, and read back; the same of quantised pages."""
    b, hk, h, page, blocks, d, s = 3, 2, 8, 16, 40, 128, 600
    k, v, q = _randn(dtype, b, s, hk, d), _randn(dtype, b, s, hk, d), _randn(dtype, b, h, 2, d)
    pages = b * blocks + 5
    table = torch.randperm(pages, device="cuda")[: b * blocks].reshape(b, blocks).int()
    caches = [torch.zeros(pages, hk, page, d, dtype=k.dtype, device="cuda") for _ in "kv"]
    append, attend = (lib.kernel(name, dtype=dtype) for name in ("kv_append_paged", "attention_paged"))
    lengths = append(k, v, _ints(0, 0, 0), table, *caches)
    assert lengths.tolist() == [s] * b
    wanted = _attend(q, k.transpose(1, 2), v.transpose(1, 2), True)
    _close(attend(q, *caches, table, lengths, causal=True), wanted, dtype)
    short = _ints(17, 0, s)
    found = attend(q, *caches, table, short, causal=True)
    assert not found[1].any()
    for entry, n in ((0, 17), (2, s)):
        one = [each[entry : entry + 1, :n].transpose(1, 2) for each in (k, v)]
        _close(found[entry : entry + 1], _attend(q[entry : entry + 1], *one, True), dtype)
    wootz.check_block_table(table, lengths, pages, page)


def test_quantised_pages(lib: Any) -> None:
    b, hk, h, page, blocks, d = 2, 2, 8, 32, 20, 128
    pages = b * blocks
    table = torch.randperm(pages, device="cuda").reshape(b, blocks).int()
    rows = [_randn("f32", pages * hk * page, d) for _ in "kv"]
    coded = [wootz.quantize(each.cpu().numpy(), lib.format("int8")) for each in rows]
    decoded = [torch.from_numpy(c.dequantize()).cuda().reshape(pages, hk, page, d) for c in coded]
    q, lengths = _randn("f32", b, h, 1, d), _ints(blocks * page, 100)
    kernel = lib.kernel("attention_quantised", format="int8", dtype="f32")
    found = kernel(q, *(c.to("cuda:0") for c in coded), table, lengths, kv_heads=hk, page=page)
    _close(found, lib.kernel("attention_paged", dtype="f32")(q, *decoded, table, lengths), "f32")


def test_the_same_bits_each_time(lib: Any) -> None:
    q, k, v = _randn("f16", 1, 8, 1, 128), _randn("f16", 1, 2, 9000, 128), _randn("f16", 1, 2, 9000, 128)
    kernel = lib.kernel("attention", dtype="f16")
    first = kernel(q, k, v)
    assert all(torch.equal(first, kernel(q, k, v)) for _ in range(5))


def test_captures_into_a_graph(lib: Any) -> None:
    """A step of a decoder: append a token, attend; lengths stay on the device."""
    b, hk, h, page, blocks, d = 2, 2, 8, 16, 64, 128
    table = torch.arange(b * blocks, device="cuda").reshape(b, blocks).int()
    caches = [_randn("bf16", b * blocks, hk, page, d) for _ in "kv"]
    k, v, q = _randn("bf16", b, 1, hk, d), _randn("bf16", b, 1, hk, d), _randn("bf16", b, h, 1, d)
    positions, lengths, y = _ints(600, 0), _ints(0, 0), torch.empty_like(q)
    append = lib.kernel("kv_append_paged", dtype="bf16", device="cuda:0")
    attend = lib.kernel("attention_paged", dtype="bf16", device="cuda:0")
    sizes = {"b": b, "h": h, "s": 1, "hk": hk, "d": d, "pages": b * blocks, "page": page, "blocks": blocks}
    space = torch.zeros(attend.workspace_bytes(**sizes), dtype=torch.uint8, device="cuda")
    append.preload("cuda:0")
    attend.preload("cuda:0")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        append(k, v, positions, table, *caches, out=lengths)
        attend(q, *caches, table, lengths, out=y, workspace=space)
    for _ in range(3):
        for each in (k, v, q):
            each.copy_(torch.randn(each.shape, device="cuda"))
        graph.replay()
        torch.cuda.synchronize()
        assert lengths.tolist() == [601, 1]
        for entry, n in enumerate((601, 1)):
            pages = [
                cache.view(b, blocks, hk, page, d)[entry].transpose(0, 1).reshape(1, hk, -1, d)
                for cache in caches
            ]
            one = slice(entry, entry + 1)
            _close(y[one], _attend(q[one], *(each[:, :, :n] for each in pages)), "bf16")
