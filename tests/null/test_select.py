"""Which targets run on which device, best first: the whole table, and the rules one by one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import wootz
from wootz import kernel
from wootz.errors import NoKernelError
from wootz.select import Device, parse_version, ptx_version, rank

from tests.null import loader_tools as tools


def row(key: str, major: int, minor: int, suffix: str = "", **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "backend": "cuda",
        "capability": [major, minor],
        "suffix": suffix,
        "extension": "cubin",
        **more,
    }


# Names are words, so that a rule that reads names cannot pass. hopper: 9.0a, and so on; `text-A-B` is PTX of
# capability A that needs version B of PTX.
ROWS = [
    {"key": "host", "backend": "cpu"},
    row("seven-five", 7, 5),
    row("eight", 8, 0),
    row("eight-six", 8, 6),
    row("eight-nine", 8, 9),
    row("nine", 9, 0),
    row("hopper", 9, 0, "a"),
    row("ten", 10, 0, "a"),
    row("ten-family", 10, 0, "f"),
    row("ten-three", 10, 3, "a"),
    row("ten-three-family", 10, 3, "f"),
    row("twelve", 12, 0, "a"),
    row("twelve-family", 12, 0, "f"),
    row("text-eight-7.0", 8, 0, extension="ptx", isa=["7.0"]),
    row("text-eight-nine-8.5", 8, 9, extension="ptx", isa=["8.5"]),
    row("text-nine-9.0", 9, 0, extension="ptx", isa=["9.0"]),
    row("text-hopper-8.0", 9, 0, "a", extension="ptx", isa=["8.0"]),
    row("text-ten-family-8.8", 10, 0, "f", extension="ptx", isa=["8.8"]),
]

# For each capability: the binaries that run there, best first; then the text that a driver of CUDA 13.0, of
# 12.5, of 11.8 and of 11.0 can compile for it.
TEXT = {
    "8": ["text-eight-7.0"],
    "8.9": ["text-eight-nine-8.5", "text-eight-7.0"],
    "9": ["text-nine-9.0", "text-eight-nine-8.5", "text-eight-7.0"],
}
TABLE: dict[tuple[int, int], tuple[list[str], list[str], list[str], list[str], list[str]]] = {
    # binaries, CUDA 13.0 (PTX 9.0), 12.5 (8.5), 11.8 (7.8), 11.0 (7.0)
    (7, 0): ([], [], [], [], []),
    (7, 5): (["seven-five"], [], [], [], []),
    (8, 0): (["eight"], TEXT["8"], TEXT["8"], TEXT["8"], TEXT["8"]),
    (8, 6): (["eight-six", "eight"], TEXT["8"], TEXT["8"], TEXT["8"], TEXT["8"]),
    (8, 7): (["eight-six", "eight"], TEXT["8"], TEXT["8"], TEXT["8"], TEXT["8"]),
    (8, 8): (["eight-six", "eight"], TEXT["8"], TEXT["8"], TEXT["8"], TEXT["8"]),
    (8, 9): (["eight-nine", "eight-six", "eight"], TEXT["8.9"], TEXT["8.9"], TEXT["8"], TEXT["8"]),
    (9, 0): (
        ["hopper", "nine"],
        ["text-hopper-8.0", *TEXT["9"]],
        ["text-hopper-8.0", *TEXT["8.9"]],
        TEXT["8"],
        TEXT["8"],
    ),
    (10, 0): (["ten", "ten-family"], ["text-ten-family-8.8", *TEXT["9"]], TEXT["8.9"], TEXT["8"], TEXT["8"]),
    (10, 1): (["ten-family"], ["text-ten-family-8.8", *TEXT["9"]], TEXT["8.9"], TEXT["8"], TEXT["8"]),
    (10, 3): (
        ["ten-three", "ten-three-family", "ten-family"],
        ["text-ten-family-8.8", *TEXT["9"]],
        TEXT["8.9"],
        TEXT["8"],
        TEXT["8"],
    ),
    (11, 0): ([], TEXT["9"], TEXT["8.9"], TEXT["8"], TEXT["8"]),
    (12, 0): (["twelve", "twelve-family"], TEXT["9"], TEXT["8.9"], TEXT["8"], TEXT["8"]),
    (12, 1): (["twelve-family"], TEXT["9"], TEXT["8.9"], TEXT["8"], TEXT["8"]),
    (13, 0): ([], TEXT["9"], TEXT["8.9"], TEXT["8"], TEXT["8"]),
}
DRIVERS = (13000, 12050, 11080, 11000)


def device(major: int, minor: int, isa: tuple[int, int] = (9, 0)) -> Device:
    return Device("cuda", 0, "a device", (major, minor), isa)


def keys(rows: list[dict[str, Any]], where: Device) -> list[str]:
    return [each["key"] for each in rank(rows, where)]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("capability", TABLE)
def test_table(capability: tuple[int, int], driver: int) -> None:
    binaries, *texts = TABLE[capability]
    where, wanted = device(*capability, ptx_version(driver)), [*binaries, *texts[DRIVERS.index(driver)]]
    assert keys(ROWS, where) == wanted
    assert keys(ROWS[::-1], where) == wanted, "the order of the rows must not matter"


@pytest.mark.parametrize("capability", TABLE)
def test_denied(capability: tuple[int, int]) -> None:
    """A row that denies a capability is passed over there, and nowhere else."""
    where = device(*capability)
    wanted = keys(ROWS, where)
    for i, key in enumerate(wanted):
        for spelling in (
            [list(capability)],
            [f"{capability[0]}.{capability[1]}"],
            [[1, 0], list(capability)],
        ):
            rows = [{**each, "deny": spelling} if each["key"] == key else each for each in ROWS]
            assert keys(rows, where) == wanted[:i] + wanted[i + 1 :]
            assert all(
                keys(rows, device(*other)) == keys(ROWS, device(*other))
                for other in TABLE
                if other != capability
            )


@pytest.mark.parametrize("capability", TABLE)
def test_none_fits(capability: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one target that does not run there: the message names device, kernel and what is shipped."""
    monkeypatch.setattr(kernel, "resolve_device", lambda kind, number: device(*capability))
    text = re.escape(
        "copy/-/f16 has no binary for cuda:0 (a device, compute capability "
        f"{capability[0]}.{capability[1]}); it is shipped for: "
    )
    for each in (row for row in ROWS[1:] if row["key"] not in keys(ROWS, device(*capability))):
        folder = tools.Folder(tmp_path / each["key"])
        folder.targets = [each]
        folder.cell("copy", "-", "f16", each["key"], [folder.file("x", b"")])
        copy = wootz.load(folder.write()).kernel("copy", dtype="f16", device="cuda:0")
        with pytest.raises(NoKernelError, match=text + each["key"]):
            copy.preload()


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
