"""CUDA C++: extern "C" kernels, static group arrays, no inline PTX in a kernel's body."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.nodes import Function, Param, Ref, Value
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


def _ptx(function: str) -> str:
    return f"#ifdef __CUDA_ARCH__\n{function}#endif\n"


_DOT4 = f"""#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
__device__ __forceinline__ int32_t dot4_i8(uint32_t a, uint32_t b, int32_t total)
{{
    return __dp4a(int32_t(a), int32_t(b), total);
}}
#else
{c.dot4_i8("__device__ __forceinline__", "int32_t", "uint32_t")}#endif
"""


def _extreme_halves(name: str) -> str:
    return f"""#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint32_t {name}(uint32_t a, uint32_t b)
{{
    uint32_t result;
    asm("{name[:3]}.u16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}}
#else
{c.extreme_halves(name, "__device__ __forceinline__", "uint32_t")}#endif
"""


_FMA_HALVES = f"""__device__ __forceinline__ uint32_t fma_bf16_halves(uint32_t a, uint32_t b, uint32_t c)
{{
    uint32_t result = 0;
#ifdef __CUDA_ARCH__
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
#else
{c.fma_halves("uint32_t", "__uint_as_float", "__float_as_uint")}#endif
    return result;
}}
"""


def _pack_floats(name: str) -> str:
    kind = name.removeprefix("pack_")
    return f"""#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
__device__ __forceinline__ uint32_t {name}(float a, float b, float c, float d)
{{
    uint32_t result;
    asm("{{\\n"
        ".reg .b16 low, high;\\n"
        "cvt.rn.satfinite.{kind}x2.f32 low, %2, %1;\\n"
        "cvt.rn.satfinite.{kind}x2.f32 high, %4, %3;\\n"
        "mov.b32 %0, {{low, high}};\\n"
        "}}"
        : "=r"(result)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return result;
}}
#else
{c.pack_floats(name, "__device__ __forceinline__", "uint32_t", "__uint_as_float", "__float_as_uint")}#endif
"""


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
    "dot4_i8": _DOT4,
    "max_halves": _extreme_halves("max_halves"),
    "min_halves": _extreme_halves("min_halves"),
    "fma_bf16_halves": _FMA_HALVES,
    **{name: _pack_floats(name) for name in c.PACKED},
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
    # m16n8k16 fragments, with g = lane / 4 and t = lane % 4. left: register r is row g + 8 (r & 1), columns
    # 2 t + 8 (r >> 1) and the next; right: register r is rows 2 t + 8 r and the next, column g; sum: element
    # i is row g + 8 (i >> 1), column 2 t + (i & 1). The PTX has twins where text runs on a host.
    **{
        f"mma_m16n8k16_{kind}_f32": _ptx(
            f"""__device__ __forceinline__ void mma_m16n8k16_{kind}_f32(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4])
{{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "
                 "{{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%10,%11,%12,%13}};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
                   "f"(c[1]), "f"(c[2]), "f"(c[3]));
}}
"""
        )
        for kind in ("f16", "bf16")
    },
    "ldmatrix_x4": _ptx(
        """__device__ __forceinline__ void ldmatrix_x4(uint32_t (&result)[4], const void* row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
}
"""
    ),
    # Programmatic dependent launch. On a host launches follow each other.
    **{
        name: f"""__device__ __forceinline__ void {name}()
{{
#ifdef __CUDA_ARCH__
    asm volatile("griddepcontrol.{instruction};" ::: "memory");
#endif
}}
"""
        for name, instruction in (("grid_wait", "wait"), ("grid_release", "launch_dependents"))
    },
    "tile_fill": """__device__ __forceinline__ void tile_fill(float (&sum)[4], float value)
{
    sum[0] = sum[1] = sum[2] = sum[3] = value;
}
""",
    # Rows of shared memory, aligned to 16 bytes.
    "tile_load_rows": """template <class T>
__device__ __forceinline__ void tile_load_rows(uint32_t (&left)[4], const T* from, uint32_t stride)
{
    const uint32_t lane = threadIdx.x % 32;
    ldmatrix_x4(left, from + lane % 16 * stride + lane / 16 * 8);
}
""",
    # Element (row, column) lies at row * down + column * right.
    "tile_load_left": """template <class T>
__device__ __forceinline__ void tile_load_left(uint32_t (&left)[4], const T* from, uint32_t down,
                                               uint32_t right)
{
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (uint32_t r = 0; r < 4; ++r) {
        const T pair[2] = {from[(g + r % 2 * 8) * down + (2 * t + r / 2 * 8) * right],
                           from[(g + r % 2 * 8) * down + (2 * t + r / 2 * 8 + 1) * right]};
        memcpy(&left[r], pair, 4);
    }
}
""",
    "tile_load_right": """template <class T>
__device__ __forceinline__ void tile_load_right(uint32_t (&tile)[2], const T* from, uint32_t down,
                                                uint32_t right)
{
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (uint32_t r = 0; r < 2; ++r) {
        const T pair[2] = {from[(2 * t + r * 8) * down + g * right],
                           from[(2 * t + r * 8 + 1) * down + g * right]};
        memcpy(&tile[r], pair, 4);
    }
}
""",
    # The transpose lies in shared memory, its rows aligned to 4 bytes.
    "tile_load_columns": """template <class T>
__device__ __forceinline__ void tile_load_columns(uint32_t (&right)[2], const T* from, uint32_t stride)
{
    const T* place = from + threadIdx.x % 32 / 4 * stride + threadIdx.x % 4 * 2;
    right[0] = *reinterpret_cast<const uint32_t*>(place);
    right[1] = *reinterpret_cast<const uint32_t*>(place + 8);
}
""",
    "tile_store": """__device__ __forceinline__ void tile_store(float* to, uint32_t stride,
                                           const float (&sum)[4])
{
    float* place = to + threadIdx.x % 32 / 4 * stride + threadIdx.x % 4 * 2;
    place[0] = sum[0];
    place[1] = sum[1];
    place[8 * stride] = sum[2];
    place[8 * stride + 1] = sum[3];
}
""",
}

_VECTORS = {1: "uint32_t", 2: "uint2", 4: "uint4"}
_FRAGMENTS = {"left": ("uint32_t", "[4]"), "right": ("uint32_t", "[2]"), "sum": ("float", "[4]")}


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


def _tile_load(value: Value, args: list[str]) -> str:
    (tile,), memory, at, stride = c.tile_operands(value, args)
    part, transposed = value.ref.part if value.ref else "", bool(value.attrs["transposed"])
    if memory.space == "shared" and transposed == (part == "right"):
        return f"tile_load_{'columns' if transposed else 'rows'}({tile}, {memory.name} + {at}, {stride});"
    down, right = ("1u", stride) if transposed else (stride, "1u")
    return f"tile_load_{part}({tile}, {memory.name} + {at}, {down}, {right});"


def _tile_multiply(value: Value, args: list[str]) -> str:
    (total, left, right), *_ = c.tile_operands(value, args)
    return f"mma_m16n8k16_{value.reads[0].dtype}_f32({total}, {left}, {right}, {total});"


def _tile_store(value: Value, args: list[str]) -> str:
    (tile,), memory, at, stride = c.tile_operands(value, args)
    return f"tile_store({memory.name} + {at}, {stride}, {tile});"


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
        **c.functions({"abs": "fabsf", "round": "rintf"}, suffix="f"),
        "fast_exp": c.call("__expf"),
        "fast_div": c.call("__fdividef"),
        "cast": c.by_types(CASTS, "CUDA cast"),
        "bitcast": c.by_types(BITCASTS, "CUDA bitcast"),
        "unpack_f16": lambda v, a: f"half_{'high' if v.attrs['half'] else 'low'}({c.bare(a[0])})",
        "and_xor": c.call("and_xor"),
        "dot4_i8": c.call("dot4_i8"),
        **c.halves(),
        **{name: c.call(name) for name in c.PACKED},
        "load_words": _load_words,
        "lane_xor": lambda v, a: f"__shfl_xor_sync(0xffffffffu, {a[0]}, {v.attrs['mask']})",
    },
    statements={
        **c.statements(TYPES, _pointer, lambda ref: _FRAGMENTS[ref.part]),
        "tile_fill": lambda v, a: f"tile_fill({v.ref.name if v.ref else ''}[{a[0]}], {a[1]});",
        "tile_load": _tile_load,
        "tile_multiply": _tile_multiply,
        "tile_store": _tile_store,
        "store_words": _store_words,
        "barrier": lambda v, a: "__syncthreads();",
        "grid_wait": lambda v, a: "grid_wait();",
        "grid_release": lambda v, a: "grid_release();",
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
