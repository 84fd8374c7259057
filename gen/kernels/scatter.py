"""scatter: y[indices[t], :] = x[t, :], bit for bit, in place: y has n rows of k elements, and those that no
index names keep what they hold.

indices are int32 on the device. One that is negative, or n or more, is skipped: nothing is written outside y.
Where several name one row, each of its elements comes from one of theirs, and which is not said.
`wootz.check_indices(indices, n, "rows of y")` says which are out of range.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._moved import ROW_LIMITS, accepts, by_index


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    return by_index(dtype, target, options, to=True)


_Y = Operand("y", "array", ("n", "k"), updated=True)

FAMILY = Family(
    (Operand("x", "array", ("t", "k")), Operand("indices", "array", ("t",), "i32"), _Y),
    _Y,
    variants,
    ROW_LIMITS,
    accepts=accepts,
)
