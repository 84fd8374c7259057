"""where: y = a where the condition holds, else b, with NumPy's broadcasting. condition: bools.

Numbers are handed on as they are, NaN as NaN. y may be a or b.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._broadcast import broadcasting


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    operands = {"condition": "u8", "a": dtype, "b": dtype}
    yield broadcasting(operands, dtype, target, lambda b, v: b.select(*v), options)


FAMILY = Family(
    (
        Operand("condition", "array", ("n",), dtype="bool"),
        Operand("a", "array", ("n",)),
        Operand("b", "array", ("n",)),
    ),
    Operand("y", "array", ("n",)),
    variants,
    alias=True,
    broadcasts=True,
)
