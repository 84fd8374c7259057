"""Which variants a cell can do without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gen.emit import emission
from gen.plan import cells as plan
from gen.variants import spare

ROOT = Path(__file__).resolve().parents[2]


def records(*conditions: list[Any], dtype: str = "f16") -> list[dict[str, Any]]:
    """A cell with one entry for each: a, b, ..."""
    entries = [{"symbol": symbol, "when": when} for symbol, when in zip("abcdef", conditions)]
    return [{"dtype": dtype, "options": {}, "entry": entry} for entry in entries]


@pytest.mark.parametrize(
    ("conditions", "gone", "expected"),
    [
        (([["le", "m", 16]], []), "a", None),
        (([["le", "m", 16]], []), "b", "no other variant takes the place of b at m=17"),
        (([["le", "m", 16]], []), "ab", "no other variant takes the place of a at m=1"),
        (([["le", "m", 16]], [["gt", "m", 16]]), "a", "no other variant takes the place of a at m=1"),
        # what two others take together
        (([["le", "m", 64]], [["le", "m", 16]], [["gt", "m", 16]]), "a", None),
        # the tile at large sizes, whose neighbour starts more blocks
        (([["lt", ["ceildiv", "m", 128], 65536]], [["lt", ["ceildiv", "m", 64], 65536]]), "a", None),
        (([["eq", ["mod", "k", 8], 0]], []), "b", "no other variant takes the place of b at k=1"),
        (([["eq", "has_c", 1]], [["eq", "has_c", 0]]), "a",
         "no other variant takes the place of a at has_c=1"),
        (([["ge", ["mul", ["ceildiv", "m", 128], 1], "sms"]], [["le", "m", 1024]]), "a",
         "no other variant takes the place of a at m=4096, sms=1"),
    ],
)  # fmt: skip
def test_a_variant_can_go_where_others_take_every_problem_of_its(
    conditions: tuple[list[Any], ...], gone: str, expected: str | None
) -> None:
    assert spare.problem(records(*conditions), set(gone)) == expected


def test_another_cells_variant_is_no_substitute() -> None:
    both = [*records([]), *records([], [], dtype="bf16")[1:]]
    assert spare.problem(both, {"a"}) == "no other variant takes the place of a"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
def test_each_tile_of_a_shipped_kernel_but_the_last_can_go(target: str) -> None:
    """The conditions of real families are understood, and the last variant takes what is left."""
    request = plan.Request(
        "release", targets=(target,), kernels=("gemm", "qmm_packed"), formats=("int4", "-")
    )
    manifest = plan.load(ROOT / "kernels.yaml")
    for unit in plan.units(manifest, plan.select(manifest, request)):
        _, entries = emission.render(unit)
        first = [
            e for e in entries if (e["dtype"], e["options"]) == (entries[0]["dtype"], entries[0]["options"])
        ]
        *others, last = [e["entry"]["symbol"] for e in first]
        assert [spare.problem(first, {symbol}) for symbol in others] == [None] * len(others)
        assert spare.problem(first, {last}) is not None
