"""What the grouped kernels for packed weights share: rows of x in groups, each times a matrix of a bank.

The grid is what any division of the rows into groups can need. Paired: two banks, y = activation(x w) *
(x v).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..formats.axes import Format
from ..formats.fragment import Fragment, fragment
from ..ir.packed import require
from ..lower.functor import KINDS, Weights, functor
from ..manifest.target import Target
from ..variants.family import Arg, Family, Instance, Operand, Scalar
from . import _grouped_sm90
from ._groups import WORDS, Mode, level_sizes
from .qmm_packed import ACTIVATIONS, ALIGNED, Tile, fitted

PLAIN = (
    Tile("few", 0, 2, 4, 1, 1, 2, 128),
    Tile("many", 0, 4, 1, 2, 1, 4, 128, alone=True),
    Tile("odd", 0, 4, 1, 2, 1, 4, 128, narrow=True, alone=True),
)
PAIRED = (
    Tile("few", 0, 2, 4, 1, 2, 2, 128, paired=True, alone=True),
    Tile("many", 0, 4, 1, 2, 2, 2, 128, paired=True, alone=True),
    Tile("odd", 0, 4, 1, 2, 2, 2, 128, narrow=True, paired=True, alone=True),
)


TEMPLATE = frozenset({"wgmma", "tma"})
"""Features of targets that have the template for wgmma as well."""


def variants(mode: Mode, kernel: str, fmt: Format | None, dtype: str, target: Target) -> Iterator[Instance]:
    """The entries of a mode, for options that the caller adds: of the template for wgmma, and of the other
    for what it does not take."""
    fmt = require(fmt, kernel)
    if target.features >= TEMPLATE and not mode.paired:
        yield from _grouped_sm90.instances(mode, fmt, dtype, target)
    layout, weights = fragment(fmt), Weights(fmt, KINDS[dtype], target, f"Weight_{dtype}")
    decoder = functor(fmt, dtype, target, weights.name)
    for tile in PAIRED if mode.paired else PLAIN:
        here = fitted(tile, layout, weights.fold_only, target.shared_bytes)
        rows, tokens = here.block
        when = ([] if here.narrow else [ALIGNED]) + ([mode.few] if here.name == "few" else [])
        yield Instance(
            here.name,
            ("qmm_sm80.cuh", "grouped_sm80.cuh"),
            _text(mode, here, fmt, dtype, weights.name),
            _arguments(mode, layout),
            here.threads,
            (["ceildiv", "n", rows], mode.blocks(tokens), 1),
            (*when, ["lt", mode.blocks(tokens), 2**16]),
            gate="hmma",
            preamble=(decoder,),
            static_shared=here.shared(layout),
        )


def _arguments(mode: Mode, layout: Fragment) -> tuple[Arg, ...]:
    banks = [f"{bank}.{field}" for bank in mode.banks for field in ("units", *layout.tensors)]
    arrays = [Arg(name, "ptr", "in") for name in ("x", *banks, *mode.arrays)]
    sizes = [Arg(axis, "u32", "shape") for axis in (*mode.sizes, "n", "k")]
    scalars = [Arg("activation", "u32", "scalar")] if mode.paired else []
    return (*arrays, Arg("y", "ptr", "out"), *sizes, *scalars)


def _levels(fmt: Format, weight: str, bank: str) -> str:
    """The levels of the part's matrix that are one for each matrix."""
    found = [
        f"{weight}::tensor_level<{i}>({bank}_{name} + part.matrix * {size}ull)"
        for i, (name, size) in enumerate(zip(fragment(fmt).tensors, level_sizes(fmt)))
    ]
    return ", ".join(found) or "1.0f"


def _text(mode: Mode, tile: Tile, fmt: Format, dtype: str, weight: str) -> str:
    layout = fragment(fmt)
    fields = [(bank, field) for bank in mode.banks for field in ("units", *layout.tensors)]
    parameters = [
        "const uint16_t* __restrict__ x",
        *(f"const uint8_t* __restrict__ {bank}_{field}" for bank, field in fields),
        *(f"const int32_t* __restrict__ {name}" for name in mode.arrays),
        "uint16_t* __restrict__ y",
        *(f"uint32_t {axis}" for axis in (*mode.sizes, "n", "k")),
        *(["uint32_t activation"] if mode.paired else []),
    ]
    count = max(1, len(layout.tensors))
    second = _levels(fmt, weight, "v") if mode.paired else "1.0f"
    units = "v_units + part.matrix * bank" if mode.paired else "nullptr"
    activation = "activation" if mode.paired else "0"
    part = mode.part.replace("$TOKENS", str(tile.block[1]))
    return f"""
using $SYMBOL_tile = {tile.struct(weight, *[ACTIVATIONS[dtype]] * 2)};
static_assert($SYMBOL_tile::shared_bytes == {tile.shared(layout)}, "");
extern "C" __global__ void __launch_bounds__({tile.threads}, {tile.resident(layout)})
    $SYMBOL({", ".join(parameters)})
{{
    __shared__ __align__(128) uint8_t memory[{tile.shared(layout)}];
    const GroupPart part = {part};
    if (part.count == 0) {{
        return;
    }}
    const uint64_t first = part.first;
    const uint64_t tiles = (n + 15) / 16, units = (k + {layout.columns - 1}) / {layout.columns};
    const uint64_t bank = tiles * units * {layout.unit_bytes};
    const float levels[{count}] = {{{_levels(fmt, weight, "w")}}};
    const float second[{count}] = {{{second}}};
    const QmmArguments arguments{{x + first * k, w_units + part.matrix * bank, levels, nullptr, y + first * n,
                                 part.count, n, k, {units}, second, {activation}}};
    Qmm<$SYMBOL_tile>(arguments, memory, blockIdx.x, part.block).run();
}}
"""


def family(mode: Mode, kernel: str) -> Family:
    """The declaration of a mode's kernel."""

    def made(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterator[Instance]:
        for instance in variants(mode, kernel, fmt, dtype, target):
            yield replace(instance, options=options)

    def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
        wanted = " or ".join(ACTIVATIONS)
        return None if dtype in ACTIVATIONS else f"{kernel} takes activations of {wanted}, not {dtype}"

    own = {"counts": "experts", "offsets": "experts", "indices": "groups"}
    return Family(
        (
            Operand("x", "array", (*mode.x, "k")),
            *(Operand(bank, "packed", ("experts", "n", "k")) for bank in mode.banks),
            *(Operand(name, "array", (own[name],), "i32") for name in mode.arrays),
        ),
        Operand("y", "array", (*mode.x, "n")),
        made,
        limits={"experts": (1, 1 << 16)},
        needs=frozenset({"mma", "cp_async"}),
        scalars=(Scalar("activation", "u32", 2, WORDS),) if mode.paired else (),
        accepts=accepts,
        partial=True,
    )
