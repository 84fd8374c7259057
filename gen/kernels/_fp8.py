"""What the GEMMs of 8-bit floats have in common: types, and the configurations of CUTLASS."""

from __future__ import annotations

from collections.abc import Iterator

from ..formats.axes import Format
from ..lower.cutlass import BYTES, ELEMENTS, Collective, Matrix, shape
from ..lower.warp_gemm import Parameter
from ..manifest.target import Target
from ..variants.family import Formula

OUTPUTS = ("bf16", "f16", "f32")
ELEMENT = "e4m3"
SIZES = (Parameter("m", "u32", "shape"), Parameter("n", "u32", "shape"), Parameter("k", "u32", "shape"))

Configuration = tuple[str, Collective, tuple[Formula, ...]]
"""(suffix, configuration, conditions)."""

_COOPERATIVE = (
    "cutlass::gemm::KernelTmaWarpSpecializedCooperative",
    "cutlass::epilogue::TmaWarpSpecializedCooperative",
)
_PINGPONG = ("cutlass::gemm::KernelTmaWarpSpecializedPingpong", "cutlass::epilogue::TmaWarpSpecialized")
_BLOCKWISE = (
    "cutlass::gemm::KernelTmaWarpSpecializedCooperativeFP8Blockwise",
    "cutlass::epilogue::TmaWarpSpecializedCooperative",
)


def parameters(out: str) -> tuple[Parameter, ...]:
    """The entry's parameters, in order."""
    return (
        Parameter("a", "bytes", "in"),
        Parameter("b", "bytes", "in"),
        Parameter("scale_a", "f32", "in"),
        Parameter("scale_b", "f32", "in"),
        Parameter("y", out, "out"),
        *SIZES,
    )


def types(dtype: str, options: dict[str, str]) -> dict[str, str]:
    return {"y": options["out"]}


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    return None if dtype == ELEMENT else f"the elements of 8-bit GEMMs are {ELEMENT}; got {dtype}"


def gate(target: Target) -> str:
    """Rows of the table of gate.py for the configurations of CUTLASS."""
    if target.has("wgmma"):
        return "qgmma+utmaldg"
    return "utcqmma+utmaldg" if target.has("tcgen05") else "qmma+utmaldg"


def aligned_output(out: str) -> Formula:
    """Whether rows of y begin at multiples of 16 bytes."""
    return ["eq", ["mod", "n", 16 // BYTES[out]], 0]


def _collective(
    generation: int,
    dtype: str,
    out: str,
    tile: tuple[int, int, int],
    cluster: tuple[int, int, int],
    schedule: tuple[str, ...],
    fusion: str,
    layouts: tuple[str, str] = ("Row", "Column"),
    preamble: str = "",
) -> Collective:
    align, align_out = 16 // BYTES[dtype], 16 // BYTES[out]
    a, b = (Matrix(dtype, align, layout) for layout in layouts)
    chosen = dict(zip(("main", "epilogue"), schedule))
    return Collective(
        generation, a, b, Matrix("void", align_out), Matrix(out, align_out), tile, cluster,
        fusion=fusion, preamble=preamble, **chosen,
    )  # fmt: skip


def configurations(dtype: str, out: str, target: Target, promoted: bool = True) -> Iterator[Configuration]:
    """Scales of tensors and rows, applied to the sums. promoted: which go to float32 registers on the way."""

    def outer(block: tuple[int, int, int]) -> str:
        return f"typename OuterScaled<{shape(block)}, {ELEMENTS[out]}>::Fusion"

    large: tuple[Formula, ...] = (["gt", "m", 64],)
    if target.has("wgmma"):
        tile, low = (128, 128, 128), (64, 128, 128)
        wide, narrow = (
            (main if promoted else f"{main}FP8FastAccum", epilogue)
            for main, epilogue in (_COOPERATIVE, _PINGPONG)
        )
        yield "tma_large", _collective(90, dtype, out, tile, (1, 2, 1), wide, outer(tile)), large
        yield "tma_small", _collective(90, dtype, out, low, (1, 1, 1), narrow, outer(low)), ()
    elif target.has("tcgen05"):
        # A pair of multiprocessors makes a tile; each has half of its rows.
        pair, half = (256, 256, 128), (128, 256, 128)
        yield "tma_large", _collective(100, dtype, out, pair, (2, 1, 1), (), outer(half)), (["gt", "m", 128],)
        tile = (128, 128, 128)
        yield "tma_small", _collective(100, dtype, out, tile, (1, 1, 1), (), outer(tile)), ()
    elif target.has("block_scale"):
        tile = (128, 128, 128)
        yield "tma_large", _collective(120, dtype, out, tile, (1, 1, 1), (), outer(tile)), large


def block_configurations(dtype: str, out: str, target: Target) -> Iterator[Configuration]:
    """Scales of blocks, applied by the main loop."""
    if target.has("wgmma"):
        yield "tma_large", block_collective(90, dtype, out, (128, 128, 128), (1, 2, 1), _BLOCKWISE), ()
    elif target.has("tcgen05"):
        schedule = ("cutlass::gemm::KernelScheduleSm100Blockwise",)
        yield "tma_large", block_collective(100, dtype, out, (128, 128, 128), (1, 1, 1), schedule), ()
    elif target.has("block_scale"):
        schedule = ("cutlass::gemm::KernelScheduleSm120Blockwise",)
        yield "tma_large", block_collective(120, dtype, out, (128, 128, 128), (1, 1, 1), schedule), ()


_MAJORS = (("A", "Row", "MN"), ("B", "Column", "K"))
"""Operand, layout of its elements, and along which axis its scales are neighbours."""


def block_collective(
    generation: int,
    dtype: str,
    out: str,
    tile: tuple[int, int, int],
    cluster: tuple[int, int, int],
    schedule: tuple[str, ...],
) -> Collective:
    """Scales of a are neighbours along m, those of b along k."""
    majors = "GMMA" if generation == 90 else "UMMA"
    named = ", ".join(f"cute::{majors}::Major::{major}" for _, _, major in _MAJORS)
    preamble = f"using Blocks = cutlass::detail::Sm{generation}BlockwiseScaleConfig<1, 128, 128, {named}>;\n"
    layouts = tuple(
        f"cute::tuple<{layout}, decltype(Blocks::deduce_layoutSF{which}())>" for which, layout, _ in _MAJORS
    )
    fusion = f"cutlass::epilogue::fusion::LinearCombination<{ELEMENTS[out]}, float, void, float>"
    return _collective(
        generation, dtype, out, tile, cluster, schedule, fusion, (layouts[0], layouts[1]), preamble
    )
