"""Triton's peers; imported where they are measured."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(a, b, c, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(c + i, tl.load(a + i, i < n) + tl.load(b + i, i < n), i < n)


@triton.jit
def softmax(x, y, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, block)
    row = tl.program_id(0).to(tl.int64) * n
    value = tl.load(x + row + i, i < n, other=float("-inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row + i, (power / tl.sum(power, 0)).to(y.dtype.element_ty), i < n)
