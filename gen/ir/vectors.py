"""Groups of neighbouring elements of a dense array: 16-byte loads and stores, with scalar code for ragged
ends.

Arithmetic is in f32; f16 and bf16 are what is loaded and stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from .dsl import Builder, Val
from .nodes import DTYPES, Ref


def from_words(b: Builder, words: Sequence[Val], dtype: str, count: int) -> list[Val]:
    """`count` f32 values out of u32 words that hold elements of `dtype`, low half first."""
    if dtype == "f32":
        return [w.bitcast("f32") for w in words[:count]]
    values: list[Val] = []
    for i in range(count):
        word, half = words[i // 2], i % 2
        if dtype == "f16":
            values.append(b.make("unpack_f16", "f32", (word.value,), {"half": half}))
        else:
            values.append(((word & 0xFFFF0000) if half else (word << 16)).bitcast("f32"))
    return values


def to_words(values: Sequence[Val], dtype: str) -> list[Val]:
    """f32 values rounded to `dtype`, two 16-bit elements a word; bools as bytes, four a word ("u8")."""
    if dtype == "u8":
        bits = [
            v.builder.select(v, 1 << (8 * (i % 4)), v.builder.const(0, "u32")) for i, v in enumerate(values)
        ]
        return [bits[i] | bits[i + 1] | bits[i + 2] | bits[i + 3] for i in range(0, len(bits), 4)]
    if dtype == "f32":
        return [v.bitcast("u32") for v in values]
    halves = [v.cast(dtype).bitcast("u16").cast("u32") for v in values]
    return [low | (high << 16) for low, high in zip(halves[::2], halves[1::2])]


def vector_words(dtype: str, count: int) -> int:
    """u32 words of one access for `count` elements: 4 (16 bytes) at most; 0 where they do not fill a word."""
    size = DTYPES[dtype] * count
    return min(size // 4, 4) if size % 4 == 0 else 0


def load_vector(b: Builder, ref: Ref, index: Val, dtype: str, count: int) -> list[Val]:
    """`count` f32 values from element `index`, aligned to the access."""
    width = vector_words(dtype, count)
    words: list[Val] = []
    for at in range(0, DTYPES[dtype] * count // 4, width):
        vector = b.load_words(ref, index + at * 4 // DTYPES[dtype], width)
        words += [vector] if width == 1 else [vector.word(i) for i in range(width)]
    return from_words(b, words, dtype, count)


def store_vector(b: Builder, ref: Ref, index: Val, dtype: str, values: Sequence[Val]) -> None:
    """The values from element `index`, aligned to the access."""
    width = vector_words(dtype, len(values))
    words = to_words(values, dtype)
    for first in range(0, len(words), width):
        b.store_words(ref, index + first * 4 // DTYPES[dtype], words[first : first + width])


def load_ragged(b: Builder, ref: Ref, first: Val, end: Val, dtype: str, into: Ref, count: int) -> None:
    """into[i] = f32(ref[first + i]), 0 from `end` on. first is a multiple of `count`; one vector access
    where rows of `end` elements keep it aligned, else scalar."""

    def scalar() -> None:
        with b.loop(0, count, unroll=True) as i:
            b.store(into, i, 0.0)
            with b.when(first + i < end):
                b.store(into, i, load_scalar(b, ref, first + i))

    if not vector_words(dtype, count):
        scalar()
        return
    with b.when((end % count).eq(0) & (first < end)) as whole:
        for i, value in enumerate(load_vector(b, ref, first, dtype, count)):
            b.store(into, i, value)
    with b.otherwise(whole):
        scalar()


def copy_ragged(
    b: Builder, ref: Ref, first: Val, end: Val, into: Ref, at: Val, count: int, spare: Ref | None
) -> None:
    """into[at + i] = ref[first + i], 0 from `end` on, as `load_ragged` does. The same type, moved as it is;
    or with `spare`, a local array of `count` f32, f16 or bf16 to f32."""
    if spare is not None:
        load_ragged(b, ref, first, end, ref.dtype, spare, count)
        for i in range(count):
            b.store(into, at + i, b.load(spare, i))
        return
    width = vector_words(ref.dtype, count)

    def scalar() -> None:
        with b.loop(0, count, unroll=True) as i:
            b.store(into, at + i, 0)
            with b.when(first + i < end):
                b.store(into, at + i, b.load(ref, first + i))

    if not width:
        scalar()
        return
    with b.when((end % count).eq(0) & (first < end)) as whole:
        for start in range(0, count, 4 * width // DTYPES[ref.dtype]):
            vector = b.load_words(ref, first + start, width)
            words = [vector] if width == 1 else [vector.word(i) for i in range(width)]
            b.store_words(into, at + start, words)
    with b.otherwise(whole):
        scalar()


def store_ragged(
    b: Builder, ref: Ref, first: Val, end: Val, dtype: str, values: Sequence[Val], spare: Ref
) -> None:
    """ref[first + i] = values[i] for first + i < end, as `load_ragged` does; `spare` is a local array to
    index."""

    def scalar() -> None:
        for at, value in enumerate(values):
            b.store(spare, at, value)
        with b.loop(0, len(values), unroll=True) as i, b.when(first + i < end):
            b.store(ref, first + i, b.load(spare, i).cast(dtype))

    if not vector_words(dtype, len(values)):
        scalar()
        return
    with b.when((end % len(values)).eq(0) & (first < end)) as whole:
        store_vector(b, ref, first, dtype, values)
    with b.otherwise(whole):
        scalar()


def load_scalar(b: Builder, ref: Ref, index: Val) -> Val:
    return b.load(ref, index).cast("f32")


def stored(b: Builder, value: Val, dtype: str) -> Val:
    """An f32 or a bool as one element of an array."""
    return b.select(value, b.const(1, "u8"), b.const(0, "u8")) if dtype == "u8" else value.cast(dtype)


def threads_of(simd: int, wish: int) -> int:
    """Threads of a block: `wish` where lanes run together, one where there are none (the CPU)."""
    return wish if simd > 1 else 1
