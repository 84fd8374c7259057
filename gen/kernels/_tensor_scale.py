"""The scale of a whole tensor: the blocks of a first launch leave the largest magnitudes that they found in
the workspace, and every block of the main one makes the scale of them."""

from __future__ import annotations

from ..formats.axes import Format
from ..ir.collective import block_reduce
from ..ir.collective import maximum as larger
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..manifest.target import Target
from ._entries import bounded
from ._pieces import Line, sizes

WORKSPACE = "workspace"


def most_blocks(target: Target) -> int:
    """Most blocks of the first launch, whose results every block of the second one reads."""
    return 256 if target.simd > 1 else 16


def largest_of(fmt: Format, dtype: str, b: Builder) -> None:
    """The first launch."""
    x, space, size = b.buffer("x", dtype), b.buffer(WORKSPACE, "u32", WORKSPACE), sizes(fmt)
    n, k = b.scalar("n"), b.scalar("k")
    threads, blocks = b.function.threads, b.ceildiv(k, size.block)
    largest = b.var("found", 0, "u32")
    with b.loop(b.block() * threads + b.thread(), n * blocks, b.grid() * threads) as item:
        row = b.at(x, (item // blocks).cast("u64") * k.cast("u64"))
        found = Line(b, fmt, row, k, size.wide).range(item % blocks * size.block, size.block)
        largest.set(b.maximum(largest.get(), found.peak()))
    (most,) = block_reduce(b, (largest.get(),), larger)
    with b.when(b.thread().eq(0)):
        b.store(space, b.block(), most)


def scale_bits(b: Builder, fmt: Format, target: Target, space: Ref, items: Val) -> Val:
    """The bits of that scale: 1 for zeros."""
    threads, largest = b.function.threads, b.var("found", 0, "u32")
    with b.loop(b.thread(), b.minimum(b.ceildiv(items, threads), most_blocks(target)), threads) as i:
        largest.set(b.maximum(largest.get(), b.load(space, i)))
    (most,) = block_reduce(b, (largest.get(),), larger)
    peak = most.bitcast("f32")
    for element in (fmt.element, fmt.scales[0].element):
        peak = bounded(b, peak / element.max, peak)
    return b.select(peak.eq(0.0), 1.0, peak).bitcast("u32")
