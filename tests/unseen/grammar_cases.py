"""Formats of manifests, as YAML data, drawn at random from the grammar. No test in here.

`pool` draws many; `spread` picks few that together show every feature that any of the many shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from gen.formats.axes import Element, Format
from gen.formats.grammar import format_of

Body = dict[str, Any]
COLUMNS = (1, 2, 3, 5, 7, 8, 16, 20, 24, 32, 33, 48, 64, 96, 100)


def short_floats(least: int = 1) -> st.SearchStrategy[str]:
    pairs = [(e, m) for e in range(least, 6) for m in range(7) if e + m <= 7]
    return st.sampled_from([f"e{e}m{m}" for e, m in pairs])


@st.composite
def full_floats(draw: st.DrawFn) -> Body:
    signed = draw(st.booleans())
    exponent = draw(st.integers(1, 6))
    axes: Body = {"exponent": exponent, "mantissa": draw(st.integers(0, 8 - signed - exponent))}
    axes["signed"] = signed
    if draw(st.booleans()):
        axes["bias"] = draw(st.integers(-2, 40))
    if draw(st.booleans()):
        axes["specials"] = draw(st.sampled_from(["none", "nan", "ieee"]))
    return {"float": axes}


@st.composite
def integers(draw: st.DrawFn) -> Any:
    bits = draw(st.integers(1, 8))
    kind = draw(st.sampled_from(["int", "uint", "symmetric", "offset", "middle"]))
    if kind in ("int", "uint"):
        return f"{kind}{bits}"
    if kind == "offset":
        return {"int": bits, "offset": draw(st.integers(0, (1 << bits) - 1))}
    bits = max(bits, 2)
    middle = {"offset": 1 << (bits - 1)} if kind == "middle" else {}
    return {"int": bits, "symmetric": True, **middle}


@st.composite
def codebooks(draw: st.DrawFn) -> Body:
    bits = draw(st.sampled_from([1, 2, 3, 4, 5, 6]))
    number = st.floats(-4, 4, width=32).filter(lambda v: v == 0 or abs(v) > 1e-3)
    table = draw(st.lists(number, min_size=1 << bits, max_size=1 << bits).filter(any))
    return {"codebook": table, "bits": bits}


def elements() -> st.SearchStrategy[Any]:
    return st.one_of(integers(), short_floats(), full_floats(), codebooks())


NARROW = ("e4m3", "e5m2", "e2m3", "e3m3", "e4m0", "int4", "int6", "uint6", "int8", "uint3", "uint7", "uint5")
WIDE = ("f16", "bf16", "f32")
EXPONENT_RULES = ("floor", "nearest", "ceil", "even")


@st.composite
def levels(draw: st.DrawFn, block: Any, first: bool, left: int, zero: bool) -> Any:
    """One scale level, with what scales it."""
    name = draw(st.sampled_from(["e8m0", *WIDE, *NARROW]))
    rule = None
    if zero and first:
        rule = draw(st.sampled_from([None, "minmax"]))
    elif name == "e8m0":
        rule = draw(st.sampled_from([None, *EXPONENT_RULES]))
    elif first:
        rule = draw(st.sampled_from([None, "absmax", "signed_absmax"]))
    level: Body = {"type": name} if rule is None else {"type": name, "rule": rule}
    if not first:
        level["op"] = draw(st.sampled_from(["multiply", "divide"]))
    if left > 1 and draw(st.booleans()):
        level["block"] = draw(outer_blocks(block))
        level["scale"] = draw(levels(level["block"], False, left - 1, zero))
    return level if len(level) > 1 else name


def outer_blocks(block: Any) -> st.SearchStrategy[Any]:
    """Blocks that are made of whole blocks of a finer one."""
    if block == "tensor":
        return st.just("tensor")
    if block == "row":
        return st.sampled_from(["row", "tensor"])
    rows, columns = block if isinstance(block, list) else (1, block)
    times = st.sampled_from([1, 2, 3, 4])
    whole = ["tensor"] if rows > 1 else ["row", "tensor"]
    return st.one_of(
        st.builds(lambda c: [rows, columns * c] if rows > 1 else columns * c, times),
        st.builds(lambda r, c: [rows * r, columns * c], st.sampled_from([2, 3]), times),
        st.sampled_from(whole),
    )


def blocks() -> st.SearchStrategy[Any]:
    column = st.sampled_from(COLUMNS)
    return st.one_of(
        column, column, column, st.sampled_from(["row", "tensor"]),
        st.builds(lambda r, c: [r, c], st.sampled_from([2, 3, 5, 8]), column),
    )  # fmt: skip


@st.composite
def zeros(draw: st.DrawFn, bits: int) -> Any:
    kind = draw(st.sampled_from(["same", "narrow", "wide"]))
    name = {"same": st.just(f"uint{bits}"), "narrow": st.sampled_from(NARROW), "wide": st.sampled_from(WIDE)}
    zero: Body = {"type": draw(name[kind])}
    if draw(st.booleans()):
        zero["domain"] = draw(st.sampled_from(["code", "value"]))
    if kind == "same" and zero.get("domain") != "value" and draw(st.booleans()):
        zero["stored"] = "minus_one"
    return zero if len(zero) > 1 else zero["type"]


@st.composite
def slots(draw: st.DrawFn, runs: tuple[int, ...]) -> Body:
    """Order, words and places of one plane. runs: lengths that a split may divide."""
    axes: Body = {}
    if draw(st.booleans()):
        axes["order"] = draw(st.sampled_from(["lsb", "msb"]))
    if draw(st.booleans()):
        axes["word"] = draw(st.sampled_from([8, 16, 32]))
    if draw(st.integers(0, 3)) == 0:
        axes["padded"] = True
    place = draw(st.sampled_from(["none", "none", "split", "permutation"]))
    if place == "split":
        over = draw(st.sampled_from(runs))
        parts = draw(st.sampled_from([n for n in range(2, 9) if over % n == 0] or [over]))
        axes["split"] = {"parts": parts, "over": over}
    elif place == "permutation":
        axes["permutation"] = draw(st.permutations(range(draw(st.sampled_from([2, 3, 4, 8])))))
    return axes


@st.composite
def packings(draw: st.DrawFn, bits: int, columns: int, inline: bool) -> Body:
    runs = tuple(n for n in (columns, 8, 16, 6) if n > 1 and (not inline or columns % n == 0)) or (
        columns * 2,
    )
    if bits > 1 and draw(st.integers(0, 2)) == 0:
        cut = draw(st.integers(1, bits - 1))
        parts = draw(st.permutations([(0, cut), (cut, bits - cut)]))
        return {"planes": [{"take": take, "from": start, **draw(slots(runs))} for start, take in parts]}
    return draw(slots(runs))


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    """A format's entry, valid but for some contradictions between axes that `pool` leaves out."""
    element = draw(elements())
    bits = format_of("element", {"element": element})[0]
    width = bits.element.bits if bits else 4
    block = draw(blocks())
    body: Body = {"element": element}
    if draw(st.integers(0, 9)) == 0:
        return body
    body["block"] = block
    zero = draw(st.integers(0, 2)) == 0
    body["scale"] = draw(levels(block, True, 3, zero))
    if zero:
        body["zero"] = draw(zeros(width))
    columns = block if isinstance(block, int) else 16
    inline = isinstance(block, int) and draw(st.booleans())
    if draw(st.booleans()):
        body["packing"] = draw(packings(width, columns, inline))
    if inline:
        names = ["codes", "scale", *(["zero"] if zero and draw(st.booleans()) else [])]
        body["storage"] = draw(st.permutations(names))
        if draw(st.booleans()):
            body.setdefault("packing", {})["unit"] = columns * draw(st.sampled_from([1, 2, 3, 5]))
    return body


def pool(count: int) -> list[Body]:
    """`count` drawn bodies that the grammar takes, the same ones each time, no two alike; JSON data."""
    found: dict[str, Body] = {}

    @seed(20260)
    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate], verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(bodies())
    def draw(body: Body) -> None:
        made, problems = format_of("drawn", body)
        if not problems and made is not None and made.layout.chunk_elements <= 1024:
            found.setdefault(json.dumps(body, sort_keys=True), body)

    draw()
    return [json.loads(text) for text in found]


# What a format shows


def features(fmt: Format) -> frozenset[str]:
    """The words for all that is special in a format."""
    found = {f"bits {fmt.element.bits}", f"element {_element(fmt.element)}", f"levels {len(fmt.scales)}"}
    found.add(f"block {_extent(fmt.block.rows)} x {_extent(fmt.block.cols)}")
    for i, scale in enumerate(fmt.scales):
        found |= {f"scale {_element(scale.element)}", f"rule {scale.rule}", f"op {scale.op}"}
        found |= {f"stream {scale.element.bits}"} if scale.element.bits < 8 else set()
        found |= {f"outer block {_extent(scale.block.rows)} x {_extent(scale.block.cols)}"} if i else set()
    if fmt.zero:
        found.add(f"zero {_element(fmt.zero.element)} {fmt.zero.domain} {fmt.zero.stored}")
    for entry in fmt.layout.inline:
        aligned = entry.bit % 32 == fmt.layout.unit_bytes % 4 == 0
        found |= {f"inline {entry.field}", "inline" if aligned else "inline scattered"}
    found |= {f"load {fmt.layout.load}"}
    for plane in fmt.layout.planes:
        found |= {f"order {plane.order}", f"word {plane.word}", f"padded {plane.padded}"}
        found |= {"planes"} if len(fmt.layout.planes) > 1 else set()
        found |= {"permutation"} if plane.permutation else set()
        found |= {"split"} if plane.split > 1 else set()
    return frozenset(found)


def _element(element: Element) -> str:
    if element.kind == "wide":
        return element.type
    if element.kind == "int":
        kind = "two's complement" if element.signed else "offset" if element.offset else "unsigned"
        return f"{kind}{' symmetric' if element.symmetric else ''}"
    if element.kind == "float":
        return f"float {element.specials}{'' if element.signed else ' unsigned'}"
    return element.kind


def _extent(length: int) -> str:
    return "all" if length == 0 else "1" if length == 1 else "odd" if length % 2 else "even"


def spread(candidates: Iterable[Body], count: int, known: Iterable[Format] = ()) -> list[Body]:
    """`count` of the candidates, each the one with most features, then pairs of them, that none before it
    has.

    Features come first, so that any pool is spread over all that it holds."""
    made = ((body, format_of("drawn", body)[0]) for body in candidates)
    left = [(body, features(fmt), pairs(fmt)) for body, fmt in made if fmt]
    shown = frozenset[str]().union(*map(features, known))
    together = frozenset[Pair]().union(*map(pairs, known))
    chosen: list[Body] = []
    while left and len(chosen) < count:
        news = [(len(single - shown), len(double - together)) for _, single, double in left]
        body, single, double = left.pop(news.index(max(news)))
        chosen.append(body)
        shown, together = shown | single, together | double
    return chosen


Pair = tuple[str, str]


def pairs(fmt: Format) -> frozenset[Pair]:
    """Pairs of features: what tends to go wrong together. A feature that is new counts ten times as much."""
    found = sorted(features(fmt))
    weight = [(f"{word} {i}", "") for word in found for i in range(10)]
    return frozenset([*weight, *((a, b) for i, a in enumerate(found) for b in found[i:])])
