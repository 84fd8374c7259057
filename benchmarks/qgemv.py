"""qgemv on a CUDA device: microseconds at M = 1, cold weights, against the bytes moved and torch's bf16
product.

Each case rotates over enough weight sets to outgrow the L2, replays a CUDA graph that launches every set
once, and reports the median of the replays divided by the launches. Results are checked against float64
first.

python benchmarks/qgemv.py [--formats mxfp4,int4] [--shapes 14336x4096,...] [--json FILE] [--artifacts DIR]
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import wootz
from wootz.formats.dequantize import decode_exact
from wootz.formats.sample import random_tensor

ROTATE_BYTES = 400 << 20
REPLAYS = 25


def replay_us(launches: Sequence[Callable[[], object]]) -> float:
    """Median microseconds of one launch, over replays of a graph that holds all of them."""
    for launch in launches[:2]:
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    times = []
    for _ in range(REPLAYS):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / len(launches))
    return statistics.median(times[3:])


def read_bandwidth() -> float:
    """TB/s of a plain device-side reduction over 2 GiB."""
    data = torch.randint(0, 2**31 - 1, (1 << 29,), dtype=torch.int32, device="cuda").view(torch.float32)
    us = replay_us([lambda: torch.amax(data)] * 3)
    return data.numel() * 4 / us / 1e6


def quantised_sets(lib: Any, name: str, n: int, k: int) -> tuple[list[Any], Any, int]:
    """Device copies of different quantised matrices, one host matrix for the check, and the bytes of one."""
    rng = np.random.default_rng(7)
    host = random_tensor(lib.format(name), (n, k), rng, specials=False)
    count = max(4, ROTATE_BYTES // host.nbytes)

    def rolled(by: int) -> Any:
        return host.map(lambda a: torch.from_numpy(np.roll(a, by, axis=0)).cuda())

    on_device = [rolled(i) for i in range(min(count, 4))]
    copies = [q.map(torch.clone) for _ in range(count // len(on_device) + 1) for q in on_device][:count]
    return copies, host, host.nbytes


def case(lib: Any, name: str, m: int, n: int, k: int) -> dict[str, Any]:
    """One row of the table; `error` is the relative L2 distance to float64."""
    sets, host, size = quantised_sets(lib, name, n, k)
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    y = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    kernel = lib.kernel("qgemv", format=name, dtype="bf16", device="cuda:0")
    kernel(x, sets[0], out=y)
    want = x.double().cpu().numpy() @ decode_exact(host).T
    error = float(np.linalg.norm(y.double().cpu().numpy() - want) / np.linalg.norm(want))
    us = replay_us([lambda q=q: kernel(x, q, out=y) for q in sets])  # type: ignore[misc]
    return {
        "format": name,
        "m": m,
        "n": n,
        "k": k,
        "us": us,
        "bytes": size,
        "tb_s": size / us / 1e6,
        "error": error,
    }


def dense(m: int, n: int, k: int) -> float:
    """torch's bf16 product of the same shape, weights rotated alike."""
    count = max(4, ROTATE_BYTES // (2 * n * k))
    weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    y = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    return replay_us([lambda w=w: torch.mm(x, w.T, out=y) for w in weights])  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default="mxfp4,int4")
    parser.add_argument("--shapes", default="14336x4096,4096x14336,4096x4096", help="N x K, comma separated")
    parser.add_argument("--m", type=int, default=1)
    parser.add_argument("--artifacts", help="artifact folder (default: the installed one)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lib = wootz.load(options.artifacts)
    ceiling = read_bandwidth()
    rows = []
    print(
        f"{torch.cuda.get_device_name(0)}: read ceiling {ceiling:.2f} TB/s; M = {options.m}, bf16 activations"
    )
    print(f"{'format':>16} {'N x K':>14} {'us':>7} {'x floor':>8} {'torch bf16 us':>14} {'error':>9}")
    for shape in options.shapes.split(","):
        n, k = map(int, shape.split("x"))
        torch_us = dense(options.m, n, k)
        for name in options.formats.split(",") if options.formats != "all" else lib.formats():
            row = case(lib, name, options.m, n, k)
            row |= {"torch_bf16_us": torch_us, "floor": row["us"] / (row["bytes"] / ceiling / 1e6)}
            rows.append(row)
            print(
                f"{name:>16} {shape:>14} {row['us']:7.2f} {row['floor']:8.2f} {torch_us:14.2f}"
                f" {row['error']:9.1e}"
            )
    if options.json:
        report = {
            "device": torch.cuda.get_device_name(0),
            "date": datetime.date.today().isoformat(),
            "torch": torch.__version__,
            "read_tb_s": ceiling,
            "rows": rows,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
