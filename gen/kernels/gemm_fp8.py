"""gemm_fp8: y[m, n] = scale_a * scale_b * (a[m, k] b[n, k]^T).

a and b e4m3, y of the dtype that option `out` names. scale_a: f32[1], of the whole tensor, or f32[m], of each
row; scale_b: f32[1] or f32[n]. Any pair of them. Knobs: matmul_precision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..formats.axes import Format
from ..lower import cutlass, warp_gemm
from ..lower.warp_gemm import Parameter, Tile
from ..manifest.target import Target
from ..variants.family import Axis, Family, Formula, Instance, Operand
from . import _fp8
from ._fp8 import OUTPUTS, accepts, aligned_output, configurations, gate, types


def parameters(out: str) -> tuple[Parameter, ...]:
    """The entry's parameters, in order."""
    return (*_fp8.parameters(out), Parameter("rows_a", "u32", "shape"), Parameter("rows_b", "u32", "shape"))


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Instance]:
    out = options["out"]
    yield from collectives(dtype, out, target, options)
    for suffix, tile, when in warp_gemm.choice(target, dtype):
        yield warp_level(dtype, out, tile, suffix, (*when, warp_gemm.aligned("k", dtype)), options)
    yield warp_level(dtype, out, warp_gemm.SMALL, "any", (), options, narrow=True)


def takes(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    if "matmul_precision" in options and not target.has("wgmma"):
        missing = f"which target {target.name} does not declare"
        return f"matmul_precision is for sums in registers of warp groups, the feature 'wgmma', {missing}"
    return accepts(fmt, dtype, target, options)


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
    epilogue = f"OuterEpilogue<{warp_gemm.VALUES[out]}>{{scale_a, scale_b, y, n, rows_a, rows_b}}"
    text = warp_gemm.entry(tile, dtype, parameters(out), epilogue, narrow=narrow)
    return warp_gemm.instance(suffix, tile, dtype, text, parameters(out), when, options)


def collectives(dtype: str, out: str, target: Target, options: dict[str, str]) -> Iterator[Instance]:
    """The variants of CUTLASS 3.x."""
    when = (warp_gemm.aligned("k", dtype), aligned_output(out))
    promoted = options.get("matmul_precision") != "hardware"
    for suffix, config, more in configurations(dtype, out, target, promoted):
        made = cutlass.Instantiation(config, ("gemm_fp8.cuh",), "OuterHost")
        args = tuple(p.arg for p in parameters(out))
        yield cutlass.instance(suffix, made, args, (*when, *more), options, gate(target))


def scales(name: str, rows: str, of: Axis) -> Operand:
    """One of the whole tensor, or one of each row."""
    return Operand(name, "array", (rows,), dtype="f32", shapes=((1,), (of,)))


FAMILY = Family(
    (
        Operand("a", "array", ("m", "k")),
        Operand("b", "array", ("n", "k")),
        scales("scale_a", "rows_a", "m"),
        scales("scale_b", "rows_b", "n"),
    ),
    Operand("y", "array", ("m", "n")),
    variants,
    limits={"m": (0, 2**31 - 1), "k": (0, warp_gemm.MOST_COLUMNS)},
    options={"out": OUTPUTS},
    needs=frozenset({"mma_fp8", "cp_async"}),
    types=types,
    accepts=takes,
    knobs={"matmul_precision": ("promoted", "hardware")},
    lattice=lambda fmt, dtype, target, options: warp_gemm.lattice(),
)
