"""What the block-scaled kernels have in common: what such instructions take, and the configurations of
CUTLASS.

Tiled operands (wootz.formats.tiles): rows of codes of whole runs of 128 elements, scales in tiles of 128 rows
x 4 columns, one float32 scale of the whole tensor where the format has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..formats.axes import Element, Format
from ..ir.nodes import DTYPES
from ..lower.cutlass import Collective, Instantiation, Matrix, device_text, stub_text
from ..manifest.target import Target
from ..variants.family import Arg, Formula, Instance, Spill

RUN = 128
"""Elements that a row of codes is padded to."""

ROWS, COLUMNS, TILE = 128, 4, 512
"""Rows and columns of scales of a tile, and its bytes."""

LIMITS = {"k": (1, 1 << 30)}
"""Sizes are 32-bit, padding included."""

_FLOATS = {(2, 1, 1, "none"): "e2m1", (4, 3, 7, "nan"): "e4m3", (5, 2, 15, "ieee"): "e5m2"}
"""(exponent, mantissa, bias, specials) of the elements."""

_TAKEN = {
    ("e2m1", "e8m0", 32): "cutlass::mx_float4_t<cutlass::float_e2m1_t>",
    ("e2m1", "e4m3", 16): "cutlass::nv_float4_t<cutlass::float_e2m1_t>",
    ("e4m3", "e8m0", 32): "cutlass::mx_float8_t<cutlass::float_e4m3_t>",
    ("e5m2", "e8m0", 32): "cutlass::mx_float8_t<cutlass::float_e5m2_t>",
}
"""(element, scale, block along K) -> the type of CUTLASS."""


@dataclass(frozen=True)
class Scaling:
    """An operand as the instructions see it. globally: one float32 scales the whole tensor."""

    element: str
    bits: int
    scale: str
    block: int
    globally: bool

    @property
    def type(self) -> str:
        """The type of CUTLASS."""
        return _TAKEN[self.element, self.scale, self.block]


def _name(element: Element) -> str:
    if element.kind == "exponent" and element.bias == 127:
        return "e8m0"
    if element.kind != "float" or not element.signed:
        return ""
    return _FLOATS.get((element.exponent, element.mantissa, element.bias, element.specials), "")


def scaling(fmt: Format) -> Scaling | str:
    """A format as the instructions see it, or why they do not take it."""
    if fmt.zero is not None or not fmt.scales:
        return "its blocks have a zero point" if fmt.zero is not None else "its blocks have no scale"
    element, scale = _name(fmt.element), _name(fmt.scales[0].element)
    if fmt.block.rows != 1 or (element, scale, fmt.block.cols) not in _TAKEN:
        taken = ", ".join(f"{e} in blocks of {n} with {s} scales" for e, s, n in sorted(_TAKEN))
        return f"block-scaled instructions take {taken}"
    above = fmt.scales[1:]
    if len(above) > 1 or any(
        a.element.type != "f32" or tuple(a.block) != (0, 0) or a.op != "multiply" for a in above
    ):
        return "above a block's scale they take one f32 of the whole tensor, which multiplies"
    return Scaling(element, fmt.element.bits, scale, fmt.block.cols, bool(above))


def weights(fmt: Format | None, kernel: str) -> Scaling:
    """The scaling of a cell's format. ValueError where `accepts` would have refused it."""
    if fmt is None:
        raise ValueError(f"{kernel}: takes tiled operands, so it needs a format")
    found = scaling(fmt)
    if isinstance(found, str):
        raise ValueError(f"{kernel} with format {fmt.name}: {found}")
    return found


def activations(w: Scaling, element: str) -> Scaling:
    """The scaling of 8-bit activations: in the weights' blocks, with scales of their type."""
    return Scaling(element, 8, w.scale, w.block, False)


def refused(fmt: Format | None, element: str = "") -> str | None:
    """Why a cell is refused, or None. element: that of activations which are not of the weights' format."""
    found = scaling(fmt) if fmt is not None else "it takes a format"
    if isinstance(found, str):
        return found
    if element and (found.element, found.scale) != ("e2m1", "e8m0"):
        return f"activations of {element} go with e2m1 weights in blocks of 32 with e8m0 scales"
    return None


# ------------------------------------------------------------ configurations
@dataclass(frozen=True)
class Tile:
    """A block's tile of the output, rows x columns, and the cluster it is made by. least: the smallest m and
    n that it is worth for."""

    suffix: str
    rows: int
    columns: int
    cluster: tuple[int, int, int] = (1, 1, 1)
    least: tuple[int, int] = (0, 0)


def tiles(target: Target, output: str) -> tuple[Tile, ...]:
    """Large tiles first: with tensor memory two blocks share one of 256 x 256. Not for 32-bit outputs, whose
    stores would take shared memory from the operands."""
    small = Tile("t128", 128, 128)
    if target.has("tcgen05") and DTYPES[output] == 2:
        return (Tile("t256", 256, 256, (2, 1, 1), (256, 256)), small)
    return (small,)


def generation(target: Target) -> int:
    """The number of CUTLASS' collectives for the target."""
    return 100 if target.has("tcgen05") else 120


def depth(target: Target, x: Scaling, w: Scaling) -> int:
    """Elements of K in a tile: 128 bytes of the wider operand where shared memory is large, else 128."""
    return RUN * 8 // max(x.bits, w.bits) if target.has("tcgen05") else RUN


def alignment(mine: Scaling, other: Scaling) -> int:
    """Elements that a row's pitch is a multiple of: 16 bytes; a whole run where codes are widened on the
    way."""
    return RUN if mine.bits < other.bits else RUN // mine.bits


def collective(
    target: Target, x: Scaling, w: Scaling, output: str, tile: Tile, numbers: int = 3
) -> Collective:
    """y = x w^T with the tile, times so many numbers."""
    number = 16 // DTYPES[output]
    name = {"f16": "cutlass::half_t", "bf16": "cutlass::bfloat16_t", "f32": "float"}[output]
    return Collective(
        generation(target),
        Matrix(x.type, alignment(x, w)),
        Matrix(w.type, alignment(w, x), "Column"),
        Matrix("void", number),
        Matrix(output, number),
        (tile.rows, tile.columns, depth(target, x, w)),
        tile.cluster,
        op="OpClassBlockScaledTensorOp",
        fusion=f"Scaled<{name}, {numbers}>::Fusion",
        scheduler="void",
    )


def gate(target: Target, x: Scaling, w: Scaling) -> str:
    """The row of the gate's table: which instruction must be there."""
    narrow = max(x.bits, w.bits) == 4
    if target.has("tcgen05"):
        return "utcomma+utccp" if narrow else "utcqmma+utccp"
    return "omma_sf" if narrow else "qmma_sf"


def tiled(name: str, of: Scaling, role: str = "in") -> tuple[Arg, ...]:
    """The arguments of a tiled operand."""
    fields = ("codes", "tiles", "scale1") if of.globally else ("codes", "tiles")
    return tuple(Arg(f"{name}.{field}", "ptr", role) for field in fields)


def whole_rows(output: str) -> Formula:
    """When rows of the output begin at multiples of 16 bytes, as its stores want them."""
    return ["eq", ["mod", "n", 16 // DTYPES[output]], 0]


def flag(value: bool) -> str:
    """A C++ constant."""
    return "true" if value else "false"


HEADER = "scaled_3x.cuh"


def gemms(target: Target, x: Scaling, w: Scaling, output: str, options: dict[str, str]) -> Iterator[Instance]:
    """The entries of one pair of operands and output type, one a tile."""
    sizes = tuple(Arg(name, "u32", "shape") for name in ("m", "n", "k"))
    tensors = (*tiled("x", x), *tiled("w", w), Arg("y", "ptr", "out"))
    args = (*tensors, *sizes, Arg("alpha", "f32", "scalar"))
    for tile in tiles(target, output):
        config = collective(target, x, w, output, tile)
        host = (flag(x.globally), flag(w.globally))
        instance = Instantiation(config, (HEADER,), "ScaledHost", host)
        rows, columns = tile.least
        yield Instance(
            tile.suffix,
            (HEADER,),
            device_text(instance),
            args,
            threads=1,
            grid=(1, 1, 1),
            when=(["ge", "m", rows], ["ge", "n", columns], whole_rows(output)),
            options=options,
            cluster=tile.cluster,
            gate=gate(target, x, w),
            stub=stub_text(instance),
        )


def grouped_tile(target: Target) -> Tile:
    """The tile of grouped kernels: groups have few rows, so one block makes one."""
    return Tile("t256", 128, 256) if target.has("tcgen05") else Tile("t128", 128, 128)


def grouped(target: Target, of: Scaling, output: str, tile: Tile) -> Collective:
    """As `collective`, each operand an array of addresses, one a group."""
    one = collective(target, of, of, output, tile, numbers=1)
    matrices = {
        name: replace(getattr(one, name), layout=f"{getattr(one, name).layout}*")
        for name in ("a", "b", "c", "d")
    }
    tensor_memory = target.has("tcgen05")
    main = "1SmBlockScaledSm100" if tensor_memory else "Cooperative"
    epilogue = "1Sm" if tensor_memory else "Cooperative"
    return replace(
        one,
        **matrices,
        main=f"cutlass::gemm::KernelPtrArrayTmaWarpSpecialized{main}",
        epilogue=f"cutlass::epilogue::PtrArrayTmaWarpSpecialized{epilogue}",
    )


def grouped_spills(target: Target) -> Spill | None:
    """Without tensor memory, the warp that loads has 40 registers, and rewrites four tensor maps where a
    group begins."""
    reason = "the loading warp has 40 registers and rewrites four tensor maps at the start of a group"
    return None if target.has("tcgen05") else Spill(32, reason)
