"""Vector products of several matrices, of a bank and of normalised rows on a CUDA device: the bits of qgemv
(but where it has a template of its own), beside torch's own, captured into graphs."""

from __future__ import annotations

from typing import Any

import needs
import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError, FormatError, NoKernelError

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")
DEVICE = "cuda:0"
FORMATS = ("int4", "nvfp4", "fp8_e4m3_b128", "uint4_z", "q4_0")
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5}


def kernel(lib: Any, name: str, format: str | None, dtype: str) -> Any:
    """The kernel, loaded; skips where the library has none for this device."""
    try:
        found = lib.kernel(name, format, dtype, DEVICE)
        found.preload()
    except NoKernelError as error:
        pytest.skip(str(error))
    return found


def randn(dtype: str, *shape: int) -> Any:
    generator = torch.Generator(device=DEVICE).manual_seed(sum(shape))
    return torch.randn(*shape, device=DEVICE, generator=generator).to(TYPES[dtype])


def quantised(lib: Any, format: str, n: int, k: int, seed: int = 0) -> Any:
    """On the CPU."""
    w = np.random.default_rng([seed, n, k]).standard_normal((n, k)).astype(np.float32)
    return wootz.quantize(w * 2.0**seed, lib.format(format))


def dense(w: Any) -> Any:
    return torch.from_numpy(w.dequantize()).to(DEVICE).double()


def close(y: Any, wanted: Any, dtype: str) -> None:
    error = (y.double() - wanted.double()).abs().max().item()
    assert error <= TOLERANCE[dtype] * wanted.abs().max().item(), f"off by {error}"


def same(y: Any, one: Any, dtype: str, k: int) -> None:
    """Bit for bit; of one row of whole units qgemv may have a template that adds up in another order."""
    if len(y) == 1 and k % 256 == 0:
        close(y, one, dtype)
    else:
        assert torch.equal(y, one)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("rows", [(1, 1, 1), (4096, 1024, 1024), (1000, 130, 7), (5, 3000)])
def test_the_bits_of_one_matrix_after_another(lib: Any, format: str, dtype: str, rows: Any) -> None:
    batched, one = kernel(lib, "qgemv_batched", format, dtype), kernel(lib, "qgemv", format, dtype)
    for k in (67, 1024, 4128):
        weights = [quantised(lib, format, n, k, i) for i, n in enumerate(rows)]
        there = [w.to(DEVICE) for w in weights]
        for m in (1, 2, 3, 8):
            x = randn(dtype, m, k)
            y = batched(x, *there)
            same(y, torch.cat([one(x, w) for w in there], dim=1), dtype, k)
        close(y, x.double() @ torch.cat([dense(w) for w in weights]).T, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("t", "experts", "n", "k"), [(8, 64, 300, 1024), (2, 3, 40, 9256), (1000, 5, 130, 72)]
)
def test_each_row_has_the_bits_of_its_expert(
    lib: Any, format: str, dtype: str, t: int, experts: int, n: int, k: int
) -> None:
    gather, one = kernel(lib, "moe_gather_qgemv", format, dtype), kernel(lib, "qgemv", format, dtype)
    members = [quantised(lib, format, n, k, i % 4) for i in range(experts)]
    bank, there = wootz.stack(members).to(DEVICE), [w.to(DEVICE) for w in members]
    chosen = np.random.default_rng(t).integers(0, experts, t).astype(np.int32)
    chosen[1] = experts
    x, indices = randn(dtype, t, k), torch.from_numpy(chosen).to(DEVICE)
    y = torch.full((t, n), float("nan"), dtype=TYPES[dtype], device=DEVICE)
    gather(x, bank, indices, out=y)
    for i, expert in enumerate(chosen[:40]):
        if i == 1:
            assert not y[i].any()
        else:
            same(y[i : i + 1], one(x[i : i + 1].clone(), there[expert]), dtype, k)
    with pytest.raises(ArgumentError, match=r"indices\[1\]: wanted 0 to"):
        wootz.check_indices(indices, experts)
    for expert in np.unique(chosen):
        if expert < experts:
            rows = torch.from_numpy(np.flatnonzero(chosen == expert)).to(DEVICE)
            close(y[rows], x[rows].double() @ dense(members[expert]).T, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("format", FORMATS)
def test_normalised_and_multiplied(lib: Any, format: str, dtype: str) -> None:
    fused, one = kernel(lib, "rms_norm_qgemv", format, dtype), kernel(lib, "qgemv", format, dtype)
    norm = kernel(lib, "rms_norm", None, dtype)
    for m, n, k in ((1, 9001, 104), (2, 4096, 4096), (3, 300, 1061), (8, 513, 9256)):
        x, weight, w = randn(dtype, m, k), randn(dtype, k), quantised(lib, format, n, k)
        y = fused(x, weight, w.to(DEVICE), eps=1e-5)
        close(y, one(norm(x, weight, eps=1e-5), w.to(DEVICE)), dtype)
        wide = torch.nn.functional.rms_norm(x.double(), (k,), weight.double(), 1e-5)
        close(y, wide @ dense(w).T, dtype)
        assert all(torch.equal(y, fused(x, weight, w.to(DEVICE), eps=1e-5)) for _ in range(3))


def test_plans_in_a_graph(lib: Any) -> None:
    for name in ("qgemv_batched", "moe_gather_qgemv", "rms_norm_qgemv"):
        kernel(lib, name, "int4", "bf16")
    w = [quantised(lib, "int4", 256, 512, i).to(DEVICE) for i in range(3)]
    bank = wootz.stack(w).to(DEVICE)
    x, weight = randn("bf16", 1, 512), randn("bf16", 512)
    indices = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    request = {"format": "int4", "dtype": "bf16", "device": DEVICE, "k": 512}
    batched = lib.plan("qgemv_batched", m=1, n0=256, n1=256, n2=256, w2=True, **request)
    gather = lib.plan("moe_gather_qgemv", t=1, experts=3, n=256, **request)
    normed = lib.plan("rms_norm_qgemv", m=1, n=256, **request)
    y = torch.empty(1, 768, dtype=torch.bfloat16, device=DEVICE)
    z, v = (torch.empty(1, 256, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batched(x, w[0], w[1], w2=w[2], out=y)
        gather(x, bank, indices, out=z)
        normed(x, weight, w[0], out=v)
    for expert in (2, 0, 1):
        x.copy_(randn("bf16", 1, 512) * (expert + 1))
        indices.fill_(expert)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(z, y[:, 256 * expert : 256 * (expert + 1)])
        assert torch.equal(v, lib.kernel("rms_norm_qgemv", "int4", "bf16", DEVICE)(x, weight, w[0]))


def test_bad_arguments(lib: Any) -> None:
    batched = kernel(lib, "qgemv_batched", "int4", "bf16")
    gather = kernel(lib, "moe_gather_qgemv", "int4", "bf16")
    x, w = randn("bf16", 2, 64), quantised(lib, "int4", 5, 64).to(DEVICE)
    with pytest.raises(FormatError, match="w1 has format int8; the kernel takes int4"):
        batched(x, w, quantised(lib, "int8", 5, 64).to(DEVICE))
    with pytest.raises(ArgumentError, match="w1 has k=128, x has k=64"):
        batched(x, w, quantised(lib, "int4", 5, 128).to(DEVICE))
    with pytest.raises(ArgumentError, match="w has 2 dimensions"):
        gather(x, w, torch.zeros(2, dtype=torch.int32, device=DEVICE))
