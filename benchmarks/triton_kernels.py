"""Kernels of Triton: one that does nothing, for launch.py, and one that adds, for cold_start.py."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def nothing(a, b, c, d):  # type: ignore[no-untyped-def]
    pass


@triton.jit
def add(a, b, c, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(c + i, tl.load(a + i, i < n) + tl.load(b + i, i < n), i < n)
