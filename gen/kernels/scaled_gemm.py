"""scaled_gemm: y[m, n] = alpha * sum over k of x[m, k] * w[n, k], both operands block-scaled and tiled.

The matrix instructions apply the blocks' scales; the float32 scales of whole tensors and alpha multiply the
float32 accumulator, which is rounded once. x has the weights' format, or, by the option `activations`, 8-bit
elements in the same blocks. Any m and k; rows of y hold a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..axes import Format
from ..family import Arg, Family, Instance, Operand, Scalar
from ..lower.cutlass import Instantiation, device_text, stub_text
from ..target import Target
from . import _scaled

HEADER = "scaled_3x.cuh"


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    return _scaled.refused(fmt, options["activations"])


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Instance]:
    w = _scaled.weights(fmt, "scaled_gemm")
    x = _scaled.activations(w, options["activations"])
    sizes = tuple(Arg(name, "u32", "shape") for name in ("m", "n", "k"))
    args = (
        *_scaled.tiled("x", x),
        *_scaled.tiled("w", w),
        Arg("y", "ptr", "out"),
        *sizes,
        Arg("alpha", "f32", "scalar"),
    )
    for tile in _scaled.tiles(target):
        instance = Instantiation(
            _scaled.collective(target, x, w, dtype, tile),
            (HEADER,),
            "ScaledHost",
            (_scaled.flag(x.globally), _scaled.flag(w.globally)),
        )
        rows, columns = tile.least
        yield Instance(
            tile.suffix,
            (HEADER,),
            device_text(instance),
            args,
            threads=1,
            grid=(1, 1, 1),
            when=(["ge", "m", rows], ["ge", "n", columns], _scaled.whole_rows(dtype)),
            options=options,
            cluster=tile.cluster,
            gate=_scaled.gate(target, x, w),
            stub=stub_text(instance),
        )


FAMILY = Family(
    (Operand("x", "tiled", ("m", "k"), format="activations"), Operand("w", "tiled", ("n", "k"))),
    Operand("y", "array", ("m", "n")),
    variants,
    options={"activations": ("same", "e4m3", "e5m2")},
    needs=frozenset({"block_scale"}),
    scalars=(Scalar("alpha", "f32", 1.0),),
    accepts=accepts,
)
