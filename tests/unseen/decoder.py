"""A second decoder of quantised tensors, bit by bit and element by element, from gen.formats and raw bytes.

It shares no code with wootz.formats but the fused multiply-add, so that a mistake in the packer cannot
hide in the reference that the packer's own module makes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wootz.formats.bits import fma32

from gen.formats.axes import Block, Element, Format

F32 = np.float32


def decode(fmt: Format, fields: dict[str, Any], shape: tuple[int, int]) -> NDArray[np.float32]:
    """float32 [N, K] of the arrays of a QuantizedTensor."""
    n, k = shape
    rows = [int.from_bytes(np.asarray(row).tobytes(), "little") for row in fields["codes"]]
    out = np.empty(shape, F32)
    with np.errstate(all="ignore"):
        for r in range(n):
            for c in range(k):
                out[r, c] = _element(fmt, fields, rows[r], r, c)
    return out


def _element(fmt: Format, fields: dict[str, Any], row: int, r: int, c: int) -> Any:
    unit, place = divmod(c, fmt.layout.unit)
    base = 8 * unit * fmt.layout.unit_bytes
    code = _bits(row, [base + p for p in fmt.layout.positions[place]])
    value = F32(fmt.element.values()[code])
    scale = None
    for i, level in enumerate(fmt.scales):
        this = _entry(fmt, fields, f"scale{i or ''}", level.element, level.block, row, r, c)
        scale = this if scale is None else scale / this if level.op == "divide" else scale * this
    if fmt.zero is None:
        return value if scale is None else value * scale
    zero = _entry(fmt, fields, "zero", fmt.zero.element, fmt.block, row, r, c)
    zero = zero + F32(1) if fmt.zero.stored == "minus_one" else zero
    if fmt.zero.domain == "value":
        return fma32(*(np.full(1, v, F32) for v in (value, scale, zero)))[0]
    return (value - zero) * scale


def _entry(
    fmt: Format, fields: dict[str, Any], name: str, element: Element, block: Block, row: int, r: int, c: int
) -> Any:
    layout = fmt.layout
    for inline in layout.inline:
        if inline.field == name:
            unit, place = divmod(c, layout.unit)
            start = 8 * unit * layout.unit_bytes + inline.bit + place // block.cols * inline.bits
            return _number(element, _bits(row, range(start, start + inline.bits)))
    line = fields[name][r // block.rows if block.rows else 0]
    index = c // block.cols if block.cols else 0
    stream = int.from_bytes(np.asarray(line).tobytes(), "little")
    return _number(element, stream >> index * element.bits & ((1 << element.bits) - 1))


def _number(element: Element, bits: int) -> Any:
    if element.kind != "wide":
        return F32(element.values()[bits])
    if element.type == "bf16":
        bits <<= 16
    kind = np.float16 if element.type == "f16" else F32
    return F32(np.array([bits], np.uint16 if element.type == "f16" else np.uint32).view(kind)[0])


def _bits(row: int, positions: Sequence[int]) -> int:
    return sum((row >> p & 1) << i for i, p in enumerate(positions))


def same(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    """Bit for bit, any NaN like any other."""
    return a.shape == b.shape and bool(
        ((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all()
    )


def width_of(fmt: Format) -> int:
    """Columns that show a format: two blocks of every level or two chunks, not too many, and a bit."""
    columns = [level.block.cols for level in fmt.scales] or [fmt.block.cols]
    return min(2 * math.lcm(*(c or 1 for c in columns)), 2 * fmt.layout.chunk_elements, 300) + 3
