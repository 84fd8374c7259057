"""Groups of rows, as the grouped kernels take them: checks that read them on the host.

Kernels read counts, offsets and indices on the device and skip what does not fit, for no call may wait for a
device. `check_groups` and `check_indices` are for the times when it may: they copy a few numbers to the host.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError, DtypeError

__all__ = ["check_groups", "check_indices"]


def check_groups(counts: Any, offsets: Any, rows: int, align: int = 1) -> None:
    """Raises ArgumentError where a group has a negative count or does not lie in `rows` rows, where a group
    that is not empty begins at no multiple of `align`, or where two groups overlap: the message names the
    groups. DtypeError for arrays that are not int32.

    counts, offsets: arrays of one int32 a group, on any device; they are copied, which waits for the device.
    align: 128 for groups whose scales lie in tiles (scaled_grouped_gemm), 1 for others.
    """
    rows, align = whole("rows", rows, 0), whole("align", align, 1)
    number, start = host("counts", counts), host("offsets", offsets)
    if number.shape != start.shape:
        raise ArgumentError(
            f"offsets: wanted one for each of the {number.size} counts; got {start.size}; "
            "give one of both an expert"
        )
    for name, values in (("counts", number), ("offsets", start)):
        if (bad := np.flatnonzero(values < 0)).size:
            raise ArgumentError(f"{name}[{bad[0]}]: wanted 0 or more; got {values[bad[0]]}")
    ends = start.astype(np.int64) + number
    taken = np.flatnonzero(number > 0)
    if (bad := taken[ends[taken] > rows]).size:
        g = bad[0]
        raise ArgumentError(
            f"group {g}: rows {start[g]} to {ends[g] - 1} exceed the {rows} rows of x; "
            "give x more rows, or a smaller offset or count"
        )
    if (bad := taken[start[taken] % align != 0]).size:
        g = bad[0]
        raise ArgumentError(
            f"offsets[{g}]: wanted a multiple of {align}; got {start[g]}: leave rows empty before it"
        )
    order = taken[np.argsort(start[taken], kind="stable")]
    for first, second in pairwise(order):
        if ends[first] > start[second]:
            raise ArgumentError(
                f"groups {first} and {second} overlap: rows {start[first]} to {ends[first] - 1} and "
                f"from {start[second]} on; every row belongs to one group at most"
            )


def check_indices(indices: Any, count: int, what: str = "matrices of the bank") -> None:
    """Raises ArgumentError for an index that is none of `count` things, the matrices of a bank or the rows of
    an array (`what` names them in the message); DtypeError for an array that is not int32. Copies the
    indices, which waits for the device."""
    count = whole("count", count, 1)
    values = host("indices", indices)
    if (bad := np.flatnonzero((values < 0) | (values >= count))).size:
        raise ArgumentError(
            f"indices[{bad[0]}]: wanted 0 to {count - 1}, one of the {count} {what}; got {values[bad[0]]}"
        )


def whole(name: str, value: Any, least: int) -> int:
    """A whole number from `least` on. ArgumentError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ArgumentError(f"{name}: wanted a whole number from {least}; got {value!r}")
    return int(value)


def host(name: str, array: Any, axes: int = 1) -> NDArray[np.int32]:
    """A copy of an array of int32 on the host."""
    here = array.get() if hasattr(array, "get") else array.cpu() if hasattr(array, "cpu") else array
    values = np.asarray(here)
    if values.dtype != np.int32:
        raise DtypeError(f"{name}: wanted dtype int32; got {values.dtype}")
    if values.ndim != axes:
        wanted = "one axis" if axes == 1 else f"{axes} axes"
        raise ArgumentError(f"{name}: wanted {wanted}; got shape {values.shape}")
    return values
