"""copy: y[i] = x[i], bit for bit."""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import LOAD_WIDTH, Family, Operand, Variant
from ._map import elementwise


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    yield elementwise(("x",), dtype, target, None, options)


FAMILY = Family(
    (Operand("x", "array", ("n",)),),
    Operand("y", "array", ("n",)),
    variants,
    alias=True,
    flat=True,
    knobs=LOAD_WIDTH,
)
