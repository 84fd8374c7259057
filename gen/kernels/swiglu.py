"""swiglu: y[m, n] = silu(x[m, :n]) * x[m, n:], x being [m, 2n] with the gate's half first; f32, one rounding.

A gate of -inf counts as 0, unless what it opens is infinite (NaN, as 0 * inf is).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.maths import silu
from ..manifest.target import Target
from ..variants.family import Variant
from ._gated import family, gated


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    return gated(dtype, target, silu, options)


FAMILY = family(variants)
