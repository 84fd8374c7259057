"""What a block's numbers say about its scale and zero point."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from ..formats.axes import Format
from ..ir.collective import Tuple, block_reduce, lane_reduce
from ..ir.dsl import Builder, Val, Var
from ..ir.nodes import float_bits
from ._numbers import INFINITY, MAGNITUDE, absolute, as_number, highest


@dataclass
class Range:
    """What a block's numbers say about its scale: the largest magnitude, the first of largest magnitude, or
    both ends; of finite ones. Whether there are infinities, too."""

    b: Builder
    fmt: Format
    infinite: Var = field(init=False)

    def __post_init__(self) -> None:
        b = self.b
        self.infinite = b.var("infinite", 0, "u32")
        if self.kind == "ends":
            self.low, self.high = b.var("low", inf), b.var("high", -inf)
        else:
            self.largest = b.var("largest", 0, "u32")
        if self.kind == "signed":
            self.extreme, self.seen = b.var("extreme", 0.0), b.var("seen", 0, "u32")

    @property
    def kind(self) -> str:
        if self.fmt.zero:
            return "ends"
        return "signed" if self.fmt.scales[0].rule == "signed_absmax" else "magnitude"

    def add(self, value: Val, inside: Val) -> None:
        """inside: whether there is such a number; it is 0 where not."""
        b = self.b
        bits = value.bitcast("u32") & MAGNITUDE
        finite = bits < INFINITY
        self.infinite.set(self.infinite.get() | as_number(b, bits.eq(INFINITY)))
        if self.kind == "ends":
            there, value = bits.ne(INFINITY) & inside, b.select(bits > INFINITY, 0.0, value)
            self.low.set(b.minimum(self.low.get(), b.select(there, value, inf)))
            self.high.set(b.maximum(self.high.get(), b.select(there, value, -inf)))
            return
        magnitude = b.select(finite, bits, 0)
        if self.kind == "signed":
            first = (magnitude > self.largest.get()) | self.seen.get().eq(0)
            self.extreme.set(b.select(first, b.select(finite, value, 0.0), self.extreme.get()))
            self.seen.set(1)
        self.largest.set(b.maximum(self.largest.get(), magnitude))

    def share(self, lanes: int = 0) -> None:
        """Made that of all threads of the block, or of so many neighbouring lanes. Not of signed numbers,
        whose order matters."""
        own = (self.low, self.high) if self.kind == "ends" else (self.largest,)
        held = [v.get() for v in (*own, self.infinite)]
        if lanes:
            found = lane_reduce(self.b, held, self._join, lanes)
        else:
            found = block_reduce(self.b, held, self._join, again=True)
        for variable, value in zip((*own, self.infinite), found):
            variable.set(value)

    def _join(self, x: Tuple, y: Tuple) -> Tuple:
        b, infinite = self.b, x[-1] | y[-1]
        if self.kind == "ends":
            return b.minimum(x[0], y[0]), b.maximum(x[1], y[1]), infinite
        return b.maximum(x[0], y[0]), infinite

    # ---- with infinities and otherwise zeros, the element's own range
    def _alone(self, zeros: Val) -> Val:
        return zeros & self.infinite.get().ne(0)

    def peak(self) -> Val:
        """The bits of the largest magnitude."""
        b = self.b
        if self.kind == "ends":
            low, high = self._found()
            found = b.maximum(absolute(low), absolute(high)).bitcast("u32")
        else:
            found = self.largest.get()
        own = float_bits(self.fmt.element.max)
        return b.select(self._alone(found.eq(0)), b.const(own, "u32"), found)

    def first(self) -> Val:
        """The first of the numbers of largest magnitude."""
        alone = self._alone(self.largest.get().eq(0))
        return self.b.select(alone, self.b.const(self.fmt.element.min, "f32"), self.extreme.get())

    def _found(self) -> tuple[Val, Val]:
        """Both ends; zeros have no sign."""
        b, low, high = self.b, self.low.get(), self.high.get()
        none = low > high
        return b.select(none, 0.0, low + 0.0), b.select(none, 0.0, high + 0.0)

    def ends(self) -> tuple[Val, Val]:
        """The least number and the largest; where the zero point needs it, with 0 between them."""
        b, element, (low, high) = self.b, self.fmt.element, self._found()
        alone = self._alone(low.eq(0.0) & high.eq(0.0))
        low = b.select(alone, b.const(element.min, "f32"), low)
        high = b.select(alone, b.const(highest(element), "f32"), high)
        if self.fmt.zero and self.fmt.zero.domain == "code":
            low, high = b.minimum(low, 0.0), b.maximum(high, 0.0)
        return low, high
