"""Which formats kernels quantise to.

The rules are those of wootz.quantize, bit for bit. NaN takes the element's NaN, and counts as 0 where there
is none. Float32 numbers that are subnormal are taken as the device takes them: one that flushes them sees
zeros.
"""

from __future__ import annotations

from math import isfinite

from ..formats.axes import EXPONENT_RULES, Format
from ._codes import thresholds

MIDDLE_BITS = 29
"""Bits of a midpoint with which float64 decides as exact arithmetic does."""


def refused(fmt: Format) -> str | None:
    """Why kernels cannot quantise to a format, or None."""
    element, zero = fmt.element, fmt.zero
    numbers = [abs(v) for v in element.values() if isfinite(v) and v]
    if element.kind == "exponent" or min(numbers) < 2.0**-42 or max(numbers) > 2.0**90:
        return "kernels quantise to numbers from 2^-42 to 2^90"
    if element.kind == "codebook" and any(_bits(m) > MIDDLE_BITS for m, *_ in thresholds(element)):
        return f"it has codes whose midpoint takes more than {MIDDLE_BITS} bits"
    if not fmt.scales:
        return "it has a zero point without a scale" if zero else None
    if zero and fmt.scales[0].rule == "signed_absmax":
        return "signed_absmax goes without a zero point"
    return _refused_scale(fmt) or (_refused_zero(fmt) if zero else None)


def _refused_scale(fmt: Format) -> str | None:
    first, above = fmt.scales[0], fmt.scales[1:]
    kind, rule = first.element.kind, first.rule
    if kind == "codebook":
        return "its scales are of a codebook"
    if (rule in EXPONENT_RULES) != (kind == "exponent"):
        return f"the rules {', '.join(EXPONENT_RULES)} are for e8m0 scales, and others for others; got {rule}"
    if not above:
        return None
    outer = above[-1]
    plain = outer.element.type == "f32" and outer.rule == "absmax" and outer.op == "multiply"
    if len(above) > 1 or tuple(outer.block) != (0, 0) or not plain:
        return "of scales above the first, one f32 of the whole tensor is taken, by absmax, which multiplies"
    if kind != "float" or rule != "absmax" or fmt.element.max % 1 or fmt.element.max > 2**20:
        return "under a scale of the whole tensor, scales are small floats, by absmax"
    return None


def _refused_zero(fmt: Format) -> str | None:
    zero = fmt.zero
    assert zero is not None
    if fmt.element.kind != "int":
        return "zero points go with integer elements"
    if zero.domain == "code":
        return None if zero.element.kind == "int" else "zero points in the code domain are integers"
    if zero.element.kind != "wide" or fmt.element.min:
        return "zero points in the value domain are wide, with elements from 0 up"
    return None


def _bits(number: float) -> int:
    """Significant bits of a float."""
    whole = abs(number.as_integer_ratio()[0])
    return whole.bit_length() - (whole & -whole).bit_length() + 1 if whole else 0
