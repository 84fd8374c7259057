"""rope: rotary position embedding of x[t, h, d] (tokens, heads, numbers of a head) at positions[t].

Pair i of `rotary_dim` / 2 turns by positions[t] * theta^(-2i / rotary_dim), angles and products in f32, one
rounding. layout: "half", i with i + rotary_dim / 2 (GPT-NeoX); "interleaved", 2i with 2i + 1 (GPT-J). What
lies behind rotary_dim (0: all of d) is copied. y may be x.

A block has a token: it works out the angles once, for all heads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES, Ref
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Scalar, Variant
from ._rows import load, store

MOST = 1024
"""Largest d: its cosines and sines stand in group memory."""


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    whole = 16 // DTYPES[dtype]
    for suffix, count in (("", whole), ("any", 1)):
        aligned: tuple[Formula, ...] = tuple(
            ["eq", ["mod", name, 2 * count], 0] for name in ("d", "rotary_dim") if count > 1
        )
        yield _variant(suffix, count, dtype, target, options, aligned)


def _variant(
    suffix: str, count: int, dtype: str, target: Target, options: dict[str, str], when: tuple[Formula, ...]
) -> Variant:
    """A thread turns `count` pairs at a time."""
    threads, interleaved = threads_of(target.simd, 256), options["layout"] == "interleaved"

    def build(b: Builder) -> None:
        x, positions = b.buffer("x", dtype, alone=False), b.buffer("positions", "i32")
        y = b.buffer("y", dtype, "out", alone=False)
        h, d = b.scalar("h"), b.scalar("d")
        theta, asked = b.scalar("theta", "f32", "scalar"), b.scalar("rotary_dim", "u32", "scalar")
        pairs = b.select(asked.eq(0), d, b.minimum(asked, d)) // 2
        cosines, sines = b.shared("cosines", "f32", MOST // 2), b.shared("sines", "f32", MOST // 2)
        _angles(b, positions, theta, pairs, threads, cosines, sines)
        b.barrier()
        start = b.block().cast("u64") * h.cast("u64") * d.cast("u64")
        source, to = b.at(x, start), b.at(y, start)
        with b.loop(b.thread(), h * (pairs // count), threads) as item:
            head, i = item // (pairs // count) * d, item % (pairs // count) * count
            places = _Places(interleaved, head + (i * 2 if interleaved else i), pairs, count)
            turns = [(b.load(cosines, i + j), b.load(sines, i + j)) for j in range(count)]
            ones, twos = places.load(b, source)
            first = [one * c - two * s for one, two, (c, s) in zip(ones, twos, turns)]
            second = [two * c + one * s for one, two, (c, s) in zip(ones, twos, turns)]
            places.store(b, to, first, second)
        rest = d - pairs * 2
        with b.loop(b.thread(), h * rest, threads) as item:
            at = item // rest * d + pairs * 2 + item % rest
            b.store(to, at, b.load(source, at))

    return Variant(suffix, threads, ("t", 1, 1), build, when, options)


@dataclass(frozen=True)
class _Places:
    """Where `count` pairs lie: neighbours, from `first`; or their second numbers `apart` behind the first."""

    interleaved: bool
    first: Val
    apart: Val
    count: int

    def load(self, b: Builder, ref: Ref) -> tuple[list[Val], list[Val]]:
        if not self.interleaved:
            ones, twos = (load(b, ref, at, self.count) for at in (self.first, self.first + self.apart))
            return ones, twos
        if self.count == 1:
            return load(b, ref, self.first, 1), load(b, ref, self.first + 1, 1)
        both = load(b, ref, self.first, 2 * self.count)
        return both[::2], both[1::2]

    def store(self, b: Builder, ref: Ref, ones: list[Val], twos: list[Val]) -> None:
        if self.interleaved and self.count > 1:
            store(b, ref, self.first, [value for pair in zip(ones, twos) for value in pair])
            return
        store(b, ref, self.first, ones)
        store(b, ref, self.first + (1 if self.interleaved else self.apart), twos)


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
