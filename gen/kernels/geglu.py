"""geglu: y[m, n] = gelu(x[m, :n]) * x[m, n:], x being [m, 2n] with the gate's half first; f32, one rounding.

approximate: none (with erf) or tanh. A gate of -inf counts as 0, unless what it opens is infinite (NaN).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..ir.maths import gelu, gelu_tanh
from ..manifest.target import Target
from ..variants.family import Variant
from ._gated import family, gated

_BY_NAME = {"none": gelu, "tanh": gelu_tanh}


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    return gated(dtype, target, _BY_NAME[options["approximate"]], options)


FAMILY = family(variants, {"approximate": tuple(_BY_NAME)})
