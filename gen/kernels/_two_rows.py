"""Decoders for lanes that hold two rows of weights, g and g + 8: both rows' scales at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..formats.layout import SCALE_FIELDS
from ..lower.functor import Weights
from ..lower.pairs import table_text


def two_rows(weights: Weights) -> str:
    """A decoder that has the scales of two rows, and for a table the bits of each code's number."""
    name, lines = f"{weights.name}_rows", [*_levels(weights)]
    numbers = ""
    if looked_up(weights):
        bits = [f"0x{entry:04x}" for entry in weights.entries]
        numbers = table_text(f"{name}_numbers", "uint16_t", bits)
        lines.append(f"static WOOTZ_FN uint32_t number(uint32_t code) {{ return {name}_numbers[code]; }}")
    return numbers + struct(name, weights.name, lines)


def looked_up(weights: Weights) -> bool:
    """Whether codes are to be looked up two at a time: in registers that takes more instructions."""
    element, layout = weights.fmt.element, weights.layout
    plain = layout.bits == 4 and layout.plain and weights.code_zero is None
    return element.kind == "codebook" and plain and not weights.fold_only


def struct(name: str, base: str, lines: Iterable[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"struct {name} : {base} {{\n{body}}};\n"


def _levels(weights: Weights) -> Iterator[str]:
    """Scales of E4M3 by the conversion instruction, two rows at once; others one by one."""
    yield "static WOOTZ_FN void levels(const uint8_t* sides, const float* tensor, int g, int j,"
    yield "                            float (&to)[2]) {"
    layout, scales = weights.layout, weights.fmt.scales
    if converts(weights):
        offset = layout.sides[0].offset - layout.code_bytes
        yield f"    const uint8_t* from = sides + {offset} + at(g, j, 0);"
        yield "    uint32_t first, second;"
        yield "    fragment::convert_e4m3(first, second, *reinterpret_cast<const uint16_t*>(from));"
        rest = [f" {'/' if level.op == 'divide' else '*'} tensor[{i}]" for i, level in enumerate(scales[1:])]
        for half, pair in enumerate(("first", "second")):
            yield f"    to[{half}] = fragment::half_f32({pair}){''.join(rest)};"
    else:
        for half in (0, 1):
            yield f"    to[{half}] = level(sides, tensor, g, j, {half});"
    yield "}"


def converts(weights: Weights) -> bool:
    """Whether the first scale is an E4M3, and all others are one per tensor."""
    layout, scales = weights.layout, weights.fmt.scales
    if not scales or not weights.target.has("fp8_convert") or layout.tensors != SCALE_FIELDS[1 : len(scales)]:
        return False
    e = scales[0].element
    axes = (e.kind, e.exponent, e.mantissa, e.bias, e.specials, e.signed)
    return axes == ("float", 4, 3, 7, "nan", True)
