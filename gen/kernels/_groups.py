"""How grouped kernels are told of their groups.

Groups are known to the device alone; the host reads nothing of them. A variable group has its own count and
offset, an indexed one a fixed number of rows and the index of its matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..formats.axes import Format
from ..formats.fragment import fragment
from ..formats.layout import SCALE_FIELDS
from ..variants.family import Formula

WORDS = ("none", "relu", "silu", "gelu")
_SIZES = {"f32": 4, "f16": 2, "bf16": 2}

FEW = 16
"""Rows of x a group, on average, up to which blocks take few."""


@dataclass(frozen=True)
class Mode:
    """How a kernel's groups are given. arrays, sizes: its own; x: its axes before k; part: C++ of a block's
    part, with `$TOKENS` rows a block; source: C++ of all groups; groups: how many there are."""

    arrays: tuple[str, ...]
    sizes: tuple[str, ...]
    x: tuple[str, ...]
    part: str
    source: str
    groups: str
    paired: bool = False

    @property
    def equal(self) -> bool:
        """Whether every group has the same number of rows."""
        return "rows" in self.sizes

    @property
    def rows(self) -> Formula:
        """Of x."""
        return ["mul", "groups", "rows"] if self.equal else "m"

    def blocks(self, tokens: int) -> Formula:
        """The most that any division of the rows can need, of `tokens` rows each."""
        if self.equal:
            return ["mul", "groups", ["ceildiv", "rows", tokens]]
        return ["add", ["ceildiv", "m", tokens], "experts"]

    @property
    def few(self) -> Formula:
        """Whether groups are small."""
        return ["le", "rows", FEW] if self.equal else ["le", "m", ["mul", FEW, "experts"]]

    def fit(self, tokens: int) -> Formula:
        """Whether most groups have no more rows: where they differ, three quarters of them on average."""
        if self.equal:
            return ["le", "rows", tokens]
        return ["le", ["mul", "m", 4], ["mul", "experts", 3 * tokens]]

    @property
    def banks(self) -> tuple[str, ...]:
        return ("w", "v") if self.paired else ("w",)


VARIABLE = Mode(
    ("counts", "offsets"),
    ("m", "experts"),
    ("m",),
    "part_of_groups(counts, offsets, experts, m, $TOKENS, blockIdx.y)",
    "CountedGroups{counts, offsets, experts, m}",
    "experts",
)
INDEXED = Mode(
    ("indices",),
    ("groups", "rows", "experts"),
    ("groups", "rows"),
    "part_of_indices(indices, experts, rows, $TOKENS, blockIdx.y)",
    "IndexedGroups{indices, groups, rows, experts}",
    "groups",
)
PAIRED_VARIABLE = replace(VARIABLE, paired=True)


def level_sizes(fmt: Format) -> list[int]:
    """Bytes of each level of scales that is one for a matrix, in the order of the packed layout's fields."""
    elements = (fmt.scales[SCALE_FIELDS.index(name)].element for name in fragment(fmt).tensors)
    return [_SIZES.get(element.type, 1) for element in elements]
