"""qmm_packed on a CUDA device: microseconds and TFLOP/s, cold weights, against torch's bf16 product.

Each case rotates over enough weights to outgrow the L2 and replays a CUDA graph that launches every set.
Replays of ours and of torch's alternate, because the clock follows the power that both draw; the ratio is the
median of the ratios of neighbours. Results are checked against float64 first.

python benchmarks/qmm.py [--formats mxfp4,int4_g128] [--shapes 14336x4096,...] [--m 16,64,...] [--json FILE]
                         [--artifacts DIR]
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
GRAPH_US = 3000
REPLAYS = 15
WARM = 3
ROWS = 1024
"""Rows of the weights made on the host and checked; the others are the same units in other orders."""

Launches = Sequence[Callable[[], object]]


def graph_of(launches: Launches) -> torch.cuda.CUDAGraph:
    """A graph that launches all of them."""
    for launch in launches[:2]:
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    return graph


def replay_us(graph: torch.cuda.CUDAGraph, count: int) -> float:
    """Microseconds of one launch in one replay."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e3 / count


def compare(ours: Launches, theirs: Launches) -> tuple[float, float, float]:
    """Median microseconds of each, and the median of theirs / ours over neighbouring replays."""
    graphs = (graph_of(ours), len(ours)), (graph_of(theirs), len(theirs))
    times = [[replay_us(graph, count) for graph, count in graphs] for _ in range(REPLAYS)][WARM:]
    mine, other = zip(*times)
    return statistics.median(mine), statistics.median(other), statistics.median(b / a for a, b in times)


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
    return [moved(i) for i in range(max(2, -(-ROTATE_BYTES // size)))], host


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
    error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    flops = 2.0 * m * n * k
    count = max(4, min(len(sets), int(GRAPH_US / max(10.0, flops / 7e8))))
    dense = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(4)]

    def ours(i: int) -> Callable[[], object]:
        x, w, y = inputs[i % 2], sets[i % len(sets)], outputs[i % 2]
        return lambda: kernel(x, w, out=y, workspace=workspace)

    def theirs(i: int) -> Callable[[], object]:
        x, w, y = inputs[i % 2], dense[i % 4], outputs[i % 2]
        return lambda: torch.mm(x, w.T, out=y)

    us, torch_us, ratio = compare([ours(i) for i in range(count)], [theirs(i) for i in range(count)])
    row = {"format": name, "m": m, "n": n, "k": k, "us": us, "tflops": flops / us / 1e6}
    return {**row, "torch_bf16_us": torch_us, "of_torch": ratio, "error": error}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default="mxfp4,int4_g128")
    parser.add_argument("--shapes", default="14336x4096", help="N x K, comma separated")
    parser.add_argument("--m", default="16,64,128,256,1024,4096")
    parser.add_argument("--artifacts", help="artifact folder (default: the installed one)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lib = wootz.load(options.artifacts)
    rows = []
    print(f"{torch.cuda.get_device_name(0)}, bf16 activations")
    print(
        f"{'format':>12} {'M':>5} {'N x K':>12} {'us':>8} {'TFLOP/s':>8}"
        f" {'torch us':>9} {'ratio':>6} {'error':>8}"
    )
    for shape in options.shapes.split(","):
        n, k = map(int, shape.split("x"))
        for name in options.formats.split(",") if options.formats != "all" else lib.formats():
            for m in map(int, options.m.split(",")):
                row = case(lib, name, m, n, k)
                rows.append(row)
                print(
                    f"{name:>12} {m:>5} {shape:>12} {row['us']:8.2f} {row['tflops']:8.0f}"
                    f" {row['torch_bf16_us']:9.2f} {row['of_torch']:6.3f} {row['error']:8.1e}",
                    flush=True,
                )
    if options.json:
        report = {
            "device": torch.cuda.get_device_name(0),
            "date": datetime.date.today().isoformat(),
            "torch": torch.__version__,
            "rows": rows,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
