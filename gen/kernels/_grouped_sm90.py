"""Entries of the grouped kernels on warpgroup MMA (cutlass/grouped_sm90.cuh): groups that a block can list.

The tiles of qmm_packed; of the wide ones, a group's last is as narrow as its rows allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..formats.axes import Format
from ..formats.fragment import Fragment, fragment
from ..manifest.target import Target
from ..variants.family import Formula, Instance
from . import _qmm_sm90 as qmm
from ._groups import Mode, level_sizes

MOST = 512
"""Groups that a block lists."""

LIST = MOST * 16 + MOST // 32 * 4
"""Bytes of the list, as the template counts them."""

SUITS: tuple[Formula, ...] = (["eq", ["mod", "k", 8], 0], ["lt", "k", 2**31 - 256])
"""As of qmm_packed."""


NARROWER = {128: (64, 96), 256: (64, 128)}
"""Columns of a wide tile -> those that a group's last may have instead."""


def tiles(layout: Fragment, target: Target) -> list[qmm.Rings]:
    """Those of qmm_packed that leave room for the list."""
    return [_fitted(tile) for tile in qmm.usual(layout, target.shared_max - LIST)]


def _fitted(tile: qmm.Rings) -> qmm.Rings:
    """The tile with its other widths; those of the widest leave registers to small batches alone."""
    batch = 2 if tile.columns == qmm.COLUMNS[-1] else tile.batch
    return replace(tile, narrower=NARROWER.get(tile.columns, ()), batch=batch)


def instances(mode: Mode, fmt: Format, dtype: str, target: Target) -> Iterator[Instance]:
    """A tile of each width that suits the format, narrowest first: the first that fits the groups is
    launched."""
    layout = fragment(fmt)
    found = tiles(layout, target)
    weight, preamble = qmm.shared_text(fmt, dtype, target, found)
    for tile in found:
        few = () if tile is found[-1] else (mode.fit(tile.columns),)
        yield Instance(
            f"n{tile.columns}",
            ("grouped_sm90.cuh",),
            _text(mode, tile, fmt, weight),
            qmm.arguments(layout, mode.arrays, (*mode.sizes, "n", "k")),
            tile.threads,
            ("sms", 1, 1),
            (*SUITS, *_listed(mode, tile), *few),
            shared=tile.shared(layout) + LIST,
            maps=qmm.maps(tile, dtype, mode.rows),
            workspace=qmm.parts(tile, layout),
            zeroed=True,
            pdl=True,
            gate="hgmma+utmaldg",
            preamble=preamble,
        )


def _listed(mode: Mode, tile: qmm.Rings) -> tuple[Formula, ...]:
    """Whether groups can be listed: x has rows, and no number of rows or tiles has more than 31 bits."""
    down: Formula = ["ceildiv", "n", qmm.ROWS]
    most: Formula = ["max", mode.rows, ["mul", mode.blocks(tile.columns), down]]
    return ["le", mode.groups, MOST], ["gt", mode.rows, 0], ["lt", most, 2**31 - 256]


def _text(mode: Mode, tile: qmm.Rings, fmt: Format, weight: str) -> str:
    """The entry point."""
    numbers = ", ".join(map(str, (MOST, *level_sizes(fmt))))
    source = mode.source.partition("{")[0]
    bank = f"""using $SYMBOL_bank = warpgroup::Bank<{source}, $SYMBOL_layout::end, {numbers}>;
static_assert($SYMBOL_bank::bytes == {LIST}, "");
"""
    sizes = (*mode.sizes, "n", "k")
    return qmm.entry(tile, fragment(fmt), weight, sizes, mode.arrays, bank, mode.source)
