"""What a bench found: a table, and JSON."""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import _core
from .ceilings import Ceilings
from .devices import Bench
from .rows import Row

_VERSIONED = ("torch", "humming-kernels", "bitsandbytes", "cupy-cuda13x", "cupy-cuda12x", "triton")


def report(lib: Any, device: Bench, ceilings: Ceilings, rows: Sequence[Row], **more: Any) -> dict[str, Any]:
    """All of a run, as it is written to JSON: device, date, versions, ceilings, rows."""
    return {
        "device": device.title,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "versions": versions(device),
        "generator": lib.index.header.get("generator", ""),
        "threads": _core.cpu_threads() if device.name == "cpu" else None,
        "ceilings": ceilings.to_json(),
        "rows": [row.to_json() for row in rows],
        **more,
    }


def versions(device: Bench) -> dict[str, str]:
    """Of what took part."""
    found = {
        "wootz": sys.modules["wootz"].__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    for name in _VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if device.name != "cpu":
        version = _core.cuda_device_info(int(device.name.partition(":")[2]))["driver_version"]
        found["driver"] = f"CUDA {version // 1000}.{version % 1000 // 10}"
    return found


def as_json(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


# ---- tables


HEAD = ("kernel", "format", "dtype", "size", "us", "GB/s", "TFLOP/s", "x floor")


def cells_of(row: Row, others: Sequence[str]) -> list[str]:
    """A line of the table."""
    flags = ("" if row.cold else " warm") + (" pdl" if row.pdl else "")
    return [
        row.kernel, row.format, row.dtype, row.size + flags, f"{row.us:.2f}", f"{row.gb_s:.4g}",
        f"{row.tflops:.4g}" if row.flops else "-", f"{row.times_floor:.2f}",
        *(f"{row.ratios[name]:.2f}" if name in row.ratios else "-" for name in others),
    ]  # fmt: skip


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Its head and its lines: peers' columns are their time over ours."""
    others = sorted({name for row in rows for name in row.ratios})
    return [*HEAD, *(f"{name} / ours" for name in others)], [cells_of(row, others) for row in rows]


def shown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """A table on standard output: rich's where that is installed and looked at, else plain text."""
    lines = list(lines)
    if sys.stdout.isatty() and _rich(head, lines):
        return
    print(plain(head, lines))


def plain(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as what is in them: words to the left, numbers to the right."""
    every = [head, *lines]
    wide = [max(len(line[i]) for line in every) for i in range(len(head))]
    right = [_is_number(lines[0][i]) if lines else False for i in range(len(head))]
    return "\n".join(
        "  ".join(text.rjust(w) if r else text.ljust(w) for text, w, r in zip(line, wide, right)).rstrip()
        for line in every
    )


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).isdigit()


def _rich(head: Sequence[str], lines: Sequence[Sequence[str]]) -> bool:
    try:
        console = importlib.import_module("rich.console").Console()
        made = importlib.import_module("rich.table").Table(*head)
    except ImportError:
        return False
    for line in lines:
        made.add_row(*line)
    console.print(made)
    return True


def absent(rows: Sequence[Row]) -> list[str]:
    """A line for each reason why a peer was not measured."""
    return sorted({f"{name}: not measured: {why}" for row in rows for name, why in row.absent.items()})
