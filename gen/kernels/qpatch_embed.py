"""qpatch_embed: patch_embed with quantised weights: weight[o, c * kernel_h * kernel_w], whose rows are
patches (`weight.reshape(o, -1)`, quantised); the call says kernel_h and kernel_w.

Weights are decoded to f32 as dequant gives them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import require
from ..manifest.target import Target
from ..variants.family import Family, Operand, Scalar, Variant
from . import _conv, _patches
from ._conv_block import Work
from ._conv_weights import Quantised, Tile


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "qpatch_embed")

    def operands(b: Builder, tile: Tile) -> Work:
        x, bias = (b.buffer(name, dtype) for name in ("x", "bias"))
        weights = Quantised(b, fmt, target)
        y = b.buffer("y", dtype, "out")
        problem = _patches.declare(b, "scalar")
        weights.w.declare_pitches(problem.field)
        return Work(b, tile, problem, weights, x, bias, y, b.scalar("has_bias"))

    yield from _conv.variants_of(operands, target, options, 1, _patches.EVEN)


FAMILY = Family(
    (_patches.X, Operand("weight", "quantised", ("o", _patches.FIELD)), _conv.BIAS),
    _patches.Y,
    variants,
    _patches.LIMITS,
    scalars=(Scalar("kernel_h", "u32", 1), Scalar("kernel_w", "u32", 1)),
    extents=_patches.EXTENTS,
)
