"""moe_gather_qgemv: y[t, n] = sum over k of x[t, k] * w[indices[t], n, k]: each row has an expert's matrix.

w is a bank in the natural layout (`wootz.stack`). Indices are read on the device and may repeat; one that the
bank does not have gives a row of zeros and reads no weights (`wootz.check_indices` names it).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import Steps, require
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._activations import Plain
from ._gemv import Gemv, Operands
from ._weights import Chosen


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "moe_gather_qgemv")

    def operands(b: Builder, walk: Steps) -> Operands:
        x = b.buffer("x", dtype)
        w = Chosen(b, fmt, target, walk)
        indices, y = b.buffer("indices", "i32"), b.buffer("y", dtype, "out")
        _, experts, n, k = (b.scalar(name) for name in ("t", "experts", "n", "k"))
        w.declare_pitches(k)
        w.choose(b.load(indices, b.block(1)).cast("u32"), experts, n, k)
        row, one = b.block(1).cast("u64"), b.const(1, "u32")
        mine = Plain(b, b.at(x, row * k.cast("u64")), one, k)
        return Operands(w, mine, b.at(y, row * n.cast("u64")), one, n, k)

    yield from Gemv(fmt, target, operands, times="t", packed=True).variants(options)


FAMILY = Family(
    (
        Operand("x", "array", ("t", "k")),
        Operand("w", "quantised", ("experts", "n", "k")),
        Operand("indices", "array", ("t",), "i32"),
    ),
    Operand("y", "array", ("t", "n")),
    variants,
    limits={"t": (0, (1 << 16) - 1), "experts": (1, 1 << 16)},
)
