"""cumsum: y[m, n] = the sum of x up to each column, itself included (mode inclusive) or not (exclusive).

In f32, one rounding each. From a NaN on a row is NaN; an infinity stays one. Sums have one fixed order, which
is not that of a loop: the same bits each time. y may be x. A block has a row, and takes it a tile at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.collective import block_scan
from ..ir.dsl import Builder, Val
from ..ir.nodes import DTYPES
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant
from ._rows import LIMITS, load, store


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    count = 16 // DTYPES[dtype]
    if target.simd > 1:
        yield _variant("", count, dtype, target, options, (["eq", ["mod", "n", count], 0],))
    yield _variant("any", 1, dtype, target, options, ())


def _variant(
    suffix: str, count: int, dtype: str, target: Target, options: dict[str, str], when: tuple[Formula, ...]
) -> Variant:
    threads = threads_of(target.simd, 256)

    def build(b: Builder) -> None:
        x, y = b.buffer("x", dtype, alone=False), b.buffer("y", dtype, "out", alone=False)
        n = b.scalar("n")
        start = b.block().cast("u64") * n.cast("u64")
        source, to = b.at(x, start), b.at(y, start)
        numbers, carry = b.local("numbers", "f32", count), b.var("carry", 0.0)
        with b.loop(0, n, threads * count) as tile:
            first = tile + b.thread() * count
            with b.when(first < n) as mine:
                for i, value in enumerate(load(b, source, first, count)):
                    b.store(numbers, i, value)
            with b.otherwise(mine):
                for i in range(count):
                    b.store(numbers, i, 0.0)
            sums = _running([b.load(numbers, i) for i in range(count)])
            before, total = block_scan(b, sums[-1], again=True)
            base = carry.get() + before
            if options["mode"] == "exclusive":
                sums = [b.const(0.0, "f32"), *sums[:-1]]
            with b.when(first < n):
                store(b, to, first, [base + s for s in sums])
            carry.set(carry.get() + total)

    return Variant(suffix, threads, ("m", 1, 1), build, when, options)


def _running(values: list[Val]) -> list[Val]:
    sums = values[:1]
    for value in values[1:]:
        sums.append(sums[-1] + value)
    return sums


FAMILY = Family(
    (Operand("x", "array", ("m", "n")),),
    Operand("y", "array", ("m", "n")),
    variants,
    LIMITS,
    alias=True,
    options={"mode": ("inclusive", "exclusive")},
)
