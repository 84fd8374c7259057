"""compare: y = a op b as bools, op one of lt, le, gt, ge, eq, ne, with NumPy's broadcasting.

NaN is unequal to everything, itself included, and neither less nor greater.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._broadcast import broadcasting


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    op = options["op"]
    yield broadcasting({"a": dtype, "b": dtype}, dtype, target, lambda b, v: b.op(op, *v), options, "u8")


FAMILY = Family(
    (Operand("a", "array", ("n",)), Operand("b", "array", ("n",))),
    Operand("y", "array", ("n",), dtype="bool"),
    variants,
    options={"op": ("lt", "le", "gt", "ge", "eq", "ne")},
    broadcasts=True,
)
