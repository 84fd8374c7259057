"""What a call has to do at least: bytes that it reads and writes, operations, and how long those take."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .problems import Problem, sizes_of


def bytes_of(problem: Problem, out_bytes: int) -> int:
    """Bytes of all operands, each read once, and of the output, written once; of operands that are updated
    both; of sparse ones the part that is touched. out_bytes: of the output, the whole of it."""
    output, family = problem.signature.output.name, problem.family
    updated = {each.name for each in problem.signature.operands if each.updated} - {*family.written}
    total = out_bytes * _part(problem, output)
    for name in problem.arrays:
        if name != output:
            total += sizes_of(problem, name) * _part(problem, name) * (2 if name in updated else 1)
    return round(total)


def flops_of(problem: Problem) -> int:
    """Operations of a call; 0 where the kernel's family states none."""
    return _product(problem.family.flops, problem.size) if problem.family.flops else 0


def floor_us(size: int, flops: int, read_gb_s: float, tflops: float) -> float:
    """Microseconds: the larger of what bytes and operations take."""
    return max(size / read_gb_s / 1e3, flops / tflops / 1e6 if flops else 0.0)


def _product(text: str, size: Any) -> int:
    return prod(size[each] if each in size else int(each) for each in text.split())


def _part(problem: Problem, name: str) -> float:
    """The share of an operand that a call touches."""
    part = problem.family.sparse.get(name)
    if part is None:
        return 1.0
    above, slash, below = part.partition("/")
    if slash:
        return min(1.0, _product(above, problem.size) / max(_product(below, problem.size), 1))
    index, whole = np.asarray(problem.values[part]), problem.values[name].shape[0]
    if part == "counts":
        return float((index > 0).mean())
    return float(len(np.unique(index[(index >= 0) & (index < whole)])) / whole)
