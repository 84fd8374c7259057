"""Gated activations: y[m, n] = activation(x[m, :n]) * x[m, n:], x being [m, 2n]: the gate's half first.

A thread takes 16 bytes of the gate and as many beside them; where n is no whole number of those, one number.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.dsl import Builder
from ..ir.maths import Function
from ..ir.nodes import DTYPES
from ..ir.vectors import load_scalar, load_vector, store_vector, threads_of
from ..manifest.target import Target
from ..variants.family import FAST_MATH, Family, Formula, Operand, Variant, Variants

_EVEN: Formula = ["eq", ["mod", "k", 2], 0]


def gated(dtype: str, target: Target, activation: Function, options: dict[str, str]) -> Iterable[Variant]:
    for suffix, count in (("", 16 // DTYPES[dtype]), ("any", 1)):
        aligned: tuple[Formula, ...] = (["eq", ["mod", "k", 2 * count], 0],) if count > 1 else ()
        yield _variant(suffix, count, dtype, target, activation, options, (_EVEN, *aligned))


def _variant(
    suffix: str, count: int, dtype: str, target: Target, activation: Function, options: dict[str, str],
    when: tuple[Formula, ...],
) -> Variant:  # fmt: skip
    threads = threads_of(target.simd, 256)
    per_block = threads if threads > 1 else 4096 // count
    items: Formula = ["mul", "m", ["div", "k", 2 * count]]

    def build(b: Builder) -> None:
        b.fast = options.get("math") == "fast"
        x, y = b.buffer("x", dtype), b.buffer("y", dtype, "out")
        m, n = b.scalar("m"), b.scalar("k") // 2
        of_row = (n // count).cast("u64")
        with b.loop(b.thread(), per_block, threads) as i:
            item = b.block().cast("u64") * per_block + i.cast("u64")
            with b.when(item < of_row * m.cast("u64")):
                row, first = item // of_row, item % of_row * count
                gate = row * n.cast("u64") * 2 + first
                if count == 1:
                    value = activation(b, load_scalar(b, x, gate)) * load_scalar(b, x, gate + n.cast("u64"))
                    b.store(y, item, value.cast(dtype))
                else:
                    gates = load_vector(b, x, gate, dtype, count)
                    ups = load_vector(b, x, gate + n.cast("u64"), dtype, count)
                    values = [activation(b, g) * u for g, u in zip(gates, ups)]
                    store_vector(b, y, item * count, dtype, values)

    blocks: Formula = ["ceildiv", items, per_block]
    return Variant(suffix, threads, (blocks, 1, 1), build, (*when, ["lt", blocks, 2**31]), options)


def family(variants: Variants, options: dict[str, tuple[str, ...]] | None = None) -> Family:
    return Family(
        (Operand("x", "array", ("m", "k")),),
        Operand("y", "array", ("m", ["div", "k", 2])),
        variants,
        {"m": (0, 2**31 - 1), "k": (2, 2**31 - 1)},
        options=options or {},
        knobs=FAST_MATH,
    )
