"""The tile lattice: what a target allows, and why the rest is left out."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gen.emit import text as emit
from gen.ir.packed import plain, steps
from gen.kernels import _gemv, _rows
from gen.manifest import reader as manifests
from gen.manifest.reader import KernelSpec
from gen.manifest.target import Target
from gen.plan import cells as plan
from gen.plan import explain
from gen.variants import family, tiles
from gen.variants.family import Arg, Family, Instance, Operand
from gen.variants.tiles import Cost, Lattice, Point

TARGET = Target(
    "t", "cuda", "arch", max_threads=1024, shared_bytes=48 << 10, shared_max=96 << 10, registers=65536
)


def cost(point: Point) -> Cost | str:
    if point["warps"] > point["rows"] // 16:
        return "a warp has 16 rows or more"
    return Cost(
        32 * point["warps"], point["rows"] * 128 // (32 * point["warps"]) + 40, point["rows"] * point["depth"]
    )


LATTICE = Lattice({"rows": (64, 128, 1024), "depth": (64, 128), "warps": (1, 8)}, cost)


def test_every_point_is_a_candidate_or_has_a_reason() -> None:
    found = list(tiles.candidates(LATTICE, TARGET))
    assert [tuple(each.point.values()) for each in found] == [
        (rows, depth, warps) for rows in (64, 128, 1024) for depth in (64, 128) for warps in (1, 8)
    ]
    reasons = {tuple(each.point.values()): each.reason for each in found}
    assert reasons[64, 64, 8] == "a warp has 16 rows or more"
    assert reasons[64, 64, 1] == "296 registers a thread, the target has 255"
    assert reasons[128, 64, 8] == ""
    assert reasons[1024, 128, 8] == "131072 bytes of shared memory a block, the target has 98304"
    assert [tuple(each.point.values()) for each in tiles.allowed(LATTICE, TARGET)] == [
        (128, 64, 8),
        (128, 128, 8),
    ]
    assert [each.cost for each in found if each.point["rows"] == 64 and each.point["warps"] == 8] == [
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"max_threads": 128}, "256 threads a block, the target has 128"),
        ({"shared_max": 8191}, "8192 bytes of shared memory a block, the target has 8191"),
        ({"registers": 20000}, "26624 registers a block, the target has 20000"),
        ({"registers": 0}, ""),  # no such limit
        ({"shared_bytes": 0}, ""),  # what is asked for at launch is another limit
    ],
)
def test_each_limit(limit: dict[str, int], reason: str) -> None:
    one = Lattice({"rows": (128,), "depth": (64,), "warps": (8,)}, cost)
    changed: dict[str, Any] = limit
    (found,) = tiles.candidates(one, replace(TARGET, **changed))
    assert found.reason == reason


def test_explain_shows_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Instance("", (), "void $SYMBOL;\n", (Arg("y", "ptr", "out"),), 32, (1, 1, 1))
    module: Any = ModuleType("gen.kernels.probe")
    y = Operand("y", "array", ("n",))
    module.FAMILY = Family((), y, lambda *given: (instance,), lattice=lambda *given: LATTICE)
    monkeypatch.setitem(sys.modules, "gen.kernels.probe", module)
    family.family.cache_clear()
    emit._emit.cache_clear()
    kernel = KernelSpec("probe", ("f32",))
    cells = tuple(plan._cells(kernel, None, TARGET, (), plan._options(kernel)))
    rows = explain.tiles_of(plan.Unit(kernel, None, TARGET, cells))
    assert len(rows) == 12
    assert rows[5] == {
        "cell": "probe/-/f32/t",
        "point": {"rows": 128, "depth": 64, "warps": 8},
        "threads": 256,
        "registers": 104,
        "shared": 8192,
        "reason": "",
    }
    fact = {
        "unit": "u",
        "axes": None,
        "source": "",
        "artifacts": [],
        "commands": [],
        "cells": [],
        "entries": [],
    }
    text = explain.as_text({**fact, "tiles": rows})
    assert "  probe/-/f32/t  rows 128, depth 64, warps 8: allowed\n" in text
    assert "rows 64, depth 64, warps 8: a warp has 16 rows or more\n" in text
    assert "tiles" not in explain.as_text({**fact, "tiles": []})


def test_the_kernels_that_ship_declare_what_their_targets_can_run() -> None:
    manifest = plan.load(Path(__file__).resolve().parents[2] / "kernels.yaml")
    for kernel in manifest.kernels.values():
        lattice = family.family(kernel.name).lattice
        for target in manifest.targets.values() if lattice else ():
            for dtype in kernel.dtypes:
                for options in manifests.choices(kernel.options, kernel.knobs):
                    fmt = next(iter(manifest.formats.values())) if kernel.formats else None
                    if emit.refusal(kernel, fmt, dtype, target, options) is None and lattice is not None:
                        given = lattice(fmt, dtype, target, options)
                        assert given is None or tiles.allowed(given, target), (
                            kernel.name,
                            target.name,
                            dtype,
                        )


TARGETS = [
    target
    for target in plan.load(Path(__file__).resolve().parents[2] / "kernels.yaml").targets.values()
    if target.kernels == "all"
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_what_row_kernels_take_is_allowed(target: Target) -> None:
    for dtype in ("f16", "f32"):
        allowed = [each.point for each in tiles.allowed(_rows.lattice(None, dtype, target, {}), target)]
        for share in (*_rows.shares(dtype, target), *_rows.passes_once(dtype, target)):
            point = {"lanes": share.lanes, "count": share.count, "held": share.vectors * share.count}
            assert {name: point[name] for name in allowed[0]} in allowed, share


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_what_gemv_takes_is_allowed(target: Target) -> None:
    """One of its tiles for each number of rows, whatever the format."""
    manifest = plan.load(Path(__file__).resolve().parents[2] / "kernels.yaml")
    for fmt in (*manifest.formats.values(), plain("f16")):
        found = list(tiles.candidates(_gemv.lattice(fmt, target), target))
        allowed = [each.point for each in found if not each.reason]
        for tile in _gemv.tiles(target, steps(fmt), _gemv.MOST_ROWS, 0):
            point = {
                "m": tile.m,
                "rows": tile.rows,
                "groups": tile.groups,
                "stage": _gemv.STAGE if tile.waves else 0,
                "resident": max(1, tile.resident),
            }
            assert {name: point[name] for name in allowed[0]} in allowed, (fmt.name, tile)


def test_reasons_of_gemv_name_the_limit() -> None:
    manifest = plan.load(Path(__file__).resolve().parents[2] / "kernels.yaml")
    target = replace(manifest.targets["sm_90a"], shared_bytes=1024, registers=16384)
    found = tiles.candidates(_gemv.lattice(manifest.formats["int4"], target), target)
    reasons = {each.reason for each in found}
    assert any(reason.endswith("bytes of shared memory, the target has 1024") for reason in reasons)
    assert any("registers" in reason and reason.endswith("the target has 16384") for reason in reasons)
