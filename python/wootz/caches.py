"""Caches of keys and values: checks of lengths and block tables that read them on the host.

Kernels read both on the device and leave out what leads nowhere, for no call may wait for a device.
`check_lengths` and `check_block_table` are for the times when it may: they copy a few numbers to the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError
from .groups import host, whole

__all__ = ["check_block_table", "check_lengths"]


def check_lengths(lengths: Any, room: int, new: int = 0) -> None:
    """Raises ArgumentError for a length (or position) below 0, or with which `new` tokens more exceed `room`;
    DtypeError for an array that is not int32. Copies the lengths, which waits for the device."""
    _lengths(lengths, whole("room", room, 0), whole("new", new, 0))


def check_block_table(block_table: Any, lengths: Any, pages: int, page: int, new: int = 0) -> None:
    """Raises ArgumentError as check_lengths does, the room being all pages of a row; and for a token, new
    ones included, whose page is none of the cache's `pages` pages of `page` tokens. Entries behind the last
    token are not looked at. DtypeError for arrays that are not int32."""
    pages, page, new = whole("pages", pages, 0), whole("page", page, 1), whole("new", new, 0)
    table = host("block_table", block_table, 2)
    counts = _lengths(lengths, table.shape[1] * page, new)
    if len(counts) != len(table):
        raise ArgumentError(
            f"block_table: wanted a row for each of the {len(counts)} lengths; got {len(table)}"
        )
    used = np.arange(table.shape[1])[None, :] * page < counts[:, None] + new
    if (bad := np.argwhere(used & ((table < 0) | (table >= pages)))).size:
        entry, block = bad[0]
        raise ArgumentError(
            f"block_table[{entry}, {block}]: wanted one of the cache's {pages} pages, 0 to {pages - 1}; "
            f"got {table[entry, block]}: its tokens are left out"
        )


def _lengths(lengths: Any, room: int, new: int) -> NDArray[np.int64]:
    counts = host("lengths", lengths, 1).astype(np.int64)
    if (bad := np.flatnonzero((counts < 0) | (counts > room - new))).size:
        why = f", for there is room for {room} tokens and {new} are new" if new else ""
        raise ArgumentError(f"lengths[{bad[0]}]: wanted 0 to {room - new}{why}; got {counts[bad[0]]}")
    return counts
