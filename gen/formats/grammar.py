"""A format's manifest entry (plain data that the schema has passed) -> axes.

Each axis is parsed on its own, memoised by content, and raises `AxesError` with the path of the wrong part;
`format_of` collects them. The schema has checked types, ranges and words, so contradictions are left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import lcm
from typing import Any, TypeVar

from . import axes
from .axes import AxesError, Block, Element, Format, Scale, Zero
from .layout import MAX_UNIT, SCALE_FIELDS, Layout, Part, Plane, natural_unit, place

T = TypeVar("T")
_MEMO_LIMIT = 1 << 16


def _memoised(parse: Callable[..., T]) -> Callable[..., T]:
    """By content: ten thousand formats share a few hundred elements, scales and packings."""
    seen: dict[str, T | AxesError] = {}

    def wrapper(*args: Any) -> T:
        key = repr(args)
        if key not in seen:
            if len(seen) >= _MEMO_LIMIT:
                seen.clear()
            try:
                seen[key] = parse(*args)
            except AxesError as e:
                seen[key] = e
        found = seen[key]
        if isinstance(found, AxesError):
            raise AxesError(found.message, found.path)
        return found

    return wrapper


_FLOAT = re.compile(r"e(\d)m(\d)")
_INTEGER = re.compile(r"(u?)int(\d)")


@_memoised
def element_of(plain: Any) -> Element:
    """An element from its short or full spelling; the wide types too, where the schema lets them in."""
    if isinstance(plain, str):
        return _short_element(plain)
    if "exponent" in plain:
        return axes.power_of_two()
    if "codebook" in plain:
        return axes.codebook(plain["codebook"], plain.get("bits"))
    if "int" in plain:
        return axes.integer(
            plain["int"], plain.get("signed"), plain.get("offset"), plain.get("symmetric", False)
        )
    f = plain["float"]
    try:
        return axes.floating(
            f["exponent"], f["mantissa"], f.get("bias"), f.get("specials"), f.get("signed", True)
        )
    except AxesError as e:
        raise AxesError(e.message, ("float", *e.path)) from None


def _short_element(text: str) -> Element:
    if text in axes.WIDE_BITS:
        return axes.wide(text)
    if text == "e8m0":
        return axes.power_of_two()
    if match := _FLOAT.fullmatch(text):
        return axes.floating(int(match[1]), int(match[2]))
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise AxesError(f"{text!r} is no element")
    return axes.integer(int(match[2]), signed=not match[1])


def block_of(plain: Any) -> Block:
    """A block from n, [rows, cols], row or tensor."""
    if isinstance(plain, int):
        return Block(1, plain)
    if isinstance(plain, str):
        return Block(1, 0) if plain == "row" else Block(0, 0)
    return Block(*plain)


def _at(step: str | int, parse: Callable[..., T], *args: Any) -> T:
    """Run a parser; its errors gain a step of path."""
    try:
        return parse(*args)
    except AxesError as e:
        raise AxesError(e.message, (step, *e.path)) from None


def _default_rule(element: Element, zero: bool) -> str:
    if zero:
        return "minmax"
    return "floor" if element.kind == "exponent" else "absmax"


@_memoised
def scales_of(plain: Any, block: tuple[int, int], zero: bool) -> tuple[Scale, ...]:
    """The scale levels, innermost first. `zero`: whether the format has a zero point."""
    levels: list[Scale] = []
    path: list[str] = []
    covered = Block(*block)
    while plain is not None and plain != "none":
        level = {"type": plain} if isinstance(plain, str) else plain
        if len(levels) == axes.MAX_LEVELS:
            raise AxesError(f"more than {axes.MAX_LEVELS} scale levels", path)
        try:
            levels.append(_level(level, covered, first=not levels, zero=zero and not levels))
        except AxesError as e:
            raise AxesError(e.message, (*path, *e.path)) from None
        if "block" in level:
            outer = block_of(level["block"])
            if not covered.nests_in(outer):
                raise AxesError(
                    f"{_text(outer)} is not made of whole blocks of the level below, {_text(covered)}",
                    (*path, "block"),
                )
            covered = outer
        plain = level.get("scale")
        path.append("scale")
    return tuple(levels)


def _level(level: dict[str, Any], block: Block, first: bool, zero: bool) -> Scale:
    short = level["type"]
    element = _at("type", element_of, short)
    rule, op = level.get("rule", _default_rule(element, zero)), level.get("op", "multiply")
    if first and op != "multiply":
        raise AxesError("the first level multiplies; divide is for the levels above it", ["op"])
    if (rule == "minmax") != zero:
        what = "a format with a zero point needs rule minmax" if zero else "minmax needs a zero point"
        raise AxesError(what if first else "minmax is for the first level", ["rule"])
    powers = element.kind == "exponent"
    if powers and rule not in (*axes.EXPONENT_RULES, "minmax"):
        raise AxesError(f"{rule} is not for powers of two; use {', '.join(axes.EXPONENT_RULES)}", ["rule"])
    if not powers and rule in axes.EXPONENT_RULES:
        raise AxesError(f"{rule} rounds an exponent; {short} takes absmax or signed_absmax", ["rule"])
    if rule == "signed_absmax":
        if not first:
            raise AxesError("signed_absmax is for the first level", ["rule"])
        if element.kind != "wide" and element.min >= 0:
            raise AxesError(f"signed_absmax makes negative scales, and {short} has no sign", ["rule"])
    elif element.kind != "wide" and not any(v > 0 for v in element.values()):
        raise AxesError(f"{rule} makes positive scales, and {short} has no positive value", ["type"])
    return Scale(element, block, rule, op)


def _text(block: Block) -> str:
    names = {(1, 0): "row", (0, 0): "tensor"}
    return names.get((block.rows, block.cols), f"{block.rows}x{block.cols}")


@_memoised
def zero_of(plain: Any) -> Zero | None:
    """The zero point, or None."""
    if plain is None or plain == "none":
        return None
    full = {"type": plain} if isinstance(plain, str) else plain
    element = _at("type", element_of, full["type"])
    if element.kind == "exponent":
        raise AxesError("e8m0 has no sign and no zero; it is for scales", ["type"])
    domain = full.get("domain", "value" if element.kind == "wide" else "code")
    stored = full.get("stored", "value")
    if stored == "minus_one" and (element.kind != "int" or domain != "code"):
        raise AxesError("minus_one is for integer zeros in the code domain", ["stored"])
    return Zero(element, domain, stored)


@_memoised
def planes_of(plain: dict[str, Any], bits: int) -> tuple[Plane, ...]:
    """The planes of a packing for codes of `bits` bits; one plane where none are given."""
    if "planes" not in plain:
        return (_plane({**plain, "take": bits, "from": 0}),)
    stray = [axis for axis in plain if axis not in ("planes", "unit")]
    if stray:
        raise AxesError(f"with planes, {stray[0]} is an axis of each plane", [stray[0]])
    planes = tuple(_at("planes", _at, i, _plane, p) for i, p in enumerate(plain["planes"]))
    taken = sorted(b for p in planes for b in range(p.start, p.start + p.take))
    if taken != list(range(bits)):
        raise AxesError(
            f"the planes take bits {taken} of a {bits}-bit code; each of {list(range(bits))} is wanted once",
            ["planes"],
        )
    return planes


def _plane(plain: dict[str, Any]) -> Plane:
    permutation = tuple(plain.get("permutation", ()))
    if permutation and sorted(permutation) != list(range(len(permutation))):
        raise AxesError(
            f"is not a permutation: it must hold each of 0 to {len(permutation) - 1} once", ["permutation"]
        )
    if permutation and "split" in plain:
        raise AxesError("split and permutation are two spellings of one thing; give one", ["split"])
    parts, over = _split(plain.get("split", 1))
    return Plane(
        plain["take"],
        plain["from"],
        plain.get("order", "lsb"),
        plain.get("word", 8),
        plain.get("padded", False),
        permutation,
        parts,
        over,
    )


def _split(plain: Any) -> tuple[int, int]:
    if isinstance(plain, dict):
        parts, over = plain["parts"], plain.get("over", 0)
        if over % parts:
            raise AxesError(f"{over} elements do not split into {parts} equal parts", ["split", "over"])
        return parts, over
    return (2, 0) if plain == "half" else (int(plain), 0)


def order_of(plain: Any, parts: Sequence[Part]) -> tuple[str, ...]:
    """What a unit stores, in byte order: ("codes",) for separate storage."""
    if plain is None or plain == "separate":
        return ("codes",)
    known = {p.name: p for p in parts}
    for i, name in enumerate(plain):
        if name in plain[:i]:
            raise AxesError(f"{name} is stored twice", ["storage", i])
        if name == "codes":
            continue
        if name not in known:
            raise AxesError(f"this format has no {name}", ["storage", i])
        if not known[name].block.along_k:
            raise AxesError(
                f"{name} covers {_text(known[name].block)}, which no unit of one row can hold; "
                "leave it out of the list to store it separately",
                ["storage", i],
            )
    if "codes" not in plain:
        raise AxesError("the list leaves out codes", ["storage"])
    return tuple(plain)


def unit_of(
    given: int | None, planes: tuple[Plane, ...], order: tuple[str, ...], parts: Sequence[Part]
) -> int:
    """Elements of a unit, checked against everything that repeats inside it."""
    inline = lcm(*(p.block.cols for p in parts if p.name in order), 1)
    tables = [(lcm(len(p.permutation) or 1, p.over or 1), p) for p in planes]
    splits_unit = any(p.split > 1 and not p.over for p in planes)
    if given is not None:
        unit = given
    elif len(order) > 1:
        unit = lcm(inline, *(t for t, _ in tables))
    elif splits_unit:
        unit = next((p.block.cols for p in parts if p.block.along_k), 0)
        if not unit:
            raise AxesError(
                "split needs a run: give packing.unit, or split: {parts, over}", ["packing", "split"]
            )
    else:
        unit = natural_unit(planes, 0)
    if unit > MAX_UNIT:
        raise AxesError(
            f"the unit is {unit} elements, more than {MAX_UNIT}", ["storage" if len(order) > 1 else "packing"]
        )
    if unit % inline:
        raise AxesError(
            f"unit {unit} is not a multiple of the interleaved block, {inline}", ["packing", "unit"]
        )
    for run, plane in tables:
        if unit % run:
            raise AxesError(
                f"unit {unit} is not a multiple of {run}, where the permutation or split repeats", ["packing"]
            )
        if (plane.over or unit) % plane.split:
            raise AxesError(
                f"{plane.over or unit} elements do not split into {plane.split} parts", ["packing"]
            )
    return unit


def format_of(name: str, body: dict[str, Any]) -> tuple[Format | None, list[AxesError]]:
    """The format, or None and everything that contradicts in it."""
    errors: list[AxesError] = []

    def attempt(axis: str, parse: Callable[..., T], *args: Any) -> T | None:
        try:
            return _at(axis, parse, *args) if axis else parse(*args)
        except AxesError as e:
            errors.append(e)
            return None

    element = attempt("element", _code_element, body["element"])
    block = block_of(body.get("block", "row"))
    zero = attempt("zero", zero_of, body.get("zero"))
    has_zero = body.get("zero", "none") != "none"
    scales = attempt("scale", scales_of, body.get("scale"), tuple(block), has_zero) or ()
    planes = element and attempt("packing", planes_of, body.get("packing", {}), element.bits)
    if errors or element is None or planes is None:
        return None, errors
    attempt("", _agree, element, scales, zero)
    layout = attempt("", _layout, element, planes, block, scales, zero, body)
    if errors or layout is None:
        return None, errors
    return Format(name, element, block, scales, zero, layout), []


def errors_in(axes_given: dict[str, Any]) -> list[AxesError]:
    """What contradicts inside single axes, for a format of which the schema let only these axes pass."""
    errors: list[AxesError] = []
    for axis, parse in (("element", _code_element), ("zero", zero_of)):
        try:
            if axis in axes_given:
                _at(axis, parse, axes_given[axis])
        except AxesError as e:
            errors.append(e)
    return errors


def _code_element(plain: Any) -> Element:
    element = element_of(plain)
    if element.kind == "exponent":
        raise AxesError("e8m0 has no sign and no zero; it is for scales")
    return element


def _agree(element: Element, scales: tuple[Scale, ...], zero: Zero | None) -> None:
    if zero and not scales:
        raise AxesError("a zero point needs a scale", ["zero"])
    if (
        scales
        and scales[0].rule == "signed_absmax"
        and (element.kind != "int" or element.symmetric or element.min >= 0)
    ):
        raise AxesError(
            "signed_absmax is for integers with an unpaired most negative value, not symmetric ones",
            ["scale", "rule"],
        )


def _layout(
    element: Element,
    planes: tuple[Plane, ...],
    block: Block,
    scales: tuple[Scale, ...],
    zero: Zero | None,
    body: dict[str, Any],
) -> Layout:
    parts = [Part(SCALE_FIELDS[i], s.element.bits, s.element.type, s.block) for i, s in enumerate(scales)]
    if zero:
        parts.append(Part("zero", zero.element.bits, zero.element.type, block))
    order = order_of(body.get("storage"), parts)
    unit = unit_of(body.get("packing", {}).get("unit"), planes, order, parts)
    layout = place(element.bits, unit, planes, tuple(parts), order)
    if layout.period > MAX_UNIT:
        raise AxesError(
            f"a unit of {unit} elements in {layout.unit_bytes} bytes repeats at a whole 32-bit word every "
            f"{layout.period} elements, more than {MAX_UNIT}: choose a unit of 4 bytes' multiple",
            ["storage" if len(order) > 1 else "packing"],
        )
    return layout
