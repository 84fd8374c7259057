"""grouped_gemm_indexed: groups as in grouped_qmm_indexed, dense weights of x's type."""

from __future__ import annotations

from ._grouped_dense import indexed as expect
from ._grouped_dense import indexed_operands as operands
from .grouped_qmm_indexed import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]
