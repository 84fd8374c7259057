"""attention: y[b, h, s, d] = softmax(scale q k^T) v, heads of keys shared by h / hk heads of queries; in f32,
one rounding.

scale: 0 is 1 / sqrt(d). Query i stands at position p = i + n - s of its n keys, which are the first
lengths[b] (kept within 0 and t) or all t; causal: it sees keys up to p; window w: those closer to p than w.
sinks[h] are scores without a value. A query that sees no key, or none whose score is above -inf, gives zeros.
NaN or +inf among the scores that a query sees makes its row NaN, and an infinite or NaN value of a key that
it sees may, whatever the key's weight is; a key that it does not see adds nothing.

Few queries with many keys take two launches and a workspace (`_parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._attention import (
    HEADS,
    LIMITS,
    MANY,
    QUERIES,
    ROWS,
    SCALARS,
    SINKS,
    Dense,
    Found,
    Problem,
    Share,
    Tile,
    shares,
    with_any,
)
from ._parts import Room, attend, output, over_shares


@dataclass(frozen=True)
class Whole(Dense):
    """Keys and values of [b, hk, t, d]."""

    start: Val  # the first row of the head
    length: Val

    def places(self, base: Val) -> Callable[[Val], Found]:
        return lambda j: (self.start + j, self.b.const(1, "bool"))


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def build(b: Builder, share: Share, in_parts: bool) -> None:
        q, k, v = (b.buffer(name, dtype) for name in ("q", "k", "v"))
        lengths, sinks = b.buffer("lengths", "i32"), b.buffer("sinks", "f32")
        y, space = output(b, dtype, in_parts)
        batches, h, hk, s, t, d = (b.scalar(name) for name in ("b", "h", "hk", "s", "t", "d"))
        has_lengths = b.scalar("has_lengths")

        def keys(tile: Tile) -> Whole:
            length = b.var("length", t, "u32")
            with b.when(has_lengths.ne(0)):
                length.set(b.minimum(b.maximum(b.load(lengths, tile.batch), 0).cast("u32"), t))
            start = (tile.batch * hk + tile.kv) * t
            return Whole(b, share, {"k": k, "v": v}, d, start, length.get())

        attend(b, Problem.of(b, q, sinks, y, h, hk, s, d), share, t, space, batches, keys)

    rows = ["lt", ["mul", ["mul", "b", "hk"], "t"], ROWS]
    room, every = Room((("t", "shape"),)), with_any(shares(target, 8))
    yield from over_shares(every, target, "hk", room, (rows,), options, dtype, build)


FAMILY = Family(
    (
        Operand("q", "array", QUERIES),
        Operand("k", "array", ("b", "hk", "t", "d")),
        Operand("v", "array", ("b", "hk", "t", "d")),
        Operand("lengths", "array", ("b",), dtype="i32", optional=True),
        SINKS,
    ),
    Operand("y", "array", QUERIES),
    variants,
    {**LIMITS, **HEADS, "t": MANY},
    scalars=SCALARS,
)
