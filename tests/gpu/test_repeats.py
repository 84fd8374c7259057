"""The same product again and again on a CUDA device: all of its results are the same, to the bit.

Rings in shared memory can lose a race once in a thousand launches, which no single check sees, and so can
launches that overlap; sums never depend on the order in which blocks end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import needs
import numpy as np
import pytest
import wootz
from wootz.errors import NoKernelError
from wootz.formats.sample import random_tensor

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")
DEVICE = "cuda:0"
LAUNCHES = 1500
REPLAYS, LINKS, SQUARE = 200, 7, 2048
SHAPES = ((16, 4096, 4096), (64, 8192, 1032), (128, 4096, 2048), (300, 8192, 1032), (1000, 2056, 1544))


@pytest.mark.parametrize("name", ["int4", "int8", "uint4_z", "nvfp4"])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_a_product_is_always_the_same(lib: Any, name: str, m: int, n: int, k: int) -> None:
    try:
        kernel = lib.kernel("qmm_packed", format=name, dtype="bf16", device=DEVICE)
        kernel.preload()
    except NoKernelError as error:
        pytest.skip(str(error))
    host = random_tensor(lib.format(name), (n, k), np.random.default_rng(5))
    w = wootz.prepack(host).map(lambda a: torch.from_numpy(a).to(DEVICE))
    x = torch.randn(m, k, device=DEVICE, dtype=torch.bfloat16)
    size = max(1, kernel.workspace_bytes(m=m, n=n, k=k))
    workspace = torch.zeros(size, device=DEVICE, dtype=torch.uint8)
    first, y = (torch.empty(m, n, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    kernel(x, w, out=first, workspace=workspace)
    different = torch.zeros((), device=DEVICE, dtype=torch.int64)
    for _ in range(LAUNCHES):
        kernel(x, w, out=y, workspace=workspace)
        different += (y.view(torch.int16) != first.view(torch.int16)).any()
    assert int(different) == 0


def replayed(launches: Callable[[], Any], wanted: Any) -> int:
    """How many replays of what is captured give anything but `wanted`."""
    graph, different = torch.cuda.CUDAGraph(), torch.zeros((), device=DEVICE, dtype=torch.int64)
    with torch.cuda.graph(graph):
        found = launches()
    for _ in range(REPLAYS):
        graph.replay()
        different += (found.view(torch.int16) != wanted.view(torch.int16)).any()
    return int(different)


def plan(lib: Any, kernel: str, name: str, **extents: int) -> Any:
    try:
        return lib.plan(kernel, format=name, dtype="bf16", device=DEVICE, **extents)
    except NoKernelError as error:
        pytest.skip(str(error))


def matrices(lib: Any, name: str, count: int) -> list[Any]:
    """Weights that keep the size of what they are multiplied with."""
    numbers = np.random.default_rng(6).standard_normal((count, SQUARE, SQUARE)).astype(np.float32)
    return [wootz.quantize(each / SQUARE**0.5, lib.format(name)).to(DEVICE) for each in numbers]


@pytest.mark.parametrize("name", ["int4", "int3", "uint4_z", "nvfp4", "q4_0"])
@pytest.mark.parametrize("m", [1, 8])
def test_products_that_overlap_wait_for_each_other(lib: Any, name: str, m: int) -> None:
    """Each reads what the one before it wrote, and writes to what the one before that has read."""
    product = plan(lib, "qgemv", name, m=m, n=SQUARE, k=SQUARE)
    weights = matrices(lib, name, 2)
    x = torch.randn(m, SQUARE, device=DEVICE, dtype=torch.bfloat16)
    memory = [torch.empty_like(x) for _ in range(3)]

    def launches(after: Callable[[], None] = lambda: None) -> Any:
        memory[0].copy_(x)
        for i in range(LINKS):
            product(memory[i % 3], weights[i % 2], out=memory[(i + 1) % 3])
            after()
        return memory[LINKS % 3].clone()

    assert replayed(launches, launches(torch.cuda.synchronize)) == 0


@pytest.mark.parametrize("name", ["int4", "uint4_z", "nvfp4"])
def test_a_product_waits_for_weights_that_were_just_quantised(lib: Any, name: str) -> None:
    """The same memory holds one matrix after the other, each for one product."""
    quantise = plan(lib, "quantize", name, n=SQUARE, k=SQUARE)
    product = plan(lib, "qgemv", name, m=1, n=SQUARE, k=SQUARE)
    (weights,) = matrices(lib, name, 1)
    sources = torch.randn(2, SQUARE, SQUARE, device=DEVICE, dtype=torch.bfloat16)
    x = torch.randn(1, SQUARE, device=DEVICE, dtype=torch.bfloat16)
    found = torch.empty(LINKS, SQUARE, device=DEVICE, dtype=torch.bfloat16)

    def launches(after: Callable[[], None] = lambda: None) -> Any:
        for i in range(LINKS):
            quantise(sources[i % 2], out=weights)
            after()
            product(x, weights, out=found[i : i + 1])
            after()
        return found.clone()

    assert replayed(launches, launches(torch.cuda.synchronize)) == 0
