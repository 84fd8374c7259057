"""sample: tokens[b] = a column of each row of logits[b, v], drawn by softmax(logits / temperature).

top_k (0: off) leaves the k largest logits, top_p (from 1 on: off) of those the smallest set of the largest
whose probabilities reach p, never none; of equal logits the first are taken. A temperature below 2^-126, or
NaN, takes the largest logit, the first of equals. NaN and -inf are never drawn; where there is +inf nothing
else is, of several any one. A row of NaN and -inf alone gives -1.

Weights e^((x - max) / temperature) are multiples of 2^-39, from f32 operations of one rounding each, and
sums are exact: the same logits and the same seed give the same token on every target. The random number is
Philox 4x32-10 of the counter (step + steps[row], 0, 0, 0) and the key (seed, streams[row]), the row's number
where `streams` is not given: 64 bits r. The token is where the running sum of weights passes r * sum / 2^64.
settings[b, 3], if given, has temperature, top_k and top_p of each row in place of those of the call.

A block has a row. It is read once for its maximum, once for the sum, and for each filter another 8 (bf16), 10
(f16) or 16 times (f32), and twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import e, log2

from ..formats.axes import Format
from ..ir.dsl import Builder, Val, Var
from ..ir.nodes import DTYPES
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Scalar, Variant
from ._philox import below, philox
from ._powers import Weights
from ._select import Logits

_NONE = 0xFFFFFFFF
_LEAST = 2.0**-126
_THREADS = 512


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    threads = threads_of(target.simd, _THREADS)
    for count in sorted({16 // DTYPES[dtype] if target.simd > 1 else 1, 1}, reverse=True):
        for each in (False, True):
            suffix = ("any" if count == 1 else "") + ("each" if each else "")
            when: list[Formula] = [["eq", ["mod", "v", count], 0]] if count > 1 else []
            when += [["eq", "has_settings", int(each)]]
            build = partial(_build, dtype=dtype, count=count, each=each)
            yield Variant(suffix, threads, ("b", 1, 1), build, tuple(when), options)


def _build(b: Builder, dtype: str, count: int, each: bool) -> None:
    logits, streams, steps = b.buffer("logits", dtype), b.buffer("streams", "i32"), b.buffer("steps", "i32")
    tokens, v, row = b.buffer("tokens", "i32", "out"), b.scalar("v"), b.block()
    if each:
        settings = b.buffer("settings", "f32")
        heat, k, p = (b.load(settings, row.cast("u64") * 3 + i) for i in range(3))
        k = b.select(k > 0.0, b.minimum(k, 2.0**24), 0.0).cast("u32")
    else:
        heat, k = b.scalar("temperature", "f32", "scalar"), b.scalar("top_k", "u32", "scalar")
        p = b.scalar("top_p", "f32", "scalar")
    seed, step = b.scalar("seed", "u32", "scalar"), b.scalar("step", "u32", "scalar")
    stream, more = b.var("stream", row, "u32"), b.var("more", 0, "u32")
    for has, array, into in (("has_streams", streams, stream), ("has_steps", steps, more)):
        with b.when(b.scalar(has).ne(0)):
            into.set(b.load(array, row).cast("u32"))
    zero = b.const(0, "u32")
    high, low, _, _ = philox(b, (step + more.get(), zero, zero, zero), (seed, stream.get()))

    line = Logits(b, b.at(logits, row.cast("u64") * v.cast("u64")), v, count)
    top, first = line.largest()
    token = b.var("token", first, "u32")
    with b.when((heat >= _LEAST) & k.ne(1)):
        chosen = _Chosen(line, Weights(b, line.number(top), b.const(log2(e), "f32") / heat))
        with b.loop(0, 2) as stage:
            counts = stage.eq(0)
            with b.when(b.select(counts, (k > 0) & (k < v), p < 1.0)):
                chosen.filter(counts, k, p, top)
        parts, total = line.parts(chosen.weight)
        token.set(line.locate(chosen.weight, parts, below(b, high, low, total), _NONE))
    with b.when(b.thread().eq(0)):
        b.store(tokens, row, b.select(top > line.bottom, token.get(), _NONE).cast("i32"))


class _Chosen:
    """What the filters leave of a row: keys above `least`, and equal ones up to the column `last`."""

    def __init__(self, line: Logits, weights: Weights) -> None:
        self.line, self.weights = line, weights
        self.b: Builder = line.b
        self.least: Var = self.b.var("least", line.bottom, "u32")
        self.last: Var = self.b.var("last", _NONE, "u32")

    def _has(self, key: Val, column: Val) -> Val:
        least = self.least.get()
        return (key > least) | (key.eq(least) & (column <= self.last.get()))

    def weight(self, x: Val, key: Val, column: Val) -> Val:
        return self.b.select(self._has(key, column), self.weights.of(x), 0)

    def filter(self, counts: Val, k: Val, p: Val, top: Val) -> None:
        """Leaves the k largest, or else the largest whose weights reach p of their sum."""
        b, line = self.b, self.line

        def value(x: Val, key: Val, column: Val) -> Val:
            found = b.var("value", 1, "u64")
            with b.when(b.op("not", counts)):
                found.set(self.weight(x, key, column))
            return found.get()

        wanted = b.var("wanted", k.cast("u64"), "u64")
        with b.when(b.op("not", counts)):
            wanted.set(_share(b, line.parts(self.weight)[1], p))
        least, above = line.bisect(value, wanted.get(), b.maximum(self.least.get(), line.bottom + 1), top)
        each = b.select(counts, b.const(1, "u64"), self.weights.of(line.number(least)))

        def tied(x: Val, key: Val, column: Val) -> Val:
            return b.select(key.eq(least) & self._has(key, column), each, 0)

        parts, _ = line.parts(tied)
        self.last.set(line.locate(tied, parts, wanted.get() - above - 1, _NONE))
        self.least.set(least)


def _share(b: Builder, total: Val, p: Val) -> Val:
    """p of the total, rounded up; 1 at least."""
    share = (b.maximum(p, 0.0) * 2.0**32).cast("u32").cast("u64")
    found = (total >> 32) * share + (((total & 0xFFFFFFFF) * share + 0xFFFFFFFF) >> 32)
    return b.select(found.eq(0), 1, found)


def types(dtype: str, options: dict[str, str]) -> dict[str, str]:
    return {"tokens": "i32"}


FAMILY = Family(
    (
        Operand("logits", "array", ("b", "v")),
        Operand("streams", "array", ("b",), "i32", optional=True),
        Operand("steps", "array", ("b",), "i32", optional=True),
        Operand("settings", "array", ("b", 3), "f32", optional=True),
    ),
    Operand("tokens", "array", ("b",)),
    variants,
    {"b": (0, 2**31 - 1), "v": (1, 2**24)},
    types=types,
    scalars=(
        Scalar("temperature", "f32", 1.0),
        Scalar("top_k", "u32", 0),
        Scalar("top_p", "f32", 1.0),
        Scalar("seed", "u32", 0),
        Scalar("step", "u32", 0),
    ),
)
