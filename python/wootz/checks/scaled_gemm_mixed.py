"""scaled_gemm_mixed: as scaled_gemm, x of 8-bit elements."""

from __future__ import annotations

from .scaled_gemm import brief, expect, operands, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]
