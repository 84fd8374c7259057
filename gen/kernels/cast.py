"""cast: y[i] = x[i] in another type, one rounding to nearest even; NaN stays NaN, overflow is infinity.

y may be the memory of x where both types have the same size.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import PLAIN, Family, Operand, Variant, plain
from ._map import elementwise


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    to = options["out"]
    if dtype == to:
        return f"x has the type {to} already: copy takes it"
    return plain("cast", dtype)


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    yield elementwise(("x",), dtype, target, lambda b, v: v[0], options, options["out"])


FAMILY = Family(
    (Operand("x", "array", ("n",)),),
    Operand("y", "array", ("n",)),
    variants,
    alias=True,
    flat=True,
    options={"out": PLAIN},
    types=lambda dtype, options: {"y": options["out"]},
    accepts=accepts,
)
