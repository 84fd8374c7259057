"""The grouped kernels of dense weights: f16 and bf16, and e4m3 with a scale for each row of x and of w.

Groups and pairs as in `_grouped`. A block takes one tile of rows of its group, on the warp-level GEMM; where
banks are paired, half of its columns are of w and half of v.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..formats.axes import Format
from ..lower import warp_gemm
from ..lower.warp_gemm import Tile
from ..manifest.target import Target
from ..variants.family import Arg, Family, Instance, Operand, Scalar
from ._groups import WORDS, Mode

BYTE_FLOATS = "e4m3"
TILES = (("few", warp_gemm.FEW_ROWS, False), ("many", warp_gemm.SMALL, False), ("odd", warp_gemm.SMALL, True))


def variants(mode: Mode, dtype: str, options: dict[str, str]) -> Iterator[Instance]:
    for suffix, tile, narrow in TILES:
        when = ([] if narrow else [warp_gemm.aligned("k", dtype)]) + ([mode.few] if suffix == "few" else [])
        down = mode.blocks(tile.rows)
        columns = tile.columns // len(mode.banks)
        if mode.paired:
            when.append(["lt", "n", 2**31])  # rows of both are counted in 32 bits
        yield Instance(
            suffix,
            (*warp_gemm.HEADERS, *(["gemm_paired.cuh"] if mode.paired else []), "grouped_sm80.cuh"),
            _text(mode, tile, dtype, options.get("out", dtype), narrow),
            _arguments(mode, dtype),
            tile.threads,
            (["ceildiv", "n", columns], down, 1),
            (*when, ["lt", down, 2**16]),
            options,
            shared=tile.shared,
            gate=f"{warp_gemm.GATES[dtype]}+ldsm",
        )


def _scales(mode: Mode, dtype: str) -> tuple[str, ...]:
    return tuple(f"scale_{name}" for name in ("x", *mode.banks)) if dtype == BYTE_FLOATS else ()


def _arguments(mode: Mode, dtype: str) -> tuple[Arg, ...]:
    arrays = [Arg(name, "ptr", "in") for name in ("x", *mode.banks, *_scales(mode, dtype), *mode.arrays)]
    sizes = [Arg(axis, "u32", "shape") for axis in (*mode.sizes, "n", "k")]
    scalars = [Arg("activation", "u32", "scalar")] if mode.paired else []
    return (*arrays, Arg("y", "ptr", "out"), *sizes, *scalars)


def _text(mode: Mode, tile: Tile, dtype: str, out: str, narrow: bool) -> str:
    value, bytes_ = warp_gemm.VALUES[out], warp_gemm.BYTES[dtype]
    parameters = [
        "const uint8_t* x",
        *(f"const uint8_t* {bank}" for bank in mode.banks),
        *(f"const float* {name}" for name in _scales(mode, dtype)),
        *(f"const int32_t* {name}" for name in mode.arrays),
        f"{value}::Stored* y",
        *(f"uint32_t {axis}" for axis in (*mode.sizes, "n", "k")),
        *(["uint32_t activation"] if mode.paired else []),
    ]
    numbers = ", ".join(map(str, (*tile.warps, *tile.tiles, tile.depth, tile.stages)))
    shape = f"GemmTile<{warp_gemm.ELEMENTS[dtype]}, {numbers}, {str(narrow).lower()}>"
    both, operand, rows = "", "w + part.matrix * pitch * n", "n"
    if mode.paired:
        shape = f"GemmPaired<{shape}>"
        both = "\n    const GemmBoth both{w + part.matrix * pitch * n, v + part.matrix * pitch * n, n};"
        operand, rows = "both.operand()", "both.rows()"
    return f"""
extern "C" __global__ void __launch_bounds__({tile.threads})
    $SYMBOL({", ".join(parameters)})
{{
    using Tile = {shape};
    WOOTZ_SHARED(shared, Tile::shared_bytes);
    const GroupPart part = {mode.part.replace("$TOKENS", "Tile::rows_m")};
    if (part.count == 0) {{
        return;
    }}
    const uint32_t done = part.block * Tile::rows_m, left = part.count - done;
    const uint32_t height = left < Tile::rows_m ? left : Tile::rows_m;
    const uint64_t first = part.first + done, pitch = static_cast<uint64_t>(k) * {bytes_};{both}
    gemm_mma<Tile>(x + first * pitch, {operand}, height, {rows}, k * {bytes_},
                   reinterpret_cast<uint8_t*>(shared), GemmUnscaled(), {_epilogue(mode, dtype, value)});
}}
"""


def _epilogue(mode: Mode, dtype: str, value: str) -> str:
    """C++ of what becomes of a block's sums. value: the struct of y's type."""
    banks = [f"scale_{bank} + static_cast<uint64_t>(part.matrix) * n" for bank in mode.banks]
    scales = ", ".join(["scale_x + first", *banks])
    if mode.paired:
        paired = f"PairedEpilogue<{value}>{{y + first * n, n, activation}}"
        return f"PairedOuterEpilogue<{value}>{{{scales}, {paired}}}" if dtype == BYTE_FLOATS else paired
    if dtype == BYTE_FLOATS:
        return f"OuterEpilogue<{value}>{{{scales}, y + first * n, n, height, n}}"
    return f"RoundEpilogue<{value}>{{y + first * n, n}}"


def family(mode: Mode, kernel: str, dtypes: tuple[str, ...]) -> Family:
    """The declaration of a mode's kernel, for e4m3 or for 16-bit types."""
    scaled = BYTE_FLOATS in dtypes

    def made(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterator[Instance]:
        yield from variants(mode, dtype, options)

    def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
        return None if dtype in dtypes else f"{kernel} takes {' or '.join(dtypes)}, not {dtype}"

    own = {"counts": "experts", "offsets": "experts", "indices": "groups"}
    scale_x = Operand("scale_x", "array", mode.x, "f32")
    scales = [Operand(f"scale_{bank}", "array", ("experts", "n"), "f32") for bank in mode.banks]
    return Family(
        (
            Operand("x", "array", (*mode.x, "k")),
            *(Operand(bank, "array", ("experts", "n", "k")) for bank in mode.banks),
            *((scale_x, *scales) if scaled else ()),
            *(Operand(name, "array", (own[name],), "i32") for name in mode.arrays),
        ),
        Operand("y", "array", (*mode.x, "n")),
        made,
        limits={"experts": (1, 1 << 16), "k": (0, warp_gemm.MOST_COLUMNS)},
        options={"out": ("bf16", "f16", "f32")} if scaled else {},
        needs=frozenset({"mma_fp8" if scaled else "mma", "cp_async"}),
        scalars=(Scalar("activation", "u32", 2, WORDS),) if mode.paired else (),
        types=(lambda dtype, options: {"y": options["out"]}) if scaled else None,
        accepts=accepts,
        partial=True,
    )
