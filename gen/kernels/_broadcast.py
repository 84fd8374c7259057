"""Elementwise kernels whose operands broadcast as NumPy's do.

The loader joins axes that all operands cross alike, and hands over n, the extents d1, d2, d3 of the inner
three of four axes, and each operand's strides in elements, 0 where it repeats. A thread takes as many
neighbours as an operand has in 16 bytes; where these lie in one run of the innermost axis, whose strides are
0 or 1, by vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES, Ref
from ..ir.vectors import load_vector, store_vector, stored, threads_of, vector_words
from ..manifest.target import Target
from ..variants.family import Variant

Map = Callable[[Builder, list[Val]], Val]
AXES = 4


@dataclass(frozen=True)
class _Operand:
    """dtype "u8": bools, loaded as such."""

    ref: Ref
    strides: list[Val]

    def load(self, b: Builder, at: Val) -> Val:
        value = b.load(self.ref, at)
        return value.cast("u32").ne(0) if self.ref.dtype == "u8" else value.cast("f32")

    def offset(self, places: list[Val]) -> Val:
        """The element at these places of the four axes."""
        total = places[0] * self.strides[0]
        for place, stride in zip(places[1:], self.strides[1:]):
            total = total + place * stride
        return total

    def load_run(self, b: Builder, at: Val, count: int) -> list[Val]:
        """`count` neighbours along the innermost axis: a vector, or one element again and again."""
        kind = "u32" if self.ref.dtype == "u8" else "f32"
        run = b.local("run", kind, count)
        with b.when(self.strides[-1].eq(0)) as repeats:
            one = b.load(self.ref, at).cast(kind)
            for i in range(count):
                b.store(run, i, one)
        with b.otherwise(repeats):
            for i, value in enumerate(
                _bytes(b, self.ref, at, count) if kind == "u32" else _floats(b, self, at, count)
            ):
                b.store(run, i, value)
        values = [b.load(run, i) for i in range(count)]
        return [v.ne(0) for v in values] if kind == "u32" else values


def _floats(b: Builder, operand: _Operand, at: Val, count: int) -> list[Val]:
    return load_vector(b, operand.ref, at, operand.ref.dtype, count)


def _bytes(b: Builder, ref: Ref, at: Val, count: int) -> list[Val]:
    width = vector_words("u8", count)
    vector = b.load_words(ref, at, width)
    words = [vector] if width == 1 else [vector.word(i) for i in range(width)]
    return [(words[i // 4] >> (8 * (i % 4))) & 0xFF for i in range(count)]


def broadcasting(
    operands: dict[str, str], dtype: str, target: Target, compute: Map, options: dict[str, str], to: str = ""
) -> Variant:
    """y[...] = compute(a[...], ...): operands by name with their types ("u8" holds bools, which compute gets
    as such), y in the type `to` (dtype where there is none). Arithmetic in f32, one rounding."""
    count = 16 // DTYPES[dtype]
    threads = threads_of(target.simd, 256)
    per_block = threads * count if threads > 1 else 4096

    def build(b: Builder) -> None:
        refs = {name: b.buffer(name, kind, alone=False) for name, kind in operands.items()}
        y = b.buffer("y", to or dtype, "out", alone=False)
        n, extents = b.scalar("n"), [b.scalar(f"d{axis}") for axis in range(1, AXES)]
        strides = {name: [b.scalar(f"{name}_stride{axis}") for axis in range(AXES)] for name in operands}
        inputs = [_Operand(ref, strides[name]) for name, ref in refs.items()]
        with b.loop(b.thread() * count, per_block, threads * count) as offset:
            first = b.block() * per_block + offset
            with b.when((extents[-1] % count).eq(0) & (first < n)) as whole:
                places = _places(first, extents)
                columns = [each.load_run(b, each.offset(places), count) for each in inputs]
                store_vector(b, y, first, to or dtype, [compute(b, list(row)) for row in zip(*columns)])
            with b.otherwise(whole), b.loop(0, count) as i:
                at = first + i
                with b.when(at < n):
                    places = _places(at, extents)
                    value = compute(b, [each.load(b, each.offset(places)) for each in inputs])
                    b.store(y, at, stored(b, value, to or dtype))

    blocks = ["ceildiv", "n", per_block]
    return Variant("", threads, (blocks, 1, 1), build, (["lt", "n", 2**31],), options)


def _places(linear: Val, extents: list[Val]) -> list[Val]:
    """Where an element of y lies on the four axes."""
    places: list[Val] = []
    for extent in reversed(extents):
        places.insert(0, linear % extent)
        linear = linear // extent
    return [linear, *places]
