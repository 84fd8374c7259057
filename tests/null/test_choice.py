"""Which variant a problem gets: a table of rules, and what a damaged index says."""

from __future__ import annotations

from typing import Any

import pytest
from wootz.choice import Measured, choose, parse
from wootz.errors import ArtifactError

CARD, OTHER = "card", "another card"


def row(symbol: str, m: int, n: int = 4096, k: int = 4096, device: str = CARD) -> Measured:
    return Measured({"m": m, "n": n, "k": k}, symbol, device)


ROWS = (row("a", 1), row("b", 8), row("c", 32), row("d", 8, 8192, 4096), row("e", 1, device=OTHER))

CASES = {
    # (m, n, k), what takes the problem, device -> symbol and a part of the reason
    "exactly": ((1, 4096, 4096), "abcd", CARD, "a", "tuned: m=1 n=4096 k=4096 on card"),
    "exactly, but its variant does not take it": ((8, 4096, 4096), "acd", CARD, "c", "nearest m, of m=32"),
    "nearest m": ((10, 4096, 4096), "abcd", CARD, "b", "rule: nearest m, of m=8 n=4096 k=4096 on card"),
    "of two as near the lower": ((16, 4096, 4096), "abcd", CARD, "b", "nearest m, of m=8"),
    "above where it is nearer": ((20, 4096, 4096), "abcd", CARD, "c", "nearest m, of m=32"),
    "m at most 4 times as large": ((128, 4096, 4096), "abcd", CARD, "c", "nearest m, of m=32"),
    "m farther": ((129, 4096, 4096), "abcd", CARD, "", "default order"),
    "nearest shape": ((8, 7000, 4096), "abcd", CARD, "d", "rule: nearest shape, of m=8 n=8192 k=4096"),
    "the sum of ratios decides": ((8, 5000, 4096), "abcd", CARD, "b", "nearest shape, of m=8 n=4096"),
    "an extent past a factor of 2": ((8, 4096, 16384), "abcd", CARD, "", "default order"),
    "nothing of the rows takes it": ((1, 4096, 4096), "xyz", CARD, "", "default order"),
    "a device of its own rows": ((1, 4096, 4096), "abcde", OTHER, "e", "on another card"),
    "its own rows alone": ((8, 4096, 4096), "abcd", OTHER, "", "default order"),
    "a device without rows": ((1, 4096, 4096), "abcde", "a third", "a", "on card"),
    "no rows of m": ((0, 4096, 4096), "abcd", CARD, "", "default order"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_rules(case: str) -> None:
    (m, n, k), takes, device, symbol, reason = CASES[case]
    found = choose(ROWS, {"m": m, "n": n, "k": k, "sms": 4, "has_bias": 0}, device, set(takes))
    assert found.symbol == symbol
    assert reason in found.reason


def test_rows_of_other_extents_do_not_speak() -> None:
    assert choose([Measured({"q": 1}, "a", CARD)], {"m": 1}, CARD, {"a"}).symbol == ""
    assert choose([], {"m": 1}, CARD, {"a"}).reason == "default order"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"shape": {"m": 1}, "symbol": "z", "device": CARD}], "measured shape of z, no entry"),
        ([{"shape": {"m": 1}, "symbol": "a"}], "cannot be read: KeyError: 'device'"),
        ([{"shape": [1], "symbol": "a", "device": CARD}], "cannot be read: AttributeError"),
        ([{"shape": {"m": "one"}, "symbol": "a", "device": CARD}], "cannot be read: ValueError"),
        (7, "cannot be read: TypeError"),
    ],
)
def test_a_damaged_index(rows: Any, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        parse(rows, ["a"])


def test_an_index_without_rows() -> None:
    assert parse(None, ["a"]) == ()
