"""Patches of an image as tokens: what the kernels that embed them share."""

from __future__ import annotations

from ..ir.dsl import Builder
from ..variants.family import Formula, Operand
from ._conv import MOST, product
from ._conv_block import Problem

FIELD = product("c", "kernel_h", "kernel_w")
POSITIONS = product(["div", "h", "kernel_h"], ["div", "w", "kernel_w"])
EXTENTS: dict[str, Formula] = {"positions": POSITIONS, "field": FIELD, "group": product("c", "h", "w")}
LIMITS = {
    "b": (0, MOST),
    **dict.fromkeys(("c", "h", "w", "o", "kernel_h", "kernel_w", "field", "positions"), (1, MOST)),
    "group": (1, 2**32 - 1),
}
X = Operand("x", "array", ("b", "c", "h", "w"))
Y = Operand("y", "array", ("b", "positions", "o"))
EVEN: tuple[Formula, ...] = (["eq", ["mod", "h", "kernel_h"], 0], ["eq", ["mod", "w", "kernel_w"], 0])


def declare(b: Builder, taps_role: str) -> Problem:
    """The arguments, as those of a convolution. taps_role: as there."""
    c, o, h, w = (b.scalar(name) for name in ("c", "o", "h", "w"))
    one, none = b.const(1, "u32"), b.const(0, "u32")
    kernel = [one, *(b.scalar(name, role=taps_role) for name in ("kernel_h", "kernel_w"))]
    out = [one, h // kernel[1], w // kernel[2]]
    return Problem(c, o, one, [one, h, w], kernel, out, kernel, [none] * 3, [one] * 3, patches=True)
