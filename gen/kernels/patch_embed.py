"""patch_embed: y[b, position, o] = the products of the patches of x[b, c, h, w] with weight[o, c, kernel_h,
kernel_w], plus bias[o]: patches of the weight's size side by side, row by row. conv with a stride as long as
the kernel, its output as tokens.

h and w have to be multiples of the patch's.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from . import _conv, _patches
from ._conv_block import Work
from ._conv_weights import Dense, Tile


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def operands(b: Builder, tile: Tile) -> Work:
        x, weight, bias = (b.buffer(name, dtype) for name in ("x", "weight", "bias"))
        y = b.buffer("y", dtype, "out")
        problem = _patches.declare(b, "shape")
        return Work(b, tile, problem, Dense(b, weight), x, bias, y, b.scalar("has_bias"))

    yield from _conv.variants_of(operands, target, options, 1, _patches.EVEN)


FAMILY = Family(
    (_patches.X, Operand("weight", "array", ("o", "c", "kernel_h", "kernel_w")), _conv.BIAS),
    _patches.Y,
    variants,
    _patches.LIMITS,
    extents=_patches.EXTENTS,
)
