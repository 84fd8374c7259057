"""The same product again and again on a CUDA device: all of its results are the same, to the bit.

Rings in shared memory can lose a race once in a thousand launches, which no single check sees; sums never
depend on the order in which blocks end.
"""

from __future__ import annotations

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
