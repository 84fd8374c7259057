"""qmm_packed on a CUDA device: microseconds and TFLOP/s, cold weights, against torch's bf16 product.

Each case rotates over enough weights to outgrow the L2 and replays a CUDA graph that launches every set.
Replays of ours and of torch's alternate, because the clock follows the power that both draw; the ratio is the
median of the ratios of neighbours. Results are checked against float64 first.

python benchmarks/qmm.py [--formats mxfp4,int4_g128] [--shapes 14336x4096,...] [--m 16,64,...] [--json FILE]
                         [--artifacts DIR]
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np
import torch
import wootz
from wootz.formats.dequantize import decode_exact
from wootz.formats.sample import random_tensor

GRAPH_US = 3000
ROWS = 1024
"""Rows of the weights made on the host and checked; the others are the same units in other orders."""


def packed_sets(lib: Any, name: str, n: int, k: int) -> tuple[list[Any], Any]:
    """Packed matrices on the device, no two blocks in the same place, and the first rows' host tensor."""
    host = random_tensor(lib.format(name), (min(n, ROWS), k), np.random.default_rng(7), specials=False)
    first = wootz.prepack(host)
    units = torch.from_numpy(first.fields["units"]).cuda()
    others = {f: torch.from_numpy(a).cuda() for f, a in first.fields.items() if f != "units"}
    tiles = -(-n // 16)

    def moved(by: int) -> Any:
        parts = [torch.roll(units, (by + i) % units.shape[1], 1) for i in range(-(-tiles // len(units)))]
        return wootz.PackedTensor(
            first.format, (n, k), {"units": torch.cat(parts)[:tiles].contiguous(), **others}
        )

    size = units[0].numel() * tiles
    return [moved(i) for i in range(common.copies_for(size, 2))], host


def case(lib: Any, name: str, m: int, n: int, k: int) -> dict[str, Any]:
    """One row of the table; `error` is the relative L2 distance to float64."""
    sets, host = packed_sets(lib, name, n, k)
    kernel = lib.kernel("qmm_packed", format=name, dtype="bf16", device="cuda:0")
    workspace = torch.zeros(max(1, kernel.workspace_bytes(m=m, n=n, k=k)), device="cuda", dtype=torch.uint8)
    inputs = [torch.randn(m, k, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    outputs = [torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    kernel(inputs[0], sets[0], out=outputs[0], workspace=workspace)
    rows = host.shape[0]
    want = inputs[0].double().cpu().numpy() @ decode_exact(host).T
    got = outputs[0][:, :rows].double().cpu().numpy()
    error = common.distance(got, want)
    flops = 2.0 * m * n * k
    count = max(4, min(len(sets), int(GRAPH_US / max(10.0, flops / 7e8))))
    dense = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(4)]

    def ours(i: int) -> common.Launch:
        x, w, y = inputs[i % 2], sets[i % len(sets)], outputs[i % 2]
        return lambda: kernel(x, w, out=y, workspace=workspace)

    def theirs(i: int) -> common.Launch:
        x, w, y = inputs[i % 2], dense[i % 4], outputs[i % 2]
        return lambda: torch.mm(x, w.T, out=y)

    times = common.measure([ours(i) for i in range(count)], [theirs(i) for i in range(count)])
    us, torch_us = times.us
    row = {"format": name, "m": m, "n": n, "k": k, "us": us, "tflops": flops / us / 1e6}
    return {**row, "torch_bf16_us": torch_us, "of_torch": times.ratios[1], "error": error}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--formats", default="mxfp4,int4_g128")
    parser.add_argument("--shapes", default="14336x4096", help="N x K, comma separated")
    parser.add_argument("--m", default="16,64,128,256,1024,4096")
    options = parser.parse_args()
    lib = wootz.load(options.artifacts)
    rows = []
    print(f"{torch.cuda.get_device_name(0)}, bf16 activations")
    print(
        f"{'format':>12} {'M':>5} {'N x K':>12} {'us':>8} {'TFLOP/s':>8}"
        f" {'torch us':>9} {'ratio':>6} {'error':>8}"
    )
    for shape, (n, k) in common.extents(options.shapes):
        for name in common.formats(options.formats, lib):
            for m in map(int, options.m.split(",")):
                row = case(lib, name, m, n, k)
                rows.append(row)
                print(
                    f"{name:>12} {m:>5} {shape:>12} {row['us']:8.2f} {row['tflops']:8.0f}"
                    f" {row['torch_bf16_us']:9.2f} {row['of_torch']:6.3f} {row['error']:8.1e}",
                    flush=True,
                )
    common.write(options.json, rows)


if __name__ == "__main__":
    main()
