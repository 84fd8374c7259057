"""What kernels that write dequantised rows share: a thread decodes a chunk of a row."""

from __future__ import annotations

from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import Packed
from ..ir.vectors import store_ragged


def write_chunk(
    b: Builder, w: Packed, row: Val, chunk: Val, line: Ref, k: Val, there: Val | None = None
) -> None:
    """The chunk's numbers to a row of y; zeros where it is not `there`, though row must be one of w."""
    walk = w.walk
    words = b.local("words", "u32", walk.chunk_words)
    spare = b.local("values", "f32", walk.vector)
    w.load_chunk(row, chunk, words, 0)
    with b.loop(0, walk.chunk // walk.step, unroll=True) as step:
        view = w.view(words, step * walk.step_words, walk.step_words)
        for at in range(0, walk.step, walk.vector):
            first = chunk * walk.chunk + step * walk.step + at
            decoded = w.decode(view, at, walk.vector)
            scale, zero = w.scale(row, first, view, at), w.zero(row, first, view, at)
            values = [w.apply(v, scale, zero) for v in decoded]
            if there is not None:
                values = [b.select(there, v, 0.0) for v in values]
            store_ragged(b, line, first, k, line.dtype, values, spare)
