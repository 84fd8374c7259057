"""rope: rotary position embedding of x[t, h, d] (tokens, heads, numbers of a head) at positions[t].

Pair i of `rotary_dim` / 2 turns by positions[t] * theta^(-2i / rotary_dim), angles and products in f32, one
rounding. layout: "half", i with i + rotary_dim / 2 (GPT-NeoX); "interleaved", 2i with 2i + 1 (GPT-J). What
lies behind rotary_dim (0: all of d) is copied. y may be x.

A block has a token: it works out the angles once, for all heads.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..axes import Format
from ..dsl import Builder, Val
from ..family import Family, Operand, Scalar, Variant
from ..ir import Ref
from ..target import Target
from ..vectors import load_scalar, threads_of

MOST = 1024
"""Largest d: its cosines and sines stand in group memory."""


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    threads, interleaved = threads_of(target.simd, 256), options["layout"] == "interleaved"

    def build(b: Builder) -> None:
        x, positions = b.buffer("x", dtype, alone=False), b.buffer("positions", "i32")
        y = b.buffer("y", dtype, "out", alone=False)
        h, d = b.scalar("h"), b.scalar("d")
        theta, asked = b.scalar("theta", "f32", "scalar"), b.scalar("rotary_dim", "u32", "scalar")
        rotary = b.select(asked.eq(0), d, b.minimum(asked, d))
        pairs = rotary // 2
        cosines, sines = b.shared("cosines", "f32", MOST // 2), b.shared("sines", "f32", MOST // 2)
        _angles(b, positions, theta, pairs, threads, cosines, sines)
        b.barrier()
        start = b.block().cast("u64") * h.cast("u64") * d.cast("u64")
        source, to = b.at(x, start), b.at(y, start)
        rest = d - pairs * 2
        with b.loop(b.thread(), h * pairs, threads) as item:
            head, i = item // pairs * d, item % pairs
            first = head + (i * 2 if interleaved else i)
            second = first + (1 if interleaved else pairs)
            one, two = load_scalar(b, source, first), load_scalar(b, source, second)
            cosine, sine = b.load(cosines, i), b.load(sines, i)
            b.store(to, first, (one * cosine - two * sine).cast(dtype))
            b.store(to, second, (two * cosine + one * sine).cast(dtype))
        with b.loop(b.thread(), h * rest, threads) as item:
            at = item // rest * d + pairs * 2 + item % rest
            b.store(to, at, b.load(source, at))

    yield Variant("", threads, ("t", 1, 1), build, (), options)


def _angles(
    b: Builder, positions: Ref, theta: Val, pairs: Val, threads: int, cosines: Ref, sines: Ref
) -> None:
    """The cosine and the sine of each pair's angle at the block's token."""
    position, octaves = b.load(positions, b.block()).cast("f32"), b.op("log2", theta)
    with b.loop(b.thread(), pairs, threads) as i:
        part = i.cast("f32") / pairs.cast("f32")
        angle = position * b.op("exp2", b.op("neg", part * octaves))
        b.store(cosines, i, b.op("cos", angle))
        b.store(sines, i, b.op("sin", angle))


FAMILY = Family(
    (Operand("x", "array", ("t", "h", "d")), Operand("positions", "array", ("t",), dtype="i32")),
    Operand("y", "array", ("t", "h", "d")),
    variants,
    {"t": (0, 2**31 - 1), "h": (1, 2**16), "d": (1, MOST)},
    alias=("x",),
    options={"layout": ("half", "interleaved")},
    scalars=(Scalar("theta", "f32", 10000.0), Scalar("rotary_dim", "u32", 0)),
)
