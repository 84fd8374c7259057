"""gemv: y[m, n] = sum over k of x[m, k] * w[n, k], for up to 8 rows of activations and plain weights."""

from __future__ import annotations

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import Array, Steps, plain
from ..manifest.target import Target
from ..variants.family import Family, Operand
from ._activations import Plain
from ._gemv import MOST_ROWS, Gemv, Operands, entries


def _gemv(fmt: Format | None, dtype: str, target: Target) -> Gemv:
    def operands(b: Builder, walk: Steps) -> Operands:
        x = b.buffer("x", dtype)
        w = Array(b, plain(dtype), target, walk, {"codes": "w"})
        y = b.buffer("y", dtype, "out")
        m, n, k = b.scalar("m"), b.scalar("n"), b.scalar("k")
        w.declare_pitches(k)
        return Operands(w, Plain(b, x, m, k), y, m, n, k)

    return Gemv(plain(dtype), target, operands)


FAMILY = Family(
    (Operand("x", "array", ("m", "k")), Operand("w", "array", ("n", "k"))),
    Operand("y", "array", ("m", "n")),
    limits={"m": (0, MOST_ROWS)},
    **entries(_gemv),
)
