"""As `_quick`, of bf16 numbers under powers of two, two in a word, which arithmetic on pairs rounds to
integers: numbers whose codes are half a word apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import float_bits
from ._numbers import highest
from ._quick import Field, Quick, lines_of

HALF, BOTH = 16, 0x10001
CENTRE = 1.5 * 2.0**7
"""FIXED of a bf16, for integers from -64 to 63."""


@dataclass(frozen=True)
class Pairs:
    """Of a block. places: as those of Quick.words."""

    quick: Quick
    places: Sequence[Sequence[int]]

    @classmethod
    def of(cls, quick: Quick, places: Sequence[Sequence[int]]) -> Pairs | None:
        """None where it is not so."""
        fmt = quick.fmt
        if (
            quick.dtype != "bf16"
            or not quick.target.has("bf16_pairs")
            or not quick.exact
            or fmt.element.bits > 6
        ):
            return None
        if HALF % fmt.element.bits or not (fmt.element.kind == "int" or quick.has_lines(True)):
            return None
        starts = {place[0] for place in places}
        paired = all(start ^ HALF in starts for start in starts)
        return cls(quick, places) if paired and quick.whole(places) else None

    @property
    def b(self) -> Builder:
        return self.quick.b

    @property
    def fmt(self) -> Format:
        return self.quick.fmt

    def words(self, held: Sequence[Val]) -> list[Val]:
        """Words with the codes of the numbers, which two by two are `held`."""
        order = {place[0]: i for i, place in enumerate(self.places)}
        words: list[Val] = []
        for at in range(0, max(order) + 1, 2 * HALF):
            low = [start for start in sorted(order) if at <= start < at + HALF]
            fields = [(self._field(held, order[s], order[s + HALF]), s - at) for s in low]
            words.append(self.quick.total(fields, BOTH))
        return words

    def _field(self, held: Sequence[Val], low: int, high: int) -> Field:
        """The codes of two numbers, half a word apart."""
        first, second = held[low // 2], held[high // 2]
        down = first >> HALF if low % 2 else first & 0xFFFF
        pair = down | (second & 0xFFFF0000 if high % 2 else second << HALF)
        return self._integer(pair) if self.fmt.element.kind == "int" else self._by_lines(pair)

    def _integer(self, pair: Val) -> Field:
        b, element, (line,) = self.b, self.fmt.element, self._lines
        sign = 1 << (element.bits - 1) if element.signed else 0
        ends = [b.const((_bits(CENTRE) + int(end)) * BOTH, "u32") for end in (element.min, highest(element))]
        found = b.min_halves(b.max_halves(b.op("fma_bf16_halves", pair, *line), ends[0]), ends[1])
        return Field(found, (_bits(CENTRE) - sign) * BOTH, flip=sign * BOTH)

    def _by_lines(self, pair: Val) -> Field:
        b, size = self.b, pair & 0x7FFF7FFF
        found = reduce(b.min_halves, [b.op("fma_bf16_halves", size, *line) for line in self._lines])
        over, top = self.quick.over, b.const((_bits(CENTRE) + self.quick.largest) * BOTH, "u32")
        return Field(found if over else b.min_halves(found, top), _bits(CENTRE) * BOTH, pair, over=over)

    @cached_property
    def _lines(self) -> list[tuple[Val, Val]]:
        """(factor, what is added) of pairs."""
        b = self.b
        lines = [(1.0, 0)] if self.fmt.element.kind == "int" else lines_of(self.fmt.element)
        made = []
        for steep, start in lines:
            bits = (self.quick.inverse * steep).bitcast("u32")
            made.append((bits | (bits >> HALF), b.const(_bits(CENTRE + start) * BOTH, "u32")))
        return made


def _bits(number: float) -> int:
    """Of a bf16."""
    return float_bits(number) >> HALF
