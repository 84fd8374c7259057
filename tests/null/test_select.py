"""Which targets run on which device, best first: the whole table, and the rules one by one."""

from __future__ import annotations

from typing import Any

import pytest
from wootz.select import Device, parse_version, ptx_version, rank


def row(key: str, major: int, minor: int, suffix: str = "", **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "backend": "cuda",
        "capability": [major, minor],
        "suffix": suffix,
        "extension": "cubin",
        **more,
    }


# Names are words, so that a rule that reads names cannot pass.
ROWS = [
    {"key": "host", "backend": "cpu"},
    row("seven-five", 7, 5),
    row("eight", 8, 0),
    row("eight-six", 8, 6),
    row("eight-nine", 8, 9),
    row("hopper", 9, 0, "a"),
    row("hopper-plain", 9, 0),
    row("ten", 10, 0, "a"),
    row("ten-family", 10, 0, "f"),
    row("ten-three", 10, 3, "a"),
    row("ten-three-family", 10, 3, "f"),
    row("twelve", 12, 0, "a"),
    row("twelve-family", 12, 0, "f"),
    row("text-eight", 8, 0, extension="ptx", isa=["7.0"]),
    row("text-nine", 9, 0, extension="ptx", isa=["9.0"]),
]

TEXT = ["text-nine", "text-eight"]
TABLE = {
    (7, 0): [],
    (7, 5): ["seven-five"],
    (8, 0): ["eight", "text-eight"],
    (8, 6): ["eight-six", "eight", "text-eight"],
    (8, 7): ["eight-six", "eight", "text-eight"],
    (8, 9): ["eight-nine", "eight-six", "eight", "text-eight"],
    (9, 0): ["hopper", "hopper-plain", *TEXT],
    (10, 0): ["ten", "ten-family", *TEXT],
    (10, 3): ["ten-three", "ten-three-family", "ten-family", *TEXT],
    (11, 0): TEXT,
    (12, 0): ["twelve", "twelve-family", *TEXT],
    (12, 1): ["twelve-family", *TEXT],
    (13, 0): TEXT,
}


def device(major: int, minor: int, isa: tuple[int, int] = (9, 0)) -> Device:
    return Device("cuda", 0, "a device", (major, minor), isa)


def keys(rows: list[dict[str, Any]], where: Device) -> list[str]:
    return [each["key"] for each in rank(rows, where)]


@pytest.mark.parametrize("capability", TABLE)
def test_table(capability: tuple[int, int]) -> None:
    assert keys(ROWS, device(*capability)) == TABLE[capability]
    assert keys(ROWS[::-1], device(*capability)) == TABLE[capability], "the order of the rows must not matter"


def test_text_needs_a_driver_that_reads_it() -> None:
    assert keys(ROWS, device(13, 0, isa=(8, 8))) == ["text-eight"]
    assert keys(ROWS, device(13, 0, isa=(6, 9))) == []


def test_text_of_one_chip_or_family_stays_there() -> None:
    rows = [row("chip", 9, 0, "a", extension="ptx"), row("family", 10, 0, "f", extension="ptx")]
    assert keys(rows, device(9, 0)) == ["chip"]
    assert keys(rows, device(10, 3)) == ["family"]
    assert keys(rows, device(12, 0)) == []


def test_denied_capability() -> None:
    rows = [row("eight-six", 8, 6, deny=[[8, 7]]), row("other", 8, 6, deny=["8.9"])]
    assert keys(rows, device(8, 6)) == ["eight-six", "other"]
    assert keys(rows, device(8, 7)) == ["other"]
    assert keys(rows, device(8, 9)) == ["eight-six"]


def test_unknown_suffix_runs_nowhere() -> None:
    assert keys([row("odd", 9, 0, "x")], device(9, 0)) == []


def test_cpu_takes_cpu_rows_only() -> None:
    assert keys(ROWS, Device("cpu")) == ["host"]


def test_metal_takes_what_the_system_can_read_newest_first() -> None:
    rows = [
        {"key": "old", "backend": "metal", "min_os": "13.0"},
        {"key": "new", "backend": "metal", "min_os": "15"},
        {"key": "newest", "backend": "metal", "min_os": "26.0"},
    ]
    assert keys(rows, Device("metal", system=(15, 2))) == ["new", "old"]
    assert keys(rows, Device("metal", system=(12, 0))) == []


@pytest.mark.parametrize(
    ("driver", "version"),
    [
        (11080, (7, 8)),
        (12000, (8, 0)),
        (12040, (8, 4)),
        (12060, (8, 5)),
        (12080, (8, 7)),
        (12090, (8, 8)),
        (13000, (9, 0)),
    ],
)
def test_ptx_version_of_a_driver(driver: int, version: tuple[int, int]) -> None:
    assert ptx_version(driver) == version


def test_versions() -> None:
    assert parse_version("8.5") == (8, 5)
    assert parse_version("15") == (15, 0)
    assert parse_version("v8") is None
    assert parse_version("1.2.3") is None
