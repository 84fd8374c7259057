"""quantize_activations: x[m, k] in a block-scaled format, as the matrix instructions read it (tiled).

Bit for bit what wootz.quantize and wootz.tile give, by integers where floats would round twice: the scale by
the format's rule, codes to nearest even, saturating, the sign of -0 kept. NaN takes the element's NaN, and
counts as 0 where there is none. Where the format has a scale of the whole tensor it is given (scale1), so
that no pass over x comes first; it must be positive.

A thread takes four blocks of a row, whose scales are one word of a tile. Every byte of the result is written:
codes past k are 0, and so are scales past k and of rows past m. Float32 numbers that are subnormal are taken
as the device takes them: one that flushes them sees zeros.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import EXPONENT_RULES, Format
from ..ir.dsl import Builder
from ..ir.vectors import load_ragged, threads_of
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant
from . import _scaled
from ._codes import Codes
from ._entries import entries
from ._ranges import Range
from ._scaled import COLUMNS, ROWS, RUN, TILE


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    reason = _scaled.refused(fmt)
    if reason or fmt is None:
        return reason
    taken = EXPONENT_RULES if fmt.scales[0].element.kind == "exponent" else ("absmax",)
    if fmt.scales[0].rule not in taken:
        return f"it picks scales by the rules {', '.join(taken)}, not by {fmt.scales[0].rule}"
    return None


# ------------------------------------------------------------ the kernel
def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    of = _scaled.weights(fmt, "quantize_activations")
    assert fmt is not None
    threads, span = threads_of(target.simd, 128), of.block * COLUMNS
    format_ = fmt

    def build(b: Builder) -> None:
        x = b.buffer("x", dtype)
        scale1 = b.buffer("scale1", "f32") if of.globally else None
        codes, tiles = b.buffer("y.codes", "u8", "out"), b.buffer("y.tiles", "u8", "out")
        m, k = b.scalar("m"), b.scalar("k")
        pitch = b.ceildiv(k, RUN) * (RUN * of.bits // 8)
        spans = b.ceildiv(k, RUN) * (RUN // span)
        item = b.block() * threads + b.thread()
        row, at = item // spans, item % spans
        with b.when(row < b.ceildiv(m, ROWS) * ROWS):
            word = b.var("scales", 0, "u32")
            with b.when(row < m):
                above = b.load(scale1, 0).bitcast("u32") if scale1 is not None else None
                line = b.at(x, row.cast("u64") * k.cast("u64"))
                out = b.at(codes, row.cast("u64") * pitch.cast("u64"))
                values = b.local("values", "f32", of.block)
                packed = b.local("packed", "u32", of.block * of.bits // 32)
                with b.loop(0, COLUMNS) as i:
                    first = (at * COLUMNS + i) * of.block
                    load_ragged(b, line, first, k, dtype, values, of.block)
                    found = Range(b, format_)
                    with b.loop(0, of.block, unroll=True) as j:
                        found.add(b.load(values, j), first + j < k)
                    made = entries(b, format_, target, found, above)
                    block = Codes(b, format_, made)
                    with b.loop(0, packed.size, unroll=True) as j:
                        gathered = b.const(0, "u32")
                        for part in range(32 // of.bits):
                            code = block.code(b.load(values, j * (32 // of.bits) + part))
                            gathered = gathered | (code << (part * of.bits))
                        b.store(packed, j, gathered)
                    for start in range(0, packed.size, 4):
                        words = [b.load(packed, start + i) for i in range(min(4, packed.size))]
                        b.store_words(out, first * of.bits // 8 + 4 * start, words)
                    assert made.scale is not None
                    inside = b.select(first < k, made.scale, 0)
                    word.set(word.get() | (inside << (i * 8)))
            place = ((row // ROWS) * spans + at).cast("u64") * TILE
            place = place + ((row % 32) * 16 + row % ROWS // 32 * COLUMNS).cast("u64")
            b.store_words(tiles, place, [word.get()])

    spans: Formula = ["mul", ["ceildiv", "k", RUN], RUN // span]
    items: Formula = ["mul", ["mul", ["ceildiv", "m", ROWS], ROWS], spans]
    fits: tuple[Formula, ...] = (["lt", items, 2**31], ["lt", "k", 2**31])
    yield Variant("", threads, (["ceildiv", items, threads], 1, 1), build, fits, options)


FAMILY = Family(
    (
        Operand("x", "array", ("m", "k")),
        Operand("scale1", "array", (1, 1), "f32", optional=True, handed_on=True),
    ),
    Operand("y", "tiled", ("m", "k")),
    variants,
    accepts=accepts,
)
