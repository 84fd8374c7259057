"""What a decode functor depends on: how a format's codes become numbers, and what is exact in the type."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from ..formats.axes import Format, Zero
from ..formats.fragment import STEP, Fragment, fragment
from ..manifest.target import Target
from .pairs import Kind, Plan, Question, integer_of, plan

__all__ = ["Weights"]


@dataclass(frozen=True)
class Weights:
    """Everything about one functor that its text depends on. bare, times: as of a Question; lies: where codes
    are in words, if it is not as the format is packed."""

    fmt: Format
    kind: Kind
    target: Target
    name: str
    bare: bool = False
    times: str = ""
    lies: Fragment | None = None

    @property
    def layout(self) -> Fragment:
        """The packed layout."""
        return self.lies or fragment(self.fmt)

    @property
    def question(self) -> Question:
        """What the ways to decode are asked."""
        element, positions = self.fmt.element, self.layout.positions
        return Question(element, positions, self.kind, self.target, self.name, self.bare, self.times)

    @cached_property
    def plan(self) -> Plan:
        """How codes become numbers."""
        return plan(self.question)

    @property
    def entries(self) -> list[int]:
        """The bits of what a table has for each code."""
        values = self.fmt.element.values()
        return [self.kind.bits(math.ldexp(value, -self.plan.exponent)) for value in values]

    @property
    def code_zero(self) -> Zero | None:
        """The zero point that is subtracted from a code's value."""
        zero = self.fmt.zero
        return zero if zero is not None and zero.domain == "code" else None

    @property
    def value_zero(self) -> bool:
        """Whether the zero point is added after scaling."""
        return self.fmt.zero is not None and self.fmt.zero.domain == "value"

    @cached_property
    def zeros(self) -> list[float] | None:
        """All values of a narrow zero point in the code domain."""
        zero = self.code_zero
        if zero is None or zero.element.kind == "wide":
            return None
        return [z + (zero.stored == "minus_one") for z in zero.element.values() if math.isfinite(z)]

    @property
    def zero_fits(self) -> bool:
        """Whether the type has every zero point."""
        zero = self.code_zero
        if zero is None:
            return True
        if self.zeros is None:
            return zero.element.type == self.kind.name and zero.stored == "value"
        return all(map(self.kind.holds, self.zeros))

    @property
    def in_type(self) -> bool:
        """Whether the zero point is subtracted in the type, with one rounding."""
        return self.zero_fits and self.plan.exact and self.plan.exponent == 0

    @cached_property
    def fused(self) -> int | None:
        """What makes the bits of 2^mantissa + offset + zero point of a zero point's bits, by addition: then
        they take the place of the power that integers are decoded with. None where that is not possible."""
        zero, element = self.code_zero, self.fmt.element
        if zero is None or element.kind != "int" or zero.element.kind != "int" or self.zeros is None:
            return None
        power, (_, offset) = 1 << self.kind.mantissa, integer_of(element)
        if element.bits > self.kind.mantissa:
            return None
        if min(self.zeros) + offset < 0 or max(self.zeros) + offset > power:
            return None
        return self.kind.magic + offset - integer_of(zero.element)[1] + (zero.stored == "minus_one")

    @property
    def excess(self) -> int | None:
        """What `placed` has more than a code's value: the power of two whose mantissa takes the code, and the
        offset of codes. None for what is no integer, or has more bits than the mantissa."""
        element = self.fmt.element
        if element.kind != "int" or element.bits > self.kind.mantissa:
            return None
        return (1 << self.kind.mantissa) + integer_of(element)[1]

    @cached_property
    def exact(self) -> bool:
        """Whether `decode` gives the very numbers, zero points subtracted."""
        if not self.plan.exact or self.code_zero is None:
            return self.plan.exact
        if self.zeros is None:
            return False
        values = {v for v in self.fmt.element.values() if math.isfinite(v)}
        steps = {v - z for v in values for z in set(self.zeros)}
        return all(self.kind.holds(math.ldexp(d, -self.plan.exponent)) for d in steps)

    @property
    def out_of_range(self) -> bool:
        """Whether a value less its zero point may be past the type's range."""
        if self.code_zero is None or self.kind.exponent == 8:
            return False
        if self.zeros is None:
            return self.code_zero.element.type != self.kind.name
        return max(map(abs, self.zeros)) >= 2.0 ** (self.kind.bias - 1)

    @property
    def fold_only(self) -> bool:
        """Whether only `decode_folded` serves; see `functor`."""
        rounded = not self.plan.exact and self.fmt.element.kind != "codebook"
        return self.layout.run < STEP or self.value_zero or rounded or self.out_of_range
