"""grouped_gemm_fp8_indexed: groups as in grouped_qmm_indexed, e4m3, a scale for each row of x and of w."""

from __future__ import annotations

from ._grouped_dense import indexed as expect
from ._grouped_dense import indexed_operands as operands
from .grouped_qmm_indexed import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]
