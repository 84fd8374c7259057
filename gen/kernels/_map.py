"""Elementwise kernels over one flat array of n elements: vectors of 16 bytes a thread, a scalar tail."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES
from ..ir.vectors import load_scalar, load_vector, store_vector, stored, threads_of
from ..manifest.target import Target
from ..variants.family import Variant

Map = Callable[[Builder, list[Val]], Val]
_BITS = {2: "u16", 4: "u32"}


def elementwise(
    names: tuple[str, ...],
    dtype: str,
    target: Target,
    compute: Map | None,
    options: dict[str, str],
    to: str = "",
) -> Variant:
    """y[i] = compute(a[i], ...) for i < n; arithmetic in f32, one rounding, to the type `to` (the operands'
    where there is none; "u8" holds bools). Without `compute` the first operand's bits are moved as they are,
    NaN payloads included. Source and result may be one array. The option load_width, w4 where it is not
    given: words of an access."""
    width = int(options.get("load_width", "w4")[1:])
    count = 4 * width // DTYPES[dtype]
    threads = threads_of(target.simd, 256)
    per_block = threads * count if threads > 1 else 4096

    def build(b: Builder) -> None:
        element = dtype if compute else _BITS[DTYPES[dtype]]
        inputs = [b.buffer(name, element, alone=False) for name in names]
        y = b.buffer("y", to or element, "out", alone=False)
        n = b.scalar("n", "u64")
        start = b.block().cast("u64") * per_block
        with b.loop(b.thread() * count, per_block, threads * count) as offset:
            first = start + offset.cast("u64")
            with b.when(first + count <= n) as whole:
                if compute is None:
                    vector = b.load_words(inputs[0], first, width)
                    words = [vector.word(i) for i in range(width)] if width > 1 else [vector]
                    b.store_words(y, first, words)
                else:
                    columns = [load_vector(b, ref, first, dtype, count) for ref in inputs]
                    store_vector(b, y, first, to or dtype, [compute(b, list(row)) for row in zip(*columns)])
            with b.otherwise(whole), b.loop(0, count) as i:
                at = first + i.cast("u64")
                with b.when(at < n):
                    if compute is None:
                        b.store(y, at, b.load(inputs[0], at))
                    else:
                        value = compute(b, [load_scalar(b, ref, at) for ref in inputs])
                        b.store(y, at, stored(b, value, to or dtype))

    blocks = ["ceildiv", "n", per_block]
    return Variant("", threads, (blocks, 1, 1), build, (["lt", blocks, 2**31],), options)
