"""CUDA C++: extern "C" kernels, static group arrays, no inline PTX in a kernel's body."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import Function, Param, Ref, Value
from . import c
from .walker import Dialect, body, used_helpers

TYPES = {
    "bool": "bool", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "i32": "int32_t", "f16": "__half", "bf16": "__nv_bfloat16", "f32": "float",
}  # fmt: skip

CASTS = {
    ("f16", "f32"): "__half2float({0})",
    ("bf16", "f32"): "__bfloat162float({0})",
    ("f32", "f16"): "__float2half_rn({0})",
    ("f32", "bf16"): "__float2bfloat16_rn({0})",
    **c.numeric_casts(TYPES),
}
BITCASTS = {
    ("f32", "u32"): "__float_as_uint({0})",
    ("u32", "f32"): "__uint_as_float({0})",
    ("f16", "u16"): "__half_as_ushort({0})",
    ("bf16", "u16"): "__bfloat16_as_ushort({0})",
    ("u16", "f16"): "__ushort_as_half({0})",
    ("u16", "bf16"): "__ushort_as_bfloat16({0})",
}

HELPERS = {
    "and_xor": """__device__ __forceinline__ uint32_t and_xor(uint32_t a, uint32_t b, uint32_t c)
{
#ifdef __CUDA_ARCH__
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
#else
    return (a & b) ^ c;
#endif
}
""",
    "half_low": """__device__ __forceinline__ float half_low(uint32_t word)
{
    return __half2float(__ushort_as_half(uint16_t(word)));
}
""",
    "half_high": """__device__ __forceinline__ float half_high(uint32_t word)
{
    return __half2float(__ushort_as_half(uint16_t(word >> 16)));
}
""",
    "nan_min": """__device__ __forceinline__ float nan_min(float a, float b)
{
    return a != a ? a : (b != b ? b : fminf(a, b));
}
""",
    "nan_max": """__device__ __forceinline__ float nan_max(float a, float b)
{
    return a != a ? a : (b != b ? b : fmaxf(a, b));
}
""",
}

_VECTORS = {1: "uint32_t", 2: "uint2", 4: "uint4"}


def _pointer(ref: Ref) -> str:
    const = "" if ref.writable else "const "
    return f"{const}{TYPES[ref.dtype]}*" + (" __restrict__" if ref.alone else "")


def _load_words(value: Value, args: list[str]) -> str:
    ref = value.ref
    if ref is None:
        raise KeyError("load_words names no buffer")
    pointer = f"reinterpret_cast<const {_VECTORS[value.width]}*>({ref.name} + {args[0]})"
    return (
        f"__ldg({pointer})" if ref.space == "global" and ref.alone and not ref.writable else f"(*{pointer})"
    )


def _store_words(value: Value, args: list[str]) -> str:
    name, words = value.ref.name if value.ref else "", args[1:]
    vector = _VECTORS[len(words)]
    made = words[0] if len(words) == 1 else f"make_{vector}({', '.join(words)})"
    return f"*reinterpret_cast<{vector}*>({name} + {args[0]}) = {made};"


_AXES = "xyz"

DIALECT = Dialect(
    name="CUDA C++",
    types=TYPES,
    spell={
        **c.COMMON,
        "thread": lambda v, a: "threadIdx.x",
        "block": lambda v, a: f"blockIdx.{_AXES[int(v.attrs['axis'])]}",
        "grid": lambda v, a: f"gridDim.{_AXES[int(v.attrs['axis'])]}",
        "min": c.extreme("min", "nan_min"),
        "max": c.extreme("max", "nan_max"),
        "fma": c.call("fmaf"),
        "mad": c.call("fmaf"),
        "cast": c.by_types(CASTS, "CUDA cast"),
        "bitcast": c.by_types(BITCASTS, "CUDA bitcast"),
        "unpack_f16": lambda v, a: f"half_{'high' if v.attrs['half'] else 'low'}({c.bare(a[0])})",
        "and_xor": c.call("and_xor"),
        "load_words": _load_words,
        "lane_xor": lambda v, a: f"__shfl_xor_sync(0xffffffffu, {a[0]}, {v.attrs['mask']})",
    },
    statements={
        **c.statements(TYPES, _pointer),
        "store_words": _store_words,
        "barrier": lambda v, a: "__syncthreads();",
        "atomic_add": lambda v, a: f"atomicAdd(&{v.ref.name if v.ref else ''}[{a[0]}], {a[1]});",
    },
    literal=c.literal_of(TYPES, "__uint_as_float({0})"),
    pointer=_pointer,
    vector=lambda width: _VECTORS[width],
    index=c.indexed,
    unroll=lambda trips: "#pragma unroll",
    helpers=HELPERS,
)


def _parameter(param: Param) -> str:
    kind = _pointer(param.ref) if param.ref else TYPES[param.type]
    return f"{kind} {param.symbol}"


def _kernel(function: Function) -> str:
    shared = [
        f"    __shared__ __align__(16) {TYPES[r.dtype]} {r.name}[{r.size}];"
        for r in function.refs
        if r.space == "shared"
    ]
    bounds = f"{function.threads}" + (f", {function.min_blocks}" if function.min_blocks else "")
    head = f'extern "C" __global__ void __launch_bounds__({bounds})\n{function.name}('
    parameters = ",\n    ".join(_parameter(p) for p in function.params)
    return "\n".join([f"{head}\n    {parameters})", "{", *shared, *body(function, DIALECT), "}", ""])


def render(functions: Sequence[Function]) -> str:
    """One .cu file: headers, the tables and helpers that are used, the kernels."""
    kernels = "\n".join(_kernel(f) for f in functions)
    helpers = "\n".join(used_helpers(DIALECT, kernels))
    tables = c.tables(functions, "static __device__ const float", DIALECT.literal)
    text = "\n".join(part for part in (tables, helpers, kernels) if part)
    headers = ["#include <cstdint>"]
    headers += ["#include <cuda_fp16.h>"] if "half" in text else []
    headers += ["#include <cuda_bf16.h>"] if "bfloat16" in text else []
    return "\n".join(headers) + "\n\n" + text
