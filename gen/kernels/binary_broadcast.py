"""binary_broadcast: y = a op b with NumPy's broadcasting, op as of `binary`: the same bits.

y may be an operand of its own shape.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from . import binary
from ._broadcast import broadcasting


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    op = options["op"]
    yield broadcasting({"a": dtype, "b": dtype}, dtype, target, lambda b, v: b.op(op, *v), options)


FAMILY = Family(
    (Operand("a", "array", ("n",)), Operand("b", "array", ("n",))),
    Operand("y", "array", ("n",)),
    variants,
    alias=True,
    options=binary.FAMILY.options,
    broadcasts=True,
)
