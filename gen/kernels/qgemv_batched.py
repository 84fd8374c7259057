"""qgemv_batched: y[m, n] = x[m, k] times the rows of w0, w1 and w2, one below another, in one launch.

The matrices are of one format; w2 may be left out. n = n0 + n1 + n2: the products lie beside each other, each
with the bits that qgemv gives it where that has no template of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import Steps, require
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant
from ._activations import Plain
from ._gemv import MOST_ROWS, Gemv, Operands
from ._weights import Several

NAMES, ROWS = ("w0", "w1", "w2"), ("n0", "n1", "n2")
TOTAL: Formula = ["add", ["add", "n0", "n1"], "n2"]


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "qgemv_batched")

    def operands(b: Builder, walk: Steps) -> Operands:
        x = b.buffer("x", dtype)
        w = Several(b, fmt, target, walk, NAMES)
        y, m = b.buffer("y", dtype, "out"), b.scalar("m")
        rows, k = [b.scalar(name) for name in ROWS], b.scalar("k")
        n = w.declare(rows, k)
        return Operands(w, Plain(b, x, m, k), y, m, n, k)

    for variant in Gemv(fmt, target, operands, rows=TOTAL, packed=True).variants(options):
        yield replace(variant, when=(*variant.when, ["lt", TOTAL, 2**31]))


FAMILY = Family(
    (
        Operand("x", "array", ("m", "k")),
        Operand("w0", "quantised", ("n0", "k")),
        Operand("w1", "quantised", ("n1", "k")),
        Operand("w2", "quantised", ("n2", "k"), optional=True),
    ),
    Operand("y", "array", ("m", TOTAL)),
    variants,
    limits={"m": (0, MOST_ROWS)},
)
