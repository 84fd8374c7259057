"""grouped_gemm_fp8_paired: the same as grouped_gemm_paired, e4m3, with a scale for each row of x, w and v."""

from __future__ import annotations

from ._grouped_dense import paired as expect
from ._grouped_dense import paired_operands as operands
from .grouped_qmm import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]
