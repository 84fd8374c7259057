"""The host's checks of groups: what they let pass, and what they say of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from wootz.errors import ArgumentError, DtypeError
from wootz.groups import check_groups, check_indices


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("counts", "offsets", "rows"),
    [((3, 0, 4), (4, 0, 0), 7), ((0, 0), (9, 9), 3), ((2, 2), (2, 0), 4), ((), (), 0), ((5,), (0,), 5)],
)
def test_groups_that_fit(counts: tuple[int, ...], offsets: tuple[int, ...], rows: int) -> None:
    check_groups(ints(*counts), ints(*offsets), rows)


@pytest.mark.parametrize(
    ("counts", "offsets", "message"),
    [
        ((3, -1), (0, 0), r"counts\[1\]: wanted 0 or more; got -1"),
        ((3, 1), (0, -2), r"offsets\[1\]: wanted 0 or more; got -2"),
        ((3, 4), (0, 4), "group 1: rows 4 to 7 exceed the 7 rows of x; give x more rows"),
        ((3, 4), (1, 3), "group"),
        ((2, 3), (2, 0), "groups 1 and 0 overlap: rows 0 to 2 and from 2 on"),
        ((2, 3), (2,), "offsets: wanted one for each of the 2 counts; got 1"),
    ],
)
def test_groups_that_do_not(counts: tuple[int, ...], offsets: tuple[int, ...], message: str) -> None:
    rows = 6 if message == "group" else 7
    with pytest.raises(ArgumentError, match=message):
        check_groups(ints(*counts), ints(*offsets), rows)


def test_sums_past_32_bits() -> None:
    with pytest.raises(ArgumentError, match="group 0: rows 2147483647 to 4294967293 exceed the 8 rows"):
        check_groups(ints(2**31 - 1), ints(2**31 - 1), 8)


def test_indices() -> None:
    check_indices(ints(0, 3, 3, 1), 4)
    for bad in (4, -1):
        with pytest.raises(ArgumentError, match=rf"indices\[1\]: wanted 0 to 3, .* got {bad}"):
            check_indices(ints(0, bad), 4)
    with pytest.raises(ArgumentError, match=r"one of the 4 rows of x; got 9"):
        check_indices(ints(9), 4, "rows of x")


def test_other_arrays() -> None:
    with pytest.raises(DtypeError, match="counts: wanted dtype int32; got int64"):
        check_groups(np.array([1]), ints(0), 4)
    with pytest.raises(ArgumentError, match="indices: wanted one axis"):
        check_indices(np.zeros((2, 2), np.int32), 4)


def test_groups_of_tiles_begin_at_whole_tiles() -> None:
    counts, offsets = np.int32([3, 0, 5]), np.int32([128, 7, 256])
    check_groups(counts, offsets, 300, align=128)
    with pytest.raises(ArgumentError, match=r"offsets\[2\]: wanted a multiple of 128; got 250"):
        check_groups(counts, np.int32([128, 7, 250]), 300, align=128)


@pytest.mark.parametrize("wrong", [None, "7", 7.5, -1, True])
def test_rows_and_counts_are_whole_numbers(wrong: object) -> None:
    with pytest.raises(ArgumentError, match="rows: wanted a whole number from 0"):
        check_groups(np.int32([1]), np.int32([0]), wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="count: wanted a whole number from 1"):
        check_indices(np.int32([0]), wrong)  # type: ignore[arg-type]
