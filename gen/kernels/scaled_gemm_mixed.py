"""scaled_gemm_mixed: as scaled_gemm, x of 8-bit elements (the option `activations`) and w of 4-bit ones.

Blocks and their scales are of the same kind on both sides. The instruction takes 4-bit codes widened to
bytes, so it is as fast as one of two 8-bit operands; what is saved is memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formats.axes import Format
from ..manifest.target import Target
from ..variants.family import Family, Instance, Operand, Scalar
from . import _scaled


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    return _scaled.refused(fmt, options["activations"])


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Instance]:
    w = _scaled.weights(fmt, "scaled_gemm_mixed")
    return _scaled.gemms(target, _scaled.activations(w, options["activations"]), w, dtype, options)


FAMILY = Family(
    (Operand("x", "tiled", ("m", "k"), format="activations"), Operand("w", "tiled", ("n", "k"))),
    Operand("y", "array", ("m", "n")),
    variants,
    limits=_scaled.LIMITS,
    options={"activations": ("e4m3", "e5m2")},
    needs=frozenset({"block_scale"}),
    scalars=(Scalar("alpha", "f32", 1.0),),
    accepts=accepts,
)
