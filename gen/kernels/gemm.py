"""gemm: y[m, n] = activation(alpha * a[m, k] b[n, k]^T + beta * c[m, n] + bias[n]); c and bias optional.

f16 and bf16 with f32 sums; the output, and c, are of the same type or (option `out`) f32. i8 with i32 sums
gives them as they are: no c, no bias, no scalars.

y may be c: a thread of gemm_mma.cuh reads the elements of c that it writes, all before the first; CUTLASS 3.x
loads the part of c under a part of a tile before it stores that part, and no other block's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..formats.axes import Format
from ..lower import cutlass, warp_gemm
from ..lower.cutlass import Collective, Instantiation, Matrix
from ..lower.warp_gemm import Parameter, Tile
from ..manifest.target import Target
from ..variants.family import Arg, Family, Formula, Instance, Operand, Scalar

ACTIVATIONS = ("none", "relu", "silu", "gelu")
OUTPUTS = ("same", "f32")

_SIZES = (Parameter("m", "u32", "shape"), Parameter("n", "u32", "shape"), Parameter("k", "u32", "shape"))
_SCALARS = (
    Parameter("alpha", "f32", "scalar"),
    Parameter("beta", "f32", "scalar"),
    Parameter("activation", "u32", "scalar"),
)
_PLAIN: tuple[Formula, ...] = (
    ["eq", "has_c", 0],
    ["eq", "has_bias", 0],
    ["eq", "alpha", 1],
    ["eq", "activation", 0],
)
"""What integer sums leave nothing of."""


def output(dtype: str, options: dict[str, str]) -> str:
    """The dtype of c and y."""
    if dtype == "i8":
        return "i32"
    return dtype if options["out"] == "same" else options["out"]


def types(dtype: str, options: dict[str, str]) -> dict[str, str]:
    out = output(dtype, options)
    return {} if out == dtype else {"c": out, "y": out}


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    if dtype not in ("f16", "bf16", "i8"):
        return f"matrix instructions of gemm take f16, bf16 and i8; got {dtype}"
    if dtype != "i8":
        return None
    if not target.has("mma_s8"):
        return f"i8 needs the feature 'mma_s8', which target {target.name} does not declare"
    return (
        "i8 gives its sums as they are, in i32: there is no f32 output" if options["out"] != "same" else None
    )


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Instance]:
    out = output(dtype, options)
    yield from collectives(dtype, out, target, options)
    extra = _PLAIN if dtype == "i8" else ()
    for suffix, tile, when in warp_gemm.choice(target, dtype):
        yield warp_level(dtype, out, tile, suffix, (*extra, *when, warp_gemm.aligned("k", dtype)), options)
    yield warp_level(dtype, out, warp_gemm.SMALL, "any", extra, options, narrow=True)


def warp_level(
    dtype: str,
    out: str,
    tile: Tile,
    suffix: str,
    when: tuple[Formula, ...],
    options: dict[str, str],
    narrow: bool = False,
) -> Instance:
    """A variant on warp-level matrix instructions."""
    a, b, y = Parameter("a", "bytes", "in"), Parameter("b", "bytes", "in"), Parameter("y", out, "out")
    if dtype == "i8":
        parameters: tuple[Parameter, ...] = (a, b, y, *_SIZES)
        epilogue = "ExactEpilogue{y, n}"
    else:
        parameters = (a, b, Parameter("c", out, "in"), Parameter("bias", dtype, "in"), y, *_SIZES, *_SCALARS)
        values = f"{warp_gemm.VALUES[dtype]}, {warp_gemm.VALUES[out]}"
        epilogue = f"DenseEpilogue<{values}>{{c, bias, y, n, alpha, beta, activation}}"
    text = warp_gemm.entry(tile, dtype, parameters, epilogue, narrow=narrow)
    return warp_gemm.instance(suffix, tile, dtype, text, parameters, when, options)


ARGUMENTS = (
    *(Arg(name, "ptr", "in") for name in ("a", "b", "c", "bias")),
    Arg("y", "ptr", "out"),
    *(p.arg for p in (*_SIZES, *_SCALARS)),
)
"""What the stub of a GEMM of floats is given, in order; that of one of integers: no c, bias and scalars."""


def collectives(dtype: str, out: str, target: Target, options: dict[str, str]) -> Iterator[Instance]:
    """The variants of CUTLASS 3.x: rows of a, b and y begin at multiples of 16 bytes."""
    exact = dtype == "i8"
    header, host = ("gemm_fp8.cuh", "ExactHost") if exact else ("gemm_dense.cuh", "Dense")
    args = tuple(a for a in ARGUMENTS if not exact or a.name in ("a", "b", "y", "m", "n", "k"))
    when: tuple[Formula, ...] = (
        *(_PLAIN if exact else ()),
        warp_gemm.aligned("k", dtype),
        ["eq", ["mod", "n", 16 // cutlass.BYTES[out]], 0],
    )
    for suffix, config, more in configurations(dtype, out, target):
        made = Instantiation(config, (header,), host)
        yield cutlass.instance(suffix, made, args, (*when, *more), options, gate(dtype, target))


def gate(dtype: str, target: Target) -> str:
    """Rows of the table of gate.py for the configurations of CUTLASS."""
    instruction = "igmma" if dtype == "i8" else "hgmma" if target.has("wgmma") else "utchmma"
    return f"{instruction}+utmaldg"


_PINGPONG = ("cutlass::gemm::KernelTmaWarpSpecializedPingpong", "cutlass::epilogue::TmaWarpSpecialized")


def configurations(
    dtype: str, out: str, target: Target
) -> Iterator[tuple[str, Collective, tuple[Formula, ...]]]:
    """(suffix, configuration, further conditions), in the order in which they are tried. Small tiles are for
    few rows, and where large ones would be fewer than there are multiprocessors."""
    depth = 128 // cutlass.BYTES[dtype]
    tiles: Formula = ["mul", ["ceildiv", "m", 128], ["ceildiv", "n", 128]]
    many: tuple[Formula, ...] = (["gt", "m", 64], ["gt", tiles, "sms"])

    def config(
        generation: int, m: int, n: int, cluster: tuple[int, int], schedule: tuple[str, ...]
    ) -> Collective:
        return _collective(generation, dtype, out, (m, n, depth), (*cluster, 1), schedule)

    if target.has("wgmma"):
        yield "tma_large", config(90, 128, 128, (1, 2), _PINGPONG), many
        yield "tma_small", config(90, 64, 128, (1, 1), _PINGPONG), ()
    elif target.has("tcgen05") and dtype != "i8":
        yield "tma_large", config(100, 256, 256, (2, 1), ()), (["gt", "m", 128],)
        yield "tma_small", config(100, 128, 128, (1, 1), ()), ()


def _collective(
    generation: int,
    dtype: str,
    out: str,
    tile: tuple[int, int, int],
    cluster: tuple[int, int, int],
    schedule: tuple[str, ...],
) -> Collective:
    """Sums of integers leave as they are; those of floats go through the epilogue."""
    align, align_out, exact = 16 // cutlass.BYTES[dtype], 16 // cutlass.BYTES[out], dtype == "i8"
    fusion = f"DenseFusion<{cutlass.ELEMENTS[dtype]}, {cutlass.ELEMENTS[out]}>"
    if exact:
        fusion = f"typename Unscaled<{cutlass.ELEMENTS[out]}>::Fusion"
    return Collective(
        generation,
        Matrix(dtype, align),
        Matrix(dtype, align, "Column"),
        Matrix("void" if exact else out, align_out),
        Matrix(out, align_out),
        tile,
        cluster,
        "i32" if exact else "f32",
        fusion=fusion,
        **dict(zip(("main", "epilogue"), schedule)),
    )


FAMILY = Family(
    (
        Operand("a", "array", ("m", "k")),
        Operand("b", "array", ("n", "k")),
        Operand("c", "array", ("m", "n"), optional=True),
        Operand("bias", "array", ("n",), optional=True),
    ),
    Operand("y", "array", ("m", "n")),
    variants,
    limits={"m": (0, 2**31 - 1), "k": (0, warp_gemm.MOST_COLUMNS)},
    alias=("c",),
    options={"out": OUTPUTS},
    needs=frozenset({"mma", "cp_async"}),
    scalars=(
        Scalar("alpha", "f32", 1),
        Scalar("beta", "f32", 0, needs="c"),
        Scalar("activation", "u32", 0, ACTIVATIONS),
    ),
    types=types,
    accepts=accepts,
    lattice=lambda fmt, dtype, target, options: warp_gemm.lattice(),
)
