"""conv: y[b, o, ...] = the convolution of x[b, c, d, h, w] with weight[o, c / groups, kernel_d, kernel_h,
kernel_w], plus bias[o]; without d, or d and h, in all arrays: conv3d, conv2d, conv1d of torch.nn.functional.

Along each axis: stride, padding (zeros, on both sides) and dilation, as stride_h. As many groups of channels
as output channels is a depthwise convolution. Padding is numbers like others: an infinite or NaN weight times
it is NaN.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from . import _conv
from ._conv_block import AXES, Work
from ._conv_weights import Dense, Tile


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def operands(b: Builder, tile: Tile) -> Work:
        x, weight, bias = (b.buffer(name, dtype) for name in ("x", "weight", "bias"))
        y = b.buffer("y", dtype, "out")
        problem = _conv.declare(b, "shape")
        return Work(b, tile, problem, Dense(b, weight), x, bias, y, b.scalar("has_bias"))

    yield from _conv.variants_of(operands, target, options)


WEIGHT = Operand("weight", "array", ("o", _conv.CHANNELS, *map(_conv.taps, AXES)))
FAMILY = Family(
    (_conv.X, WEIGHT, _conv.BIAS),
    _conv.Y,
    variants,
    _conv.LIMITS,
    scalars=_conv.SCALARS,
    extents=_conv.EXTENTS,
    omissible=_conv.OMISSIBLE,
)
