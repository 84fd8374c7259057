"""qconv: conv with quantised weights: weight[o, c / groups * kernel_d * kernel_h * kernel_w], whose rows are
receptive fields (`weight.reshape(o, -1)`, quantised); the call says kernel_h and kernel_w.

Weights are decoded to f32 as dequant gives them. All else is as in conv.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import require
from ..manifest.target import Target
from ..variants.family import Family, Operand, Scalar, Variant
from . import _conv
from ._conv_block import AXES, Work
from ._conv_weights import Quantised, Tile


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "qconv")

    def operands(b: Builder, tile: Tile) -> Work:
        x, bias = (b.buffer(name, dtype) for name in ("x", "bias"))
        weights = Quantised(b, fmt, target)
        y = b.buffer("y", dtype, "out")
        problem = _conv.declare(b, "scalar")
        weights.w.declare_pitches(problem.field)
        return Work(b, tile, problem, weights, x, bias, y, b.scalar("has_bias"))

    yield from _conv.variants_of(operands, target, options)


FAMILY = Family(
    (_conv.X, Operand("weight", "quantised", ("o", _conv.FIELD)), _conv.BIAS),
    _conv.Y,
    variants,
    _conv.LIMITS,
    scalars=(*(Scalar(_conv.taps(axis), "u32", 1) for axis in AXES), *_conv.SCALARS),
    extents=_conv.EXTENTS,
    omissible=_conv.OMISSIBLE,
)
