"""rms_norm_qgemv: y[m, n] = sum over k of a[m, k] * w[n, k], a = x / sqrt(mean of x^2 + eps) * weight.

Activations are normalised while they are brought to group memory, and rounded to x's type as rms_norm rounds
what it stores. The sum of squares is added up in another order than there, so that an element of `a` may
differ in its last place from rms_norm's; apart from that y has the bits of qgemv as every GPU has it. NaN as
both together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ..formats.axes import Format
from ..ir.collective import add, block_reduce
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import Packed, Steps, require
from ..ir.vectors import load_ragged
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._activations import Plain
from ._gemv import GROUPS, MOST_ROWS, Gemv, Operands
from .rms_norm import EPS

COUNT = 8
"""Neighbours whose squares a thread adds up beside each other."""


@dataclass(frozen=True)
class Normed(Plain):
    """Rows that are read as rms_norm gives them."""

    weight: Ref
    eps: Val

    @cached_property
    def scales(self) -> Ref:
        return self.b.shared("scales", "f32", MOST_ROWS)

    def prepare(self) -> None:
        """Every row's 1 / sqrt(mean of squares + eps), to group memory."""
        b, step = self.b, COUNT * self.b.function.threads
        vector = b.local("squares", "f32", COUNT)
        with b.loop(0, self.m) as m:
            line = self.row(m)
            totals = [b.var("total", 0.0) for _ in range(COUNT)]
            with b.loop(b.thread() * COUNT, self.k, step) as first:
                load_ragged(b, line, first, self.k, self.ref.dtype, vector, COUNT)
                for i, total in enumerate(totals):
                    value = b.load(vector, i)
                    total.set(b.mad(value, value, total.get()))
            found = [total.get() for total in totals]
            while len(found) > 1:
                found = [one + other for one, other in zip(found[::2], found[1::2])]
            squares = block_reduce(b, found, add, again=True)[0]
            with b.when(b.thread().eq(0)):
                b.store(self.scales, m, b.op("rsqrt", squares / self.k.cast("f32") + self.eps))
        b.barrier()

    def load(self, m: Val, line: Ref, first: Val, into: Ref, count: int) -> None:
        b, dtype = self.b, self.ref.dtype
        super().load(m, line, first, into, count)
        weights = b.local("weights_of_norm", "f32", count)
        load_ragged(b, self.weight, first, self.k, dtype, weights, count)
        scale = b.load(self.scales, b.minimum(m, self.m - 1))
        for i in range(count):
            value = b.load(into, i) * scale * b.load(weights, i)
            b.store(into, i, value.cast(dtype).cast("f32"))


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "rms_norm_qgemv")

    def operands(b: Builder, walk: Steps) -> Operands:
        w = Packed(b, fmt, target, walk)
        x, weight = b.buffer("x", dtype), b.buffer("weight", dtype)
        y = b.buffer("y", dtype, "out")
        m, n, k = b.scalar("m"), b.scalar("n"), b.scalar("k")
        eps = b.scalar("eps", "f32", "scalar")
        w.declare_pitches(k)
        return Operands(w, Normed(b, x, m, k, weight, eps), y, m, n, k)

    yield from Gemv(fmt, target, operands, beside=4 * (MOST_ROWS + GROUPS), packed=True).variants(options)


FAMILY = Family(
    (
        Operand("x", "array", ("m", "k")),
        Operand("weight", "array", ("k",)),
        Operand("w", "quantised", ("n", "k")),
    ),
    Operand("y", "array", ("m", "n")),
    variants,
    limits={"m": (0, MOST_ROWS)},
    scalars=(EPS,),
)
