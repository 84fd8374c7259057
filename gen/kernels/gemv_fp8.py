"""gemv_fp8: y[m, n] = sum over k of x[m, k] * w[n, k] in E4M3, for up to 8 rows of activations.

x has an f32 scale for each run of 128 columns, w one for each block of 128 x 128; the last may be ragged."""

from __future__ import annotations

from ..formats.axes import Block, Format, Scale, floating, wide
from ..formats.layout import Part, Plane, place
from ..ir.dsl import Builder
from ..ir.packed import Array, Steps
from ..manifest.target import Target
from ..variants.family import Family, Operand
from ._activations import Coded
from ._gemv import MOST_ROWS, Gemv, Operands, entries

RUN = 128


def _scaled(rows: int) -> Format:
    """E4M3 with one scale for `rows` x RUN numbers."""
    element, block = floating(4, 3), Block(rows, RUN)
    layout = place(8, 1, (Plane(8),), (Part("scale", 32, "f32", block),), ("codes",))
    return Format("", element, block, (Scale(wide("f32"), block, "absmax"),), None, layout)


def _gemv(fmt: Format | None, dtype: str, target: Target) -> Gemv:
    def operands(b: Builder, walk: Steps) -> Operands:
        x = Array(b, _scaled(1), target, walk, {"codes": "x", "scale": "x_scale"})
        w = Array(b, _scaled(RUN), target, walk, {"codes": "w", "scale": "w_scale"})
        y = b.buffer("y", dtype, "out")
        m, n, k = b.scalar("m"), b.scalar("n"), b.scalar("k")
        x.declare_pitches(k)
        w.declare_pitches(k)
        return Operands(w, Coded(b, x, m, k), y, m, n, k)

    return Gemv(_scaled(RUN), target, operands)


FAMILY = Family(
    (
        Operand("x", "array", ("m", "k"), "e4m3"),
        Operand("x_scale", "array", ("m", ["ceildiv", "k", RUN]), "f32"),
        Operand("w", "array", ("n", "k"), "e4m3"),
        Operand("w_scale", "array", (["ceildiv", "n", RUN], ["ceildiv", "k", RUN]), "f32"),
    ),
    Operand("y", "array", ("m", "n")),
    limits={"m": (0, MOST_ROWS)},
    **entries(_gemv),
)
