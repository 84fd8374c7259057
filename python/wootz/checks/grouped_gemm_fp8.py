"""grouped_gemm_fp8: groups as in grouped_qmm, e4m3, with a scale for each row of x and of w."""

from __future__ import annotations

from ._grouped_dense import variable as expect
from ._grouped_dense import variable_operands as operands
from .grouped_qmm import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]
