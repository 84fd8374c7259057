"""What benching knows of each kernel beyond its check and its signature: plain data.

Kernels that are not named here are benched too, at the sizes that a call names: all of their operands are
drawn on the host, and their floor is that of bytes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Family:
    """shape: the symbols that `--shapes 14336x4096` gives, in order. sizes: the default ones, in that order.
    beside: the extents that those lack. grows: symbols along which outputs do not depend on each other, so
    that a few rows, repeated, are a problem of any size whose result is known. flops: factors of a call's
    operations. sparse: operands of which only a part is touched: an array that names the matrices or rows,
    groups' counts, or a quotient of extents. written: operands that are updated without being read. drawn:
    rows that are drawn of a symbol that grows: whole tiles, and whole blocks of scales."""

    shape: str
    sizes: tuple[str, ...]
    beside: Mapping[str, int] = field(default_factory=dict)
    grows: tuple[str, ...] = ()
    flops: str = ""
    sparse: Mapping[str, str] = field(default_factory=dict)
    written: tuple[str, ...] = ()
    drawn: int = 512


_WEIGHTS = ("14336x4096", "4096x14336", "4096x4096")
_GEMV = Family("n k", _WEIGHTS, {"m": 1}, ("m", "n"), "2 m n k")
_QMM = Family("n k", _WEIGHTS[:1], {"m": 16}, ("m", "n"), "2 m n k")
_GEMM = Family("m n k", ("8192x8192x8192", "4096x14336x4096"), grows=("m", "n"), flops="2 m n k")
_FP8 = Family(
    "m n k", ("8192x8192x8192",), {"rows_a": 1, "rows_b": 1}, ("m", "n", "rows_a", "rows_b"), "2 m n k"
)
_BANK = {"w": "counts", "v": "counts"}
_GROUPED = Family("n k", ("2048x7168",), {"m": 512, "experts": 64}, ("n",), "2 m n k", _BANK, (), 128)
_PAIRED = Family("n k", ("2048x7168",), {"m": 512, "experts": 64}, ("n",), "4 m n k", _BANK, (), 128)
_INDEXED = Family(
    "n k", ("2048x7168",), {"groups": 8, "rows": 1, "experts": 64}, ("n",), "2 groups rows n k",
    {"w": "indices"}, (), 128,
)  # fmt: skip
_SCALED = Family("m n k", ("4096x14336x4096",), flops="2 m n k")
_ROWS = Family("m n", ("8192x8192",), grows=("m",))
_GATED = Family("m k", ("8192x8192",), grows=("m",))
_FLAT = Family("n", ("67108864",), grows=("n",))
_WEIGHT = Family("n k", ("8192x8192",), grows=("n",))
_TOKENS = Family("n k", ("8192x8192",), {"t": 8192}, sparse={"y": "indices"})
_CACHES = ("k_cache", "v_cache")
_HEADS = {"b": 8, "h": 32, "hk": 8, "s": 1, "t": 8192, "d": 128}


def _appended(part: str) -> Family:
    return Family("", (), sparse=dict.fromkeys(_CACHES, part), written=_CACHES)


FAMILIES: Mapping[str, Family] = {
    "qgemv": _GEMV,
    "gemv": _GEMV,
    "gemv_fp8": _GEMV,
    "gemv_scaled": _GEMV,
    "gemm_i8_dp4a": _GEMV,
    "rms_norm_qgemv": _GEMV,
    "qmm": _QMM,
    "qmm_packed": _QMM,
    "qmm_packed_a8": _QMM,
    "gemm": _GEMM,
    "gemm_fp8": _FP8,
    "gemm_fp8_block": _GEMM,
    "scaled_gemm": _SCALED,
    "scaled_gemm_mixed": _SCALED,
    "grouped_qmm": _GROUPED,
    "grouped_gemm": _GROUPED,
    "grouped_gemm_fp8": _GROUPED,
    "grouped_qmm_paired": _PAIRED,
    "grouped_gemm_paired": _PAIRED,
    "grouped_gemm_fp8_paired": _PAIRED,
    "grouped_qmm_indexed": _INDEXED,
    "grouped_gemm_indexed": _INDEXED,
    "grouped_gemm_fp8_indexed": _INDEXED,
    "moe_gather_qgemv": Family(
        "n k", ("2048x7168",), {"t": 8, "experts": 64}, ("n",), "2 t n k", {"w": "indices"}
    ),
    "softmax": _ROWS,
    "log_softmax": _ROWS,
    "rms_norm": _ROWS,
    "layer_norm": _ROWS,
    "add_rms_norm": _ROWS,
    "reduce": _ROWS,
    "cumsum": _ROWS,
    "swiglu": _GATED,
    "geglu": _GATED,
    "binary": _FLAT,
    "copy": _FLAT,
    "cast": _FLAT,
    "unary": _FLAT,
    "reduce_all": Family("n", ("67108864",)),
    "dequant": _WEIGHT,
    "quantize": _WEIGHT,
    "prepack": _WEIGHT,
    "quantize_activations": _GATED,
    "gather": Family("n k", ("8192x8192",), {"t": 8192}, ("t",), sparse={"x": "indices"}),
    "dequant_gather": Family("n k", ("8192x8192",), {"t": 8192}, ("t",), sparse={"w": "indices"}),
    "scatter": _TOKENS,
    "transpose": Family("m n", ("8192x8192",), {"b": 1}),
    "rope": Family("t h d", ("8192x64x128",)),
    "attention": Family("t d", ("8192x128",), _HEADS, ("b",), "4 b h s t d", drawn=1),
    "kv_append": _appended("s/t"),
    "kv_append_paged": _appended("b s/pages page"),
    "kv_append_quantised": _appended("b s hk/rows"),
}


def family(kernel: str) -> Family:
    """That of a kernel; without defaults for one that is not named."""
    return FAMILIES.get(kernel, Family("", ()))
