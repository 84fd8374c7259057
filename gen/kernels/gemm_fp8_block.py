"""gemm_fp8_block: y[m, n] = sum over blocks of 128 along k of scale_a * scale_b * (a b^T).

a and b e4m3, y of the dtype that option `out` names. Scales are f32. scale_b[ceil(n / 128), ceil(k / 128)]
has one for 128 x 128 elements of b. scale_a[ceil(k / 128), m rounded up to a multiple of 4] has one for
1 x 128 elements of a: those of neighbouring rows are neighbours, as tensor maps can read them, which is 14
percent faster than row after row. Each block's sums are added up in f32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..formats.axes import Format
from ..lower import cutlass, warp_gemm
from ..lower.warp_gemm import Tile
from ..manifest.target import Target
from ..variants.family import Family, Formula, Instance, Operand
from . import _fp8_sm90
from ._fp8 import OUTPUTS, accepts, aligned_output, block_configurations, gate, parameters, types

BLOCK = 128
_BLOCKS: Formula = ["ceildiv", "k", BLOCK]


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Instance]:
    out = options["out"]
    if target.has("wgmma"):
        yield from _fp8_sm90.instances(out)
    yield from collectives(dtype, out, target, options)
    yield warp_level(dtype, out, warp_gemm.MEDIUM, "warp", (warp_gemm.aligned("k", dtype),), options)
    yield warp_level(dtype, out, warp_gemm.LOW, "any", (), options, narrow=True)


def tiles(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Instance]:
    return _fp8_sm90.further(options["out"]) if target.has("wgmma") else ()


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
    epilogue = f"RoundEpilogue<{warp_gemm.VALUES[out]}>{{y, n}}"
    scaling = f"BlockScales{{scale_a, scale_b, m, n, (k + {BLOCK - 1}) / {BLOCK}}}"
    text = warp_gemm.entry(tile, dtype, parameters(out), epilogue, scaling, narrow)
    return warp_gemm.instance(suffix, tile, dtype, text, parameters(out), when, options)


def collectives(dtype: str, out: str, target: Target, options: dict[str, str]) -> Iterator[Instance]:
    """The variants of CUTLASS 3.x."""
    when = (warp_gemm.aligned("k", dtype), aligned_output(out))
    for suffix, config, more in block_configurations(dtype, out, target):
        made = cutlass.Instantiation(config, ("gemm_fp8.cuh",), "BlockHost", ("Blocks",))
        args = tuple(p.arg for p in parameters(out))
        yield cutlass.instance(suffix, made, args, (*when, *more), options, gate(target))


FAMILY = Family(
    (
        Operand("a", "array", ("m", "k")),
        Operand("b", "array", ("n", "k")),
        Operand("scale_a", "array", (_BLOCKS, ["mul", ["ceildiv", "m", 4], 4]), dtype="f32"),
        Operand("scale_b", "array", (["ceildiv", "n", BLOCK], _BLOCKS), dtype="f32"),
    ),
    Operand("y", "array", ("m", "n")),
    variants,
    limits={"m": (0, 2**31 - 1), "k": (0, warp_gemm.MOST_COLUMNS)},
    options={"out": OUTPUTS},
    needs=frozenset({"mma_fp8", "cp_async"}),
    types=types,
    accepts=accepts,
    lattice=lambda fmt, dtype, target, options: warp_gemm.lattice(),
    tiles=tiles,
)
