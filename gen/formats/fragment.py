"""The packed layout of a format: codes where tensor cores want them, scales and zero points beside them.

A matrix [N, K] is units of 16 rows x `columns` k, ordered [ceil(N / 16)][ceil(K / columns)], each
`unit_bytes` bytes in one piece. In a unit, lane l of 32 (g = l / 4, t = l % 4) holds pairs of codes; pair
4 * s + r is row g + 8 * (r & 1), k = 16 * s + 2 * t + 8 * (r >> 1) and k + 1: register r of the lane's
operand A of an m16n8k16 product, for step s. Both codes of a pair lie alike, the first in the low half of
each 32-bit word, the second in the high half; `positions` says where. Word 4 * i + c of lane l is at byte
(32 * i + l) * 16 + 4 * c.

Behind the codes lie the sides: every scale level that is not one for the whole tensor, then the zero point,
each [g][run][row half], padded to 16 bytes. A run is the longest stretch of k, a power of two that divides a
unit, over which nothing of that changes. Where K ends inside a unit the codes are 0 and the last scales
repeat; rows past N repeat the last row's scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd
from typing import Any

from .axes import Block, Element, Format
from .layout import SCALE_FIELDS

ROWS, LANES, STEP = 16, 32, 16
PERIOD = 16
"""Pairs after which `positions` repeat, a whole word later: 4 steps."""
_TYPES = {"f16": "f16", "bf16": "u16", "f32": "f32", "": "u8"}


@dataclass(frozen=True)
class Side:
    """One field of the sides: entries of `bytes` bytes at byte `offset` of the unit. type: as of a field."""

    name: str
    element: Element
    block: Block
    type: str
    bytes: int
    offset: int

    def record(self) -> dict[str, Any]:
        return {"name": self.name, "bytes": self.bytes, "offset": self.offset, "type": self.type}


@dataclass(frozen=True)
class Fragment:
    """The packed layout of one format. positions: for each of PERIOD pairs the places of its code's bits, as
    bits of the stream that the low halves of the lane's words make."""

    bits: int
    columns: int
    run: int
    positions: tuple[tuple[int, ...], ...]
    sides: tuple[Side, ...]
    tensors: tuple[str, ...]

    @property
    def plain(self) -> bool:
        """Whether the codes are one stream, lowest bit first."""
        return self.positions == stream(self.bits)

    @property
    def words(self) -> int:
        """32-bit words of codes a lane."""
        return self.columns * self.bits // 64

    @property
    def code_bytes(self) -> int:
        return self.words * 4 * LANES

    @property
    def runs(self) -> int:
        return self.columns // self.run

    @property
    def steps(self) -> int:
        return self.columns // STEP

    @cached_property
    def unit_bytes(self) -> int:
        return self.code_bytes + sum(_padded(s.bytes * ROWS * self.runs) for s in self.sides)

    def record(self) -> dict[str, Any]:
        """The layout as JSON data: `positions` only where the codes are no plain stream."""
        found: dict[str, Any] = {
            "unit_k": self.columns,
            "run": self.run,
            "unit_bytes": self.unit_bytes,
            "bits": self.bits,
        }
        if not self.plain:
            found["positions"] = [list(p) for p in self.positions]
        return {**found, "sides": [s.record() for s in self.sides], "tensors": list(self.tensors)}


def stream(bits: int) -> tuple[tuple[int, ...], ...]:
    """The positions of codes one after another, lowest bit first."""
    return tuple(tuple(range(p * bits, (p + 1) * bits)) for p in range(PERIOD))


def places(element: Element) -> tuple[tuple[int, ...], ...]:
    """Where the bits of an element's codes go: a stream, but where a decoder gains by another order."""
    if (element.kind, element.exponent, element.mantissa, element.signed) == ("float", 2, 1, True):
        # Three of four codes have sign and magnitude where a shift by 0, 3 or 6 and one mask make a bf16 of
        # them; the fourth takes what is left.
        step = ((6, 7, 8, 15), (3, 4, 5, 12), (0, 1, 2, 9), (10, 11, 13, 14))
        return tuple(tuple(16 * s + p for p in place) for s in range(PERIOD // 4) for place in step)
    return stream(element.bits)


def _padded(size: int) -> int:
    return -(-size // 16) * 16


@lru_cache(maxsize=512)
def fragment(fmt: Format) -> Fragment:
    """The packed layout of a format. Every format has one."""
    bits = fmt.element.bits
    columns = 128 if bits in (6, 8) else 256  # whole vectors of 16 bytes a lane, and no more than it can hold
    levels = [(n, s.element, s.block) for n, s in zip(SCALE_FIELDS, fmt.scales, strict=False)]
    tensors = tuple(name for name, _, block in levels if tuple(block) == (0, 0))
    parts = [level for level in levels if level[0] not in tensors]
    if fmt.zero is not None:
        parts.append(("zero", fmt.zero.element, fmt.block))
    run = gcd(columns, *(block.cols for _, _, block in parts))
    offset, sides = columns * bits // 64 * 4 * LANES, []
    for name, element, block in parts:
        size = max(element.bits, 8) // 8
        sides.append(Side(name, element, block, _TYPES[element.type], size, offset))
        offset += _padded(size * ROWS * (columns // run))
    return Fragment(bits, columns, run, places(fmt.element), tuple(sides), tensors)
