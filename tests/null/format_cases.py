"""Descriptors for the format tests: from gen.formats.axes by hand, or drawn at random. No test in here."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gen.formats import axes, layout

E2M1 = axes.floating(2, 1)
E4M3 = axes.floating(4, 3)
E5M2 = axes.floating(5, 2)
E8M0 = axes.power_of_two()
F32, F16, BF16 = axes.wide("f32"), axes.wide("f16"), axes.wide("bf16")
PLAIN = (layout.Plane(1),)


def format_of(
    element: axes.Element,
    block: tuple[int, int],
    *levels: tuple[Any, ...],
    zero: axes.Zero | None = None,
    planes: tuple[layout.Plane, ...] | None = None,
    order: tuple[str, ...] = ("codes",),
    unit: int = 0,
    name: str = "case",
) -> dict[str, Any]:
    """A descriptor. levels: (element, rule[, block[, op]]); the first level has the format's block.

    order: what a unit stores; with fields named there, the unit is a multiple of the block's columns.
    """
    scales = tuple(
        axes.Scale(
            level[0],
            axes.Block(*(level[2] if len(level) > 2 else block)),
            level[1],
            level[3] if len(level) > 3 else "multiply",
        )
        for level in levels
    )
    planes = planes or (layout.Plane(element.bits),)
    parts = [
        layout.Part(name, s.element.bits, s.element.type, s.block)
        for name, s in zip(layout.SCALE_FIELDS, scales, strict=False)
    ]
    if zero is not None:
        parts.append(layout.Part("zero", zero.element.bits, zero.element.type, axes.Block(*block)))
    run = max([p.block.cols for p in parts if p.name in order], default=0)
    size = unit or layout.natural_unit(planes, run)
    placed = layout.place(element.bits, size, planes, tuple(parts), order)
    return axes.Format(name, element, axes.Block(*block), scales, zero, placed).descriptor()


def split_half(bits: int) -> tuple[layout.Plane, ...]:
    return (layout.Plane(bits, split=2),)


# ------------------------------------------------------------ random formats
@st.composite
def elements(draw: st.DrawFn) -> axes.Element:
    kind = draw(st.sampled_from(["int", "symmetric", "offset", "float", "codebook"]))
    if kind == "int":
        return axes.integer(draw(st.integers(1, 8)), signed=draw(st.booleans()))
    if kind == "symmetric":
        return axes.integer(draw(st.integers(2, 8)), symmetric=True)
    if kind == "offset":
        bits = draw(st.integers(1, 8))
        return axes.integer(bits, offset=draw(st.integers(0, (1 << bits) - 1)))
    if kind == "float":
        exponent = draw(st.integers(2, 5))
        mantissa = draw(st.integers(0, 7 - exponent))
        return axes.floating(exponent, mantissa, specials=draw(st.sampled_from(["none", "nan", "ieee"])))
    bits = draw(st.integers(1, 5))
    number = st.floats(-8, 8, width=32).filter(lambda v: v == 0 or abs(v) > 1e-3)
    table = draw(st.lists(number, min_size=1 << bits, max_size=1 << bits).filter(any))
    return axes.codebook(table)


def _has_both_signs(element: axes.Element) -> bool:
    values = [v for v in element.values() if v == v]
    return min(values) < 0 < max(values)


@st.composite
def descriptors(draw: st.DrawFn) -> dict[str, Any]:
    """Any format the axes can say, within small blocks."""
    element = draw(elements())
    columns = draw(st.sampled_from([0, 1, 2, 3, 8, 16, 24, 32, 64]))
    rows = draw(st.sampled_from([1, 1, 1, 2, 5, 0]))
    block = (rows, columns)
    scale = draw(st.sampled_from([F32, F16, BF16, E8M0, E4M3, E5M2, axes.integer(6, signed=False)]))
    rules = ["absmax", "floor", "nearest", "ceil", "even"] if scale is E8M0 else ["absmax"]
    zero = None
    if draw(st.booleans()):
        domain = draw(st.sampled_from(["code", "value"]))
        kinds = [F32, F16, BF16, E4M3] + (
            [axes.integer(element.bits, signed=False)] if domain == "code" else []
        )
        stored = draw(st.sampled_from(["value", "minus_one"])) if domain == "code" else "value"
        zero = axes.Zero(draw(st.sampled_from(kinds)), domain, stored)
        rules = ["minmax"]
    levels: list[tuple[Any, ...]] = [(scale, draw(st.sampled_from(rules)))]
    if scale.kind != "wide" and draw(st.booleans()):
        levels.append((draw(st.sampled_from([F32, F16])), "absmax", (0, 0), draw(st.sampled_from(axes.OPS))))
    planes = draw(packings(element.bits))
    inline = rows == 1 and columns >= 8 and draw(st.booleans())
    order = draw(st.permutations(["codes", "scale", *(["zero"] if zero else [])])) if inline else ["codes"]
    return format_of(element, block, *levels, zero=zero, planes=planes, order=tuple(order))


@st.composite
def packings(draw: st.DrawFn, bits: int) -> tuple[layout.Plane, ...]:
    cut = draw(st.integers(0, bits - 1))
    takes = [(0, bits)] if cut == 0 else [(0, cut), (cut, bits - cut)]
    if draw(st.booleans()):
        takes.reverse()
    planes = []
    for start, take in takes:
        order = draw(st.sampled_from(["lsb", "msb"]))
        word = draw(st.sampled_from([8, 16, 32]))
        padded = draw(st.booleans())
        split, over, permutation = 1, 0, ()
        if draw(st.booleans()):
            split, over = draw(st.sampled_from([(2, 0), (2, 16), (4, 32)]))
        elif draw(st.booleans()):
            permutation = tuple(draw(st.permutations(range(8))))
        planes.append(layout.Plane(take, start, order, word, padded, permutation, split, over))
    # A split over the whole unit needs a unit that it divides.
    if any(p.split > 1 and p.over == 0 for p in planes):
        planes = [
            layout.Plane(
                p.take,
                p.start,
                p.order,
                p.word,
                p.padded,
                p.permutation,
                p.split,
                p.over or 32 * (p.split > 1),
            )
            for p in planes
        ]
    return tuple(planes)
