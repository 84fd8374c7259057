"""grouped_gemm_paired: y = activation(x w[g]^T) * (x v[g]^T), dense weights of x's type."""

from __future__ import annotations

from ._grouped_dense import paired as expect
from ._grouped_dense import paired_operands as operands
from .grouped_qmm import brief, shapes, small

__all__ = ["brief", "expect", "operands", "shapes", "small"]
