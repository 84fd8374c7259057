"""qgemv on a CUDA device: microseconds at M = 1, cold weights, against the bytes moved and torch's bf16
product.

Each case rotates over enough weight sets to outgrow the L2 and replays a CUDA graph that launches every set
once, in turn with torch's. Results are checked against float64 first.

python benchmarks/qgemv.py [--formats mxfp4,int4] [--shapes 14336x4096,...] [--json FILE] [--artifacts DIR]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import common
import numpy as np
import torch
import wootz
from wootz.formats.dequantize import decode_exact
from wootz.formats.sample import random_tensor


def quantised_sets(lib: Any, name: str, n: int, k: int) -> tuple[list[Any], Any, int]:
    """Device copies of different quantised matrices, one host matrix for the check, and the bytes of one."""
    rng = np.random.default_rng(7)
    host = random_tensor(lib.format(name), (n, k), rng, specials=False)
    count = common.copies_for(host.nbytes)

    def rolled(by: int) -> Any:
        return host.map(lambda a: torch.from_numpy(np.roll(a, by, axis=0)).cuda())

    on_device = [rolled(i) for i in range(min(count, 4))]
    copies = [q.map(torch.clone) for _ in range(count // len(on_device) + 1) for q in on_device][:count]
    return copies, host, host.nbytes


def case(lib: Any, name: str, m: int, n: int, k: int, dense: Sequence[common.Launch]) -> dict[str, Any]:
    """One row of the table; `error` is the relative L2 distance to float64. dense: torch's launches."""
    sets, host, size = quantised_sets(lib, name, n, k)
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    y = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    kernel = lib.kernel("qgemv", format=name, dtype="bf16", device="cuda:0")
    kernel(x, sets[0], out=y)
    want = x.double().cpu().numpy() @ decode_exact(host).T
    error = common.distance(y.double().cpu().numpy(), want)
    ours = [lambda q=q: kernel(x, q, out=y) for q in sets]  # type: ignore[misc]
    us, torch_us = common.measure(ours, dense).us
    return {
        "format": name,
        "m": m,
        "n": n,
        "k": k,
        "us": us,
        "bytes": size,
        "tb_s": size / us / 1e6,
        "error": error,
        "torch_bf16_us": torch_us,
    }


def dense_launches(m: int, n: int, k: int) -> list[common.Launch]:
    """torch's bf16 product of the same shape, weights rotated alike."""
    weights = [
        torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(common.copies_for(2 * n * k))
    ]
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    y = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    return [lambda w=w: torch.mm(x, w.T, out=y) for w in weights]  # type: ignore[misc]


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--formats", default="mxfp4,int4")
    parser.add_argument("--shapes", default="14336x4096,4096x14336,4096x4096", help="N x K, comma separated")
    parser.add_argument("--m", type=int, default=1)
    options = parser.parse_args()
    lib = wootz.load(options.artifacts)
    ceiling = common.read_bandwidth()
    rows = []
    print(
        f"{torch.cuda.get_device_name(0)}: read ceiling {ceiling:.2f} TB/s; M = {options.m}, bf16 activations"
    )
    print(f"{'format':>16} {'N x K':>14} {'us':>7} {'x floor':>8} {'torch bf16 us':>14} {'error':>9}")
    for shape, (n, k) in common.extents(options.shapes):
        dense = dense_launches(options.m, n, k)
        for name in common.formats(options.formats, lib):
            row = case(lib, name, options.m, n, k, dense)
            row |= {"floor": row["us"] / (row["bytes"] / ceiling / 1e6)}
            rows.append(row)
            print(
                f"{name:>16} {shape:>14} {row['us']:7.2f} {row['floor']:8.2f} {row['torch_bf16_us']:14.2f}"
                f" {row['error']:9.1e}",
                flush=True,
            )
    common.write(options.json, rows, read_tb_s=ceiling)


if __name__ == "__main__":
    main()
