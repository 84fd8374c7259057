"""quantize: x[n, k] in a format, natural layout; bit for bit what wootz.quantize gives.

NaN takes the element's NaN, and counts as 0 where there is none. Float32 numbers that are subnormal are taken
as the device takes them: one that flushes them sees zeros.

Of formats whose blocks lie in a row, a thread takes a piece of the row: whole blocks that fill whole words of
codes and whole bytes of every other field; or, of rows of whole vectors, lanes share blocks ("shared"; "flat"
of whole blocks, where a row follows the other without a gap). Other blocks have a thread block each. A scale
of the whole tensor comes of a first launch, whose blocks leave the largest magnitudes that they found in the
workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import lcm

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..ir.packed import require
from ..ir.vectors import threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant
from . import _quantise
from ._codes import Codes
from ._entries import Entries, entries
from ._pieces import Line, Output, Sizes, sizes
from ._ranges import Range
from ._shared import Share
from ._tensor_scale import WORKSPACE, largest_of, most_blocks, scale_bits

THREADS = 256
"""Of a block that has rows, or parts of them."""


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    if fmt is None:
        return "it takes a format"
    if dtype not in ("f16", "bf16", "f32"):
        return f"quantize takes f16, bf16, f32; got {dtype}"
    return _quantise.refused(fmt) or (None if in_rows(fmt) else _refused_tiles(fmt))


def in_rows(fmt: Format) -> bool:
    """Whether blocks are runs of a row."""
    return not fmt.scales or fmt.block.along_k


def _refused_tiles(fmt: Format) -> str | None:
    if fmt.block.cols % fmt.layout.period:
        return f"blocks of several rows, or whole ones, are of whole words: {fmt.layout.period} columns"
    if len(fmt.scales) > 1:
        return "blocks of several rows, or whole ones, have one scale"
    if any(f.bits < 8 for f in fmt.layout.fields[1:]):
        return "blocks of several rows, or whole ones, have scales and zero points of 8 bits or more"
    if fmt.scales[0].rule == "signed_absmax":
        return "signed_absmax goes with blocks in a row"
    return None


# ------------------------------------------------------------ blocks in a row
def _declared(
    fmt: Format, target: Target, dtype: str, b: Builder
) -> tuple[Ref, Output, Sizes, Val | None, Val, Val]:
    """x, y, sizes, the bits of the scale of the whole tensor, n, k."""
    x, y, size = b.buffer("x", dtype), Output.of(b, fmt), sizes(fmt)
    space = b.buffer(WORKSPACE, "u32", WORKSPACE) if len(fmt.scales) > 1 else None
    n, k = b.scalar("n"), b.scalar("k")
    above = scale_bits(b, fmt, target, space, n * b.ceildiv(k, size.block)) if space else None
    if above is not None:
        with b.when((b.block() + b.thread()).eq(0)):
            y.store(y.fields["scale1"], b.const(0, "u32"), above)
    return x, y, size, above, n, k


def _pieces(fmt: Format, target: Target, dtype: str, b: Builder) -> None:
    x, y, size, above, n, k = _declared(fmt, target, dtype, b)
    item = b.block() * b.function.threads + b.thread()
    pieces = (y.padded(k) + (size.piece - 1)) // size.piece
    row = item // pieces
    with b.when(row < n):
        line = Line(b, fmt, b.at(x, row.cast("u64") * k.cast("u64")), k, size.wide)
        piece(b, fmt, target, line, y, size, row, item % pieces * size.piece, above)


def _shares(fmt: Format, target: Target, dtype: str, share: Share, b: Builder) -> None:
    x, y, size, above, n, k = _declared(fmt, target, dtype, b)
    item, runs = b.block() * b.function.threads + b.thread(), share.count(y.padded(k))
    row = item // runs
    numbers = b.at(x, b.minimum(row, n - 1).cast("u64") * k.cast("u64"))
    line = Line(b, fmt, numbers, k, share.each, whole=True)
    share.write(b, fmt, target, line, y, size, row, item % runs, b.select(row < n, k, 0), above)


def _flat(fmt: Format, target: Target, dtype: str, share: Share, b: Builder) -> None:
    """The same of rows of whole blocks and words, which are one."""
    x, y, size, above, n, k = _declared(fmt, target, dtype, b)
    item, numbers = b.block() * b.function.threads + b.thread(), n * k
    line, row = Line(b, fmt, x, numbers, share.each, whole=True), b.const(0, "u32")
    share.write(b, fmt, target, line, y, size, row, item, numbers, above, full=True)


def piece(
    b: Builder,
    fmt: Format,
    target: Target,
    line: Line,
    y: Output,
    size: Sizes,
    row: Val,
    start: Val,
    above: Val | None,
) -> None:
    count = size.piece // size.block
    blocks, out = b.ceildiv(line.k, size.block), y.codes(row, line.k)
    sides = [(f, *y.line(f, row, blocks)) for f in y.sides()]
    streams = {f.name: b.local(f.name, "u32", count) for f, _, _ in sides if f.bits < 8}
    whole = size.step % size.block == 0  # a step has whole blocks, or a block whole steps
    each = size.step if whole else size.block
    with b.loop(0, size.piece // each) as i:
        made: list[Entries] = []
        for j in range(each // size.block):
            first = start + i * each + j * size.block
            found = _entries(b, fmt, target, line, size, first, above)
            inside = first < line.k
            stored = {f.name: getattr(found, f.name) for f, _, _ in sides}
            for f, to, _ in sides:
                if f.name in streams:
                    place = i * (each // size.block) + j
                    b.store(streams[f.name], place, b.select(inside, stored[f.name], 0))
                else:
                    with b.when(inside):
                        y.store(to, first // size.block, stored[f.name])
            made.append(found.inside(inside) if fmt.layout.inline else found)
        codes = [Codes(b, fmt, found) for found in made]
        with b.loop(0, each, size.step) as at:
            first = start + i * each + at
            y.store_codes(out, first, y.padded(line.k), line.codes(first, size.step, codes), made)
    for f, to, pitch in sides:
        if f.name in streams:
            y.store_stream(f, to, pitch, start // size.block, streams[f.name])


def _entries(
    b: Builder, fmt: Format, target: Target, line: Line, size: Sizes, first: Val, above: Val | None
) -> Entries:
    if not fmt.scales:
        return Entries()
    return entries(b, fmt, target, line.range(first, size.block), above)


# ------------------------------------------------------------ other blocks
def _tiles(fmt: Format, target: Target, dtype: str, b: Builder) -> None:
    x, y, size = b.buffer("x", dtype), Output.of(b, fmt), sizes(fmt)
    n, k = b.scalar("n"), b.scalar("k")
    rows, columns = fmt.block
    across = b.ceildiv(k, columns) if columns else b.const(1, "u32")
    down, right = b.block() // across, b.block() % across
    top, left = down * rows if rows else b.const(0, "u32"), right * columns
    height = b.minimum(n - top, rows) if rows else n
    last = right.eq(across - 1)

    def each(end: Val, step: int) -> tuple[Val, Val]:
        """How many steps a row of the tile has, and all of its rows."""
        count = b.ceildiv(end - left, step)
        return count, count * height

    def line_of(row: Val) -> Line:
        return Line(b, fmt, b.at(x, row.cast("u64") * k.cast("u64")), k, size.wide)

    found = Range(b, fmt)
    loads, items = each(b.select(last, k, left + columns), size.wide)
    with b.loop(b.thread(), items, b.function.threads) as item:
        line_of(top + item // loads).range_of(left + item % loads * size.wide, found)
    found.share()
    made = entries(b, fmt, target, found, None)
    with b.when(b.thread().eq(0)):
        for f in y.sides():
            y.store(y.line(f, down, across)[0], right, getattr(made, f.name))
    codes = [Codes(b, fmt, made)]
    steps, items = each(b.select(last, y.padded(k), left + columns), size.step)
    with b.loop(b.thread(), items, b.function.threads) as item:
        row, first = top + item // steps, left + item % steps * size.step
        packed = line_of(row).codes(first, size.step, codes)
        y.store_codes(y.codes(row, k), first, y.padded(k), packed, [made])


# ------------------------------------------------------------ the kernel
def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    fmt = require(fmt, "quantize")
    size, columns = sizes(fmt), ["lt", "k", 2**31 - 2**12]
    if not in_rows(fmt):
        rows, cols = fmt.block
        tiles: Formula = ["mul", ["ceildiv", "n", rows] if rows else 1, ["ceildiv", "k", cols] if cols else 1]
        fits: tuple[Formula, ...] = (columns, ["lt", tiles, 2**31])
        if not (rows and cols):
            fits = (*fits, ["lt", ["mul", "n", "k"], 2**32])
        build = partial(_tiles, fmt, target, dtype)
        yield Variant("", threads_of(target.simd, 256), (tiles, 1, 1), build, fits, options)
        return
    threads, chunk = threads_of(target.simd, THREADS), fmt.layout.chunk_elements
    padded: Formula = ["mul", ["ceildiv", "k", chunk], chunk]
    blocks: Formula = ["mul", "n", ["ceildiv", "k", size.block]]
    before, space = None, 0
    if len(fmt.scales) > 1:
        first: Formula = ["min", ["ceildiv", blocks, threads], most_blocks(target)]
        before = Variant("largest", threads, (first, 1, 1), partial(largest_of, fmt, dtype))
        space = 4 * most_blocks(target)

    def variant(suffix: str, each: Formula, build: Callable[[Builder], None], *when: Formula) -> Variant:
        items: Formula = ["mul", "n", each]
        grid, fits = (
            ["ceildiv", items, threads],
            (columns, ["lt", blocks, 2**31], ["lt", items, 2**31], *when),
        )
        return Variant(suffix, threads, (grid, 1, 1), build, fits, options, before=before, workspace=space)

    share = Share.of(fmt, dtype, target)
    if share:
        period, numbers = lcm(size.block, chunk), ["mul", "n", "k"]
        flat: tuple[Formula, ...] = (["eq", ["mod", "k", period], 0], ["lt", numbers, 2**32 - 2**16])
        build = partial(_flat, fmt, target, dtype, share)
        yield variant("flat", ["ceildiv", "k", share.run], build, *flat)
        whole: Formula = ["eq", ["mod", "k", share.each], 0]
        yield variant("shared", share.threads(padded), partial(_shares, fmt, target, dtype, share), whole)
    yield variant("", ["ceildiv", padded, size.piece], partial(_pieces, fmt, target, dtype))


FAMILY = Family(
    (Operand("x", "array", ("n", "k")),),
    Operand("y", "quantised", ("n", "k")),
    variants,
    {"n": (1, 2**32 - 1), "k": (1, 2**31 - 2**12 - 1)},
    accepts=accepts,
)
