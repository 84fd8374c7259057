"""kv_append: rows of new tokens, k and v [b, s, hk, d], into caches [b, hk, t, d] from positions[b] on;
lengths[b] is what each cache then holds, min(positions + s, t).

Tokens past t are left out. A negative position leaves a batch entry out: nothing is written for it, and its
length is 0. The caches may not be the operands' memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant
from ._attention import ROWS
from ._kv import LENGTHS, LIMITS, NEW, POSITIONS, Place, append


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    def arguments(b: Builder, hk: Val) -> tuple[Val, Place]:
        t = b.scalar("t")
        return t, lambda batch, head, token: ((batch * hk + head) * t + token, b.const(1, "bool"))

    rows = ["lt", ["mul", ["mul", "b", "hk"], "t"], ROWS]
    return append(dtype, target, options, arguments, (rows,))


FAMILY = Family(
    (
        Operand("k", "array", NEW),
        Operand("v", "array", NEW),
        POSITIONS,
        Operand("k_cache", "array", ("b", "hk", "t", "d"), updated=True),
        Operand("v_cache", "array", ("b", "hk", "t", "d"), updated=True),
    ),
    LENGTHS,
    variants,
    {**LIMITS, "t": (0, 2**30)},
)
