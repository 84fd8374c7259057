"""The grouped kernels on warpgroup MMA: tiles that leave room for the list of groups, and an entry for every
shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from wootz.formulas import compile_formula

from gen.formats.fragment import fragment
from gen.kernels import _grouped_sm90 as grouped
from gen.kernels import _qmm_sm90 as qmm
from gen.kernels._grouped import variants
from gen.kernels._groups import INDEXED, PAIRED_VARIABLE, VARIABLE, Mode, level_sizes
from gen.plan import cells as plan
from gen.variants.family import Instance

MANIFEST = plan.load(Path(__file__).resolve().parents[2] / "kernels.yaml")
TARGET, OLDER = MANIFEST.targets["sm_90a"], MANIFEST.targets["sm_80"]
NAMES = ("m", "groups", "rows", "experts", "n", "k", "sms")


def entries(mode: Mode, name: str = "mxfp4", target: Any = TARGET) -> list[Instance]:
    return [*variants(mode, "grouped_qmm", MANIFEST.formats[name], "bf16", target)]


def value(formula: Any, **sizes: int) -> int:
    return compile_formula(formula, NAMES)({"n": 2048, "k": 7168, "sms": 132, **sizes})


def taken(mode: Mode, **sizes: int) -> str:
    return next(i for i in entries(mode) if all(value(each, **sizes) for each in i.when)).suffix


@pytest.mark.parametrize("name", MANIFEST.formats)
def test_tiles_of_every_format_leave_room_for_the_list(name: str) -> None:
    layout = fragment(MANIFEST.formats[name])
    tiles = grouped.tiles(layout, TARGET)
    assert {32, 128, 256} <= {tile.columns for tile in tiles}
    for tile in tiles:
        assert tile.shared(layout) + grouped.LIST <= TARGET.shared_max
        assert [*tile.widths] == sorted(tile.widths)
        assert tile.part % 8 == 0
        assert tile.groups == 1 or [*tile.widths] == [tile.columns]


def test_the_tile_is_what_most_groups_fill() -> None:
    found = [taken(VARIABLE, m=m, experts=64) for m in (1, 8, 64, 512, 1024, 2048, 4096, 8192, 32768)]
    assert found == ["n16", "n16", "n16", "n16", "n32", "n64", "n128", "n256", "n256"]
    found = [taken(INDEXED, groups=8, rows=rows, experts=64) for rows in (1, 16, 17, 33, 65, 129, 5000)]
    assert found == ["n16", "n16", "n32", "n64", "n128", "n256", "n256"]


def test_what_is_left_to_the_other_template() -> None:
    assert taken(VARIABLE, m=0, experts=64) == "few"
    assert taken(VARIABLE, m=64, experts=grouped.MOST) == "n16"
    assert taken(VARIABLE, m=64, experts=grouped.MOST + 1) == "few"
    assert taken(VARIABLE, m=60000, experts=grouped.MOST + 1) == "many"
    assert taken(VARIABLE, m=64, experts=64, k=7172) == "odd"
    assert taken(INDEXED, groups=4000, rows=1, experts=64) == "few"
    assert taken(INDEXED, groups=4000, rows=40, experts=64) == "many"
    assert taken(VARIABLE, m=2**21, experts=2, n=2**28) == "many"  # tiles past 31 bits
    assert [i.suffix for i in entries(PAIRED_VARIABLE)] == ["few", "many", "odd"]
    assert [i.suffix for i in entries(VARIABLE, target=OLDER)] == ["few", "many", "odd"]


def test_x_is_read_as_one_matrix_of_all_rows() -> None:
    last = next(i for i in entries(INDEXED) if i.suffix == "n256")
    boxes, chunks = last.maps
    sizes = {"groups": 5, "rows": 7, "experts": 3, "k": 264}
    assert [value(d, **sizes) for d in (*boxes.dims, *chunks.dims)] == [64, 35, 4, 264, 35]
    assert (boxes.box, chunks.box) == ((64, 256, 1), (64, 64))
    assert last.zeroed
    assert last.pdl


@pytest.mark.parametrize("columns", qmm.COLUMNS)
def test_the_workspace_has_a_part_for_each_block(columns: int) -> None:
    instance = next(i for i in entries(VARIABLE) if i.suffix == f"n{columns}")
    size = value(instance.workspace, m=8, experts=64)
    assert size >= 132 * (8 + 128 * columns * 4)
    assert value(instance.workspace, m=8, experts=64, k=768) == 0


def test_levels_of_a_matrix_have_their_size() -> None:
    assert level_sizes(MANIFEST.formats["nvfp4"]) == [4]
    assert level_sizes(MANIFEST.formats["mxfp4"]) == []
