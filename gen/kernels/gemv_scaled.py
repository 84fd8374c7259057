"""gemv_scaled: y[m, n] = sum over k of x[m, k] * w[n, k], both quantised in one format, for up to 8 rows.

Both keep their natural layout, scale levels and zero points included. Products and sums are f32."""

from __future__ import annotations

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import Packed, Steps, require
from ..manifest.target import Target
from ..variants.family import Family, Operand
from ._activations import Coded
from ._gemv import MOST_ROWS, Gemv, Operands, entries


def _gemv(fmt: Format | None, dtype: str, target: Target) -> Gemv:
    fmt = require(fmt, "gemv_scaled")

    def operands(b: Builder, walk: Steps) -> Operands:
        x, w = Packed(b, fmt, target, walk, "x"), Packed(b, fmt, target, walk)
        y = b.buffer("y", dtype, "out")
        m, n, k = b.scalar("m"), b.scalar("n"), b.scalar("k")
        x.declare_pitches(k)
        w.declare_pitches(k)
        return Operands(w, Coded(b, x, m, k), y, m, n, k)

    return Gemv(fmt, target, operands)


FAMILY = Family(
    (Operand("x", "quantised", ("m", "k")), Operand("w", "quantised", ("n", "k"))),
    Operand("y", "array", ("m", "n")),
    limits={"m": (0, MOST_ROWS)},
    **entries(_gemv),
)
