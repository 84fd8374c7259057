"""qmm_packed_a8: y[m, n] = scale_x[m] * sum over k of x[m, k] * w[n, k], x of 8 bits, w in the packed layout.

x is i8 or e4m3, with one f32 scale for each row. Weights become bytes of x's type, exactly, for the formats
whose numbers allow it; sums of a run are exact for i8 (s32) and f32 for e4m3, scales multiply them in f32.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..formats.axes import Format
from ..formats.fragment import Fragment, fragment
from ..ir.packed import require
from ..lower.byte_functor import byte_functor, refusal
from ..lower.functor import functor
from ..manifest.target import Target
from ..variants.family import Arg, Family, Instance, Operand
from .qmm_packed import ACTIVATIONS, Tile, fitted

FEATURES = {"i8": "mma_s8", "e4m3": "mma_fp8"}
STRUCTS = {"i8": "IntegerActivation", "e4m3": "ByteFloatActivation"}
GATES = {"i8": "imma", "e4m3": "qmma_or_hmma"}

ALIGNED = ["eq", ["mod", "k", 16], 0]
"""Rows of x begin at multiples of 16 bytes."""

TILES = (
    Tile("m8", 8, 1, 4, 1, 1, 1, 256, element=1),
    Tile("m16", 16, 2, 4, 1, 1, 2, 128, element=1),
    Tile("m64", 64, 4, 1, 2, 1, 4, 128, element=1),
    Tile("wide", 0, 4, 1, 2, 1, 8, 128, element=1),
    Tile("odd", 0, 4, 1, 2, 1, 4, 128, narrow=True, element=1),
)
"""The first whose conditions hold is launched."""


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterator[Instance]:
    fmt = require(fmt, "qmm_packed_a8")
    layout, out, base = fragment(fmt), options["out"], "Weight_f16"
    weight = f"Weight_{dtype}"
    preamble = (functor(fmt, "f16", target, base), byte_functor(fmt, dtype, base, weight))
    for tile in TILES:
        here = fitted(tile, layout, False, target.shared_bytes)
        rows, tokens = here.block
        when = ([] if here.narrow else [ALIGNED]) + ([["le", "m", here.most]] if here.most else [])
        struct = here.struct(weight, STRUCTS[dtype], ACTIVATIONS[out])
        yield Instance(
            here.name,
            ("qmm_sm80.cuh",),
            _text(here, layout, struct, weight),
            _arguments(layout),
            here.threads,
            (["ceildiv", "n", rows], ["ceildiv", "m", tokens], 1),
            (*when, ["lt", ["ceildiv", "m", tokens], 2**16]),
            options,
            gate=GATES[dtype],
            preamble=preamble,
            static_shared=here.shared(layout),
        )


def _arguments(layout: Fragment) -> tuple[Arg, ...]:
    names = ("x", "scale_x", "w.units", *(f"w.{t}" for t in layout.tensors))
    shapes = (Arg(axis, "u32", "shape") for axis in ("m", "n", "k"))
    return (*(Arg(name, "ptr", "in") for name in names), Arg("y", "ptr", "out"), *shapes)


def _text(tile: Tile, layout: Fragment, struct: str, weight: str) -> str:
    return tile.text(layout, struct, weight, "uint8_t", ", const float* __restrict__ scale_x", "scale_x")


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    if dtype not in FEATURES:
        return f"qmm_packed_a8 takes activations of {' or '.join(FEATURES)}, not {dtype}"
    for feature in (FEATURES[dtype], "cp_async"):
        if not target.has(feature):
            return f"{dtype} activations need the feature {feature!r}, which {target.name} does not declare"
    return refusal(fmt, dtype) if fmt is not None else None


def types(dtype: str, options: dict[str, str]) -> dict[str, str]:
    return {"y": options["out"]}


FAMILY = Family(
    (
        Operand("x", "array", ("m", "k")),
        Operand("scale_x", "array", ("m",), dtype="f32"),
        Operand("w", "packed", ("n", "k")),
    ),
    Operand("y", "array", ("m", "n")),
    variants,
    options={"out": ("bf16", "f16")},
    types=types,
    accepts=accepts,
)
