"""qgemv: y[m, n] = sum over k of x[m, k] * w[n, k], w quantised, for up to 8 rows of activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ..formats.axes import Format
from ..ir.dsl import Builder
from ..ir.packed import Packed, Steps, require
from ..manifest.target import Target
from ..variants.family import Family, Instance, Operand, Variant, Variants
from . import _natural_sm90
from ._activations import Plain
from ._gemv import MOST_ROWS, Gemv, Operands, entries


def _gemv(fmt: Format | None, dtype: str, target: Target) -> Gemv:
    fmt = require(fmt, "qgemv")

    def operands(b: Builder, walk: Steps) -> Operands:
        w = Packed(b, fmt, target, walk)
        alone = not target.has("pdl")  # see `Builder.grid_wait`
        x = b.buffer("x", dtype, alone=alone)
        y = b.buffer("y", dtype, "out", alone=alone)
        m, n, k = b.scalar("m"), b.scalar("n"), b.scalar("k")
        w.declare_pitches(k)
        return Operands(w, Plain(b, x, m, k), y, m, n, k)

    return Gemv(fmt, target, operands, packed=True, overlaps=True, fused=True)


_ENTRIES = entries(_gemv)


def _before(own: Callable[[Format, str, Target], Iterable[Instance]], others: Variants) -> Variants:
    """Those of a device template first: they take less."""

    def found(
        fmt: Format | None, dtype: str, target: Target, options: dict[str, str]
    ) -> Iterator[Variant | Instance]:
        for instance in own(require(fmt, "qgemv"), dtype, target):
            yield replace(instance, options=options)
        yield from others(fmt, dtype, target, options)

    return found


FAMILY = Family(
    (Operand("x", "array", ("m", "k")), Operand("w", "quantised", ("n", "k"))),
    Operand("y", "array", ("m", "n")),
    _before(_natural_sm90.instances, _ENTRIES["variants"]),
    limits={"m": (0, MOST_ROWS)},
    lattice=_ENTRIES["lattice"],
    tiles=_before(_natural_sm90.further, _ENTRIES["tiles"]),
)
