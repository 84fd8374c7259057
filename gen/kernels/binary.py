"""binary: y[i] = a[i] op b[i], op one of add, sub, mul, div, min, max.

f32 arithmetic, one rounding to the output type. min and max propagate NaN.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import LOAD_WIDTH, Family, Operand, Variant
from ._map import elementwise


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    op = options["op"]
    yield elementwise(("a", "b"), dtype, target, lambda b, v: b.op(op, *v), options)


_VECTOR = ("n",)
FAMILY = Family(
    (Operand("a", "array", _VECTOR), Operand("b", "array", _VECTOR)),
    Operand("y", "array", _VECTOR),
    variants,
    alias=True,
    flat=True,
    options={"op": ("add", "sub", "mul", "div", "min", "max")},
    knobs=LOAD_WIDTH,
)
