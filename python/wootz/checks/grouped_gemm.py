"""grouped_gemm: groups as in grouped_qmm, dense weights of x's type."""

from __future__ import annotations

from ._grouped_dense import variable as expect
from ._grouped_dense import variable_operands as operands
from .grouped_qmm import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]
