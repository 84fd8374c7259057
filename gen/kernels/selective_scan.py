"""selective_scan: the selective state space of Mamba (Gu, Dao 2023, arXiv 2312.00752) over t tokens:
    h = exp(delta A) h + delta x B;  y = C . h + D x, times silu(z) where z is given
x, delta, z, y [s, t, c], A [c, n], B, C [s, t, n], state h [s, c, n], which is updated; A, D [c], dt_bias [c]
and the state are f32, as all arithmetic is, with one rounding of y. dt_bias is added to delta where it is
given, and softplus=1 takes softplus of that. NaN spreads as the formulas have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from math import e, log2

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.maths import silu, softplus
from ..ir.vectors import load_scalar
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Scalar, Variant
from ._columns import Columns, Share

MOST = 256
"""Largest n."""


def _shares(target: Target) -> Iterator[Share]:
    if target.simd > 1:
        yield Share("n16", 128, 4, 4, 4, True)
        yield Share("n64", 128, 16, 4, 4, True)
        yield Share("n256", 128, 32, 8, 4, True)
        yield Share("any", 128, 32, 8, 4, False)
        return
    yield Share("n256", 1, 1, MOST, 8, True)
    yield Share("any", 1, 1, MOST, 8, False)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    for share in _shares(target):
        blocks: Formula = ["mul", ["mul", "s", ["min", "t", 1]], ["ceildiv", "c", share.slab]]
        when = (*share.when("n"), ["lt", blocks, 2**31])
        build = partial(_build, share, dtype)
        yield Variant(share.suffix, share.threads, (blocks, 1, 1), build, when, options)


def _build(share: Share, dtype: str, b: Builder) -> None:
    x, delta, rates = b.buffer("x", dtype), b.buffer("delta", dtype), b.buffer("A", "f32")
    inputs, outputs = b.buffer("B", dtype), b.buffer("C", dtype)
    through, gate, bias = b.buffer("D", "f32"), b.buffer("z", dtype), b.buffer("dt_bias", "f32")
    memory, y = b.buffer("state", "f32", "out"), b.buffer("y", dtype, "out")
    t, c, n = (b.scalar(name) for name in ("t", "c", "n"))
    has_d, has_z, has_bias = (b.scalar(name).ne(0) for name in ("has_D", "has_z", "has_dt_bias"))
    smooth = b.scalar("softplus", "u32", "scalar").ne(0)
    columns, slabs = Columns(b, share, n), (c + (share.slab - 1)) // share.slab
    sequence, asked = b.block() // slabs, b.block() % slabs * share.slab + columns.group
    channel, mine = b.minimum(asked, c - 1), asked < c  # past the end the last is repeated, and not stored

    rate, h, zero = columns.numbers("rate"), columns.numbers("h"), b.const(0, "u32")
    columns.read(b.at(rates, channel.cast("u64") * n.cast("u64")), rate, zero, mine)
    with columns.each() as (slot, _):
        columns.store(rate, slot, [a * log2(e) for a in columns.load(rate, slot)])
    row = b.at(memory, (sequence.cast("u64") * c.cast("u64") + channel.cast("u64")) * n.cast("u64"))
    columns.read(row, h, zero, mine)
    skip, shift = b.var("skip", 0.0), b.var("shift", 0.0)
    for present, variable, ref in ((has_d, skip, through), (has_bias, shift, bias)):
        with b.when(present):
            variable.set(b.load(ref, channel))

    into, out = columns.line("into", dtype), columns.line("out_of", dtype)
    with b.loop(0, t) as i:
        token = sequence.cast("u64") * t.cast("u64") + i.cast("u64")
        at = token * c.cast("u64") + channel.cast("u64")
        into.fetch(b.at(inputs, token * n.cast("u64")))
        out.fetch(b.at(outputs, token * n.cast("u64")))
        number, raw = load_scalar(b, x, at), load_scalar(b, delta, at) + shift.get()
        step = b.select(smooth, softplus(b, raw), raw)

        def advance(slot: Val, step: Val = step, number: Val = number) -> list[tuple[Val, Val]]:
            old = zip(columns.load(h, slot), columns.load(rate, slot), into.values(slot))
            new = [b.mad(b.op("exp2", step * r), s, step * number * v) for s, r, v in old]
            columns.store(h, slot, new)
            return list(zip(columns.load(h, slot), out.values(slot)))

        (found,) = columns.over_lanes(columns.sum(advance))
        with b.when(mine & columns.place.eq(0)):
            result = b.var("result", b.mad(skip.get(), number, found))
            with b.when(has_z):
                result.set(result.get() * silu(b, load_scalar(b, gate, at)))
            b.store(y, at, result.get().cast(dtype))
    with b.when(mine):
        columns.write(row, h, zero)


FAMILY = Family(
    (
        Operand("x", "array", ("s", "t", "c")),
        Operand("delta", "array", ("s", "t", "c")),
        Operand("A", "array", ("c", "n"), "f32"),
        Operand("B", "array", ("s", "t", "n")),
        Operand("C", "array", ("s", "t", "n")),
        Operand("state", "array", ("s", "c", "n"), "f32", updated=True),
        Operand("D", "array", ("c",), "f32", optional=True),
        Operand("z", "array", ("s", "t", "c"), optional=True),
        Operand("dt_bias", "array", ("c",), "f32", optional=True),
    ),
    Operand("y", "array", ("s", "t", "c")),
    variants,
    {"s": (0, 2**31 - 1), "t": (0, 2**31 - 1), "c": (1, 2**24), "n": (1, MOST)},
    scalars=(Scalar("softplus", "u32", 0),),
)
