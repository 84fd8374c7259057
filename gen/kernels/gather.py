"""gather: y[t, :] = x[indices[t], :], bit for bit; x has n rows of k elements.

indices are int32 on the device, in any order, any of them more than once. One that is negative, or n or more,
gives a row of zeros: nothing is read outside x. `wootz.check_indices(indices, n, "rows of x")` says which.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._moved import ROW_LIMITS, accepts, by_index


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    return by_index(dtype, target, options, to=False)


FAMILY = Family(
    (Operand("x", "array", ("n", "k")), Operand("indices", "array", ("t",), "i32")),
    Operand("y", "array", ("t", "k")),
    variants,
    ROW_LIMITS,
    accepts=accepts,
)
