"""What the benchmarks share: the measuring core of `wootz bench`, its options, and the report."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from wootz.bench import timing
from wootz.bench.devices import GPU_ROTATE
from wootz.bench.timing import Graph, Launch, Times, count_for

__all__ = ["Graph", "Launch", "Times", "count_for"]


def measure(*peers: Sequence[Launch]) -> Times:
    """Peers, each a graph of its launches, replayed in turn."""
    return timing.measure(peers)


def copies_for(size: int, least: int = 4) -> int:
    """Operands of `size` bytes that together outgrow the L2."""
    return timing.copies_for(size, least, GPU_ROTATE)


def read_bandwidth() -> float:
    """TB/s of a plain device-side reduction over 2 GiB."""
    data = torch.randint(0, 2**31 - 1, (1 << 29,), dtype=torch.int32, device="cuda").view(torch.float32)
    (us,) = measure([lambda: torch.amax(data)] * 3).us
    return data.numel() * 4 / us / 1e6


def distance(got: Any, want: Any) -> float:
    """The relative L2 distance of float64 arrays."""
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def parser(text: str | None) -> argparse.ArgumentParser:
    """With the options that every benchmark has."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--artifacts", help="artifact folder (default: the installed one)")
    made.add_argument("--json", type=Path, help="where to write the report")
    return made


def extents(shapes: str) -> list[tuple[str, list[int]]]:
    """(text, numbers) of each of "14336x4096,..."."""
    return [(shape, [int(extent) for extent in shape.split("x")]) for shape in shapes.split(",")]


def formats(wanted: str, lib: Any) -> Iterable[str]:
    """Those of a list separated by commas, or all."""
    found: Iterable[str] = lib.formats() if wanted == "all" else wanted.split(",")
    return found


def write(path: Path | None, rows: Sequence[dict[str, Any]], **facts: Any) -> None:
    """The report as JSON: the device, the day, torch's version, other facts, and the rows."""
    if path is None:
        return
    report = {
        "device": torch.cuda.get_device_name(0),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        **facts,
        "rows": list(rows),
    }
    path.write_text(json.dumps(report, indent=1) + "\n")
