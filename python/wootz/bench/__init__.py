"""wootz bench: any cells of a library, timed cold against the floor that bytes and arithmetic set.

The measuring core, for others to build on:

    device = open_device("cuda:0")
    problem = operands_for(lib, cell, {"m": 1, "n": 14336, "k": 4096})
    placed = place(problem, device)                    # operands that together outgrow the cache
    runs = prepare(kernel, placed, device)             # a launch for each of them
    check(problem, runs, device, kernel)               # raises MismatchError
    times = measure([runs.launches, other_launches], device.name)

cell: a record of the index; kernel: what lib.kernel gives for it on the device. The GPU's side needs torch,
for graphs and events; the CPU's needs NumPy alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

_LAZY = {
    "Times": "timing",
    "measure": "timing",
    "open_device": "devices",
    "Problem": "problems",
    "operands_for": "problems",
    "place": "problems",
    "prepare": "problems",
    "MismatchError": "checking",
    "check": "checking",
}
__all__ = [*_LAZY, "main"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


def main(argv: Sequence[str]) -> int:
    """The command `wootz bench`; see `.command`."""
    status: int = importlib.import_module(".command", __name__).main(argv)
    return status
