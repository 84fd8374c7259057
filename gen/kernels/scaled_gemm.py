"""scaled_gemm: y[m, n] = alpha * sum over k of x[m, k] * w[n, k], both operands of one block-scaled format.

The matrix instructions apply the blocks' scales; the float32 scales of whole tensors and alpha multiply the
float32 accumulator, which is rounded once. Any m and k; rows of y hold a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import Family, Instance, Operand, Scalar
from . import _scaled


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    return _scaled.refused(fmt)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Instance]:
    of = _scaled.weights(fmt, "scaled_gemm")
    return _scaled.gemms(target, of, of, dtype, options)


FAMILY = Family(
    (Operand("x", "tiled", ("m", "k")), Operand("w", "tiled", ("n", "k"))),
    Operand("y", "array", ("m", "n")),
    variants,
    limits=_scaled.LIMITS,
    needs=frozenset({"block_scale"}),
    scalars=(Scalar("alpha", "f32", 1.0),),
    accepts=accepts,
)
