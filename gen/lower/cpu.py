"""Host C++: a kernel runs a range of blocks, each of one thread, so a barrier orders nothing.

The entry's interface: SYMBOL(args, grid, begin, end); args[i] points at the value of argument i, blocks are
numbered x first. f16 and bf16 are carried as their bits, so that any C++17 compiler will do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.nodes import Function, Param, Ref, Value, walk
from . import c
from .walker import Dialect, Refused, body, used_helpers

TYPES = {
    "bool": "bool", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "i32": "int32_t", "f16": "uint16_t", "bf16": "uint16_t", "f32": "float",
}  # fmt: skip

CASTS = {
    ("f16", "f32"): "half_to_float({0})",
    ("bf16", "f32"): "bits_to_float(uint32_t({0}) << 16)",
    ("f32", "f16"): "float_to_half({0})",
    ("f32", "bf16"): "float_to_bfloat({0})",
    **c.numeric_casts(TYPES),
}
BITCASTS = {
    ("f32", "u32"): "float_to_bits({0})",
    ("u32", "f32"): "bits_to_float({0})",
    ("f16", "u16"): "{0}",
    ("bf16", "u16"): "{0}",
    ("u16", "f16"): "{0}",
    ("u16", "bf16"): "{0}",
}

HELPERS = {
    "float_to_bits": """static inline uint32_t float_to_bits(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
""",
    "bits_to_float": """static inline float bits_to_float(uint32_t bits)
{
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
""",
    **{n: c.extreme_halves(n, "static inline", "uint32_t") for n in ("max_halves", "min_halves")},
    "fma_bf16_halves": c.fma_bf16_halves("static inline", "uint32_t", "bits_to_float", "float_to_bits"),
    **{n: c.pack_floats(n, "static inline", "uint32_t", "bits_to_float", "float_to_bits") for n in c.PACKED},
    "half_to_float": """static inline float half_to_float(uint16_t half)
{
#ifdef __F16C__
    return _cvtsh_ss(half);
#else
    const uint32_t magnitude = uint32_t(half & 0x7fffu) << 13;
    const uint32_t sign = uint32_t(half & 0x8000u) << 16;
    const bool special = magnitude >= 0x0f800000u; // infinity and NaN keep all exponent bits
    const float scaled = bits_to_float(magnitude) * 5.192296858534828e+33f; // 2^112 moves the bias
    return bits_to_float((special ? (magnitude | 0x7f800000u) : float_to_bits(scaled)) | sign);
#endif
}
""",
    "float_to_half": """static inline uint16_t float_to_half(float value)
{
#ifdef __F16C__
    return _cvtss_sh(value, 0);
#else
    const uint32_t bits = float_to_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
    } else if (magnitude >= 0x477ff000u) {
        half = 0x7c00u; // from 65520 on, infinity
    } else if (magnitude < 0x38800000u) {
        half = float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000u; // the sum rounds at 2^-24
    } else {
        half = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13; // rebias, round to nearest even
    }
    return uint16_t(half | sign);
#endif
}
""",
    "float_to_bfloat": """static inline uint16_t float_to_bfloat(float value)
{
    const uint32_t bits = float_to_bits(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return uint16_t(value != value ? (bits >> 16) | 0x40u : rounded);
}
""",
    "half_low": """static inline float half_low(uint32_t word)
{
    return half_to_float(uint16_t(word));
}
""",
    "half_high": """static inline float half_high(uint32_t word)
{
    return half_to_float(uint16_t(word >> 16));
}
""",
    "multiply_add": """static inline float multiply_add(float a, float b, float c)
{
#ifdef __FMA__
    return std::fma(a, b, c);
#else
    return a * b + c;
#endif
}
""",
    # One of many, without a choice: compilers make vector instructions of it, and no f32 in it is subnormal.
    "one_half": """static inline float one_half(uint16_t half)
{
#ifdef __ARM_FP16_FORMAT_IEEE
    __fp16 value;
    std::memcpy(&value, &half, sizeof half);
    return value;
#else
    // A subnormal, rebiased like a normal number, is too large.
    const uint32_t magnitude = uint32_t(half & 0x7fffu) << 13, sign = uint32_t(half & 0x8000u) << 16;
    const float normal = bits_to_float(magnitude + 0x38000000u), subnormal = normal * 2.0f - 0x1p-14f;
    const float value = subnormal < normal ? subnormal : normal;
    const uint32_t special = int32_t(magnitude) >= 0x0f800000 ? 0x7f800000u : 0u; // infinity and NaN
    return bits_to_float(float_to_bits(value) | special | sign);
#endif
}
""",
    "mad_halves": """template <int Words>
static inline void mad_halves(float* sums, const uint32_t* words, const float* numbers)
{
#if defined(__F16C__) && defined(__FMA__)
#pragma GCC unroll 64
    for (int i = 0; i < Words; i += 4) {
        __m128i halves;
        __m256 sum, other;
        std::memcpy(&halves, words + i, sizeof halves);
        std::memcpy(&sum, sums + 2 * i, sizeof sum);
        std::memcpy(&other, numbers + 2 * i, sizeof other);
        sum = _mm256_fmadd_ps(_mm256_cvtph_ps(halves), other, sum);
        std::memcpy(sums + 2 * i, &sum, sizeof sum);
    }
#else
    uint16_t halves[2 * Words];
    std::memcpy(halves, words, sizeof halves);
    for (int i = 0; i < 2 * Words; ++i) {
        sums[i] = multiply_add(one_half(halves[i]), numbers[i], sums[i]);
    }
#endif
}
""",
    "dot4_i8": c.dot4_i8("static inline", "int32_t", "uint32_t"),
    "nan_min": """static inline float nan_min(float a, float b)
{
    return a != a ? a : (b != b ? b : (b < a ? b : a));
}
""",
    "nan_max": """static inline float nan_max(float a, float b)
{
    return a != a ? a : (b != b ? b : (a < b ? b : a));
}
""",
    # 8 or 4 floats: what one instruction takes.
    "Vector": """#ifdef __AVX2__
typedef float Vector __attribute__((vector_size(32)));
#else
typedef float Vector __attribute__((vector_size(16)));
#endif
""",
    "multiply_add_vector": """static inline void multiply_add_vector(Vector& sum, float a, const float* b)
{
    Vector other;
    std::memcpy(&other, b, sizeof other);
#if defined(__FMA__) && defined(__AVX2__)
    sum = _mm256_fmadd_ps(_mm256_set1_ps(a), other, sum);
#else
    sum += a * other;
#endif
}
""",
    "tile_fill": """template <int Count> static inline void tile_fill(float (&tile)[Count], float value)
{
    for (int i = 0; i < Count; ++i) {
        tile[i] = value;
    }
}
""",
    "tile_load": """template <int Columns, int Count>
static inline void tile_load(float (&tile)[Count], const float* from, uint32_t stride)
{
    for (int i = 0; i < Count / Columns; ++i) {
        std::memcpy(&tile[i * Columns], from + i * stride, sizeof(float[Columns]));
    }
}
""",
    "tile_load_turned": """template <int Columns, int Count>
static inline void tile_load_turned(float (&tile)[Count], const float* from, uint32_t stride)
{
    for (int i = 0; i < Count; ++i) {
        tile[i] = from[i % Columns * stride + i / Columns];
    }
}
""",
    "tile_store": """template <int Columns, int Count>
static inline void tile_store(float* to, uint32_t stride, const float (&tile)[Count])
{
    for (int i = 0; i < Count / Columns; ++i) {
        std::memcpy(to + i * stride, &tile[i * Columns], sizeof(float[Columns]));
    }
}
""",
    "tile_multiply": """template <int Columns, int Depth, int Sums, int Lefts, int Rights>
static inline void tile_multiply(float (&sum)[Sums], const float (&left)[Lefts], const float (&right)[Rights])
{
    constexpr int Rows = Lefts / Depth, Lanes = sizeof(Vector) / 4, Vectors = Columns / Lanes;
    Vector sums[Rows * Vectors];
#pragma GCC unroll 16
    for (int i = 0; i < Rows * Vectors; ++i) {
        std::memcpy(&sums[i], &sum[i * Lanes], sizeof(Vector));
    }
#pragma GCC unroll 16
    for (int k = 0; k < Depth; ++k) {
#pragma GCC unroll 16
        for (int i = 0; i < Rows * Vectors; ++i) {
            multiply_add_vector(sums[i], left[i / Vectors * Depth + k],
                                &right[k * Columns + i % Vectors * Lanes]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows * Vectors; ++i) {
        std::memcpy(&sum[i * Lanes], &sums[i], sizeof(Vector));
    }
}
""",
    "prefetch": """template <int Distance, int Length> static inline void prefetch(const void* from)
{
    for (int i = 0; i < Length; i += 64) {
        __builtin_prefetch(static_cast<const char*>(from) + Distance + i);
    }
}
""",
    "Words2": "struct Words2 {\n    uint32_t x, y;\n};\n",
    "Words4": "struct Words4 {\n    uint32_t x, y, z, w;\n};\n",
    "load_words": """template <class W> static inline W load_words(const void* from)
{
    W words;
    std::memcpy(&words, from, sizeof words);
    return words;
}
""",
    "store_words": """template <class W> static inline void store_words(void* to, const W& words)
{
    std::memcpy(to, &words, sizeof words);
}
""",
}

_VECTORS = {1: "uint32_t", 2: "Words2", 4: "Words4"}


def _pointer(ref: Ref) -> str:
    const = "" if ref.writable else "const "
    return f"{const}{TYPES[ref.dtype]}*" + (" __restrict" if ref.alone else "")


def _load_words(value: Value, args: list[str]) -> str:
    return f"load_words<{_VECTORS[value.width]}>({value.ref.name if value.ref else ''} + {args[0]})"


def _store_words(value: Value, args: list[str]) -> str:
    name, words = value.ref.name if value.ref else "", args[1:]
    vector = _VECTORS[len(words)]
    made = f"{{{', '.join(words)}}}" if len(words) > 1 else f"({words[0]})"
    return f"store_words({name} + {args[0]}, {vector}{made});"


def _fragment(ref: Ref) -> tuple[str, str]:
    return f"alignas(32) {TYPES[ref.dtype]}", f"[{math.prod(_part(ref))}]"


_STATEMENTS = c.statements(TYPES, _pointer, _fragment)


def _offset(value: Value, args: list[str]) -> str:
    """A hint becomes a prefetch."""
    moved = _STATEMENTS["offset"](value, args)
    if value.ref is None or "distance" not in value.attrs:
        return moved
    return f"{moved} prefetch<{value.attrs['distance']}, {value.attrs['length']}>({value.ref.name});"


def _part(ref: Ref) -> tuple[int, int]:
    if ref.shape is None:
        raise KeyError(f"{ref.name} is no tile")
    return ref.shape.part(ref.part)


def _tile_load(value: Value, args: list[str]) -> str:
    (tile,), memory, at, stride = c.tile_operands(value, args)
    columns = _part(value.ref)[1] if value.ref else 0
    turned = "_turned" if value.attrs["transposed"] else ""
    return f"tile_load{turned}<{columns}>({tile}, {memory.name} + {at}, {stride});"


def _tile_multiply(value: Value, args: list[str]) -> str:
    (total, left, right), *_ = c.tile_operands(value, args)
    depth, columns = _part(value.reads[1])
    return f"tile_multiply<{columns}, {depth}>({total}, {left}, {right});"


def _tile_store(value: Value, args: list[str]) -> str:
    (tile,), memory, at, stride = c.tile_operands(value, args)
    return f"tile_store<{_part(value.reads[0])[1]}>({memory.name} + {at}, {stride}, {tile});"


def _mad_halves(value: Value, args: list[str]) -> str:
    words, numbers = value.reads
    return f"mad_halves<{words.size}>({value.ref.name if value.ref else ''}, {words.name}, {numbers.name});"


def _atomic_add(value: Value, args: list[str]) -> str:
    if value.ref is not None and value.ref.dtype == "f32":
        raise Refused("operation atomic_add of f32 has no lowering to C++")
    return (
        f"__atomic_fetch_add(&{value.ref.name if value.ref else ''}[{args[0]}], {args[1]}, __ATOMIC_RELAXED);"
    )


_AXES = "xyz"

DIALECT = Dialect(
    name="C++",
    types=TYPES,
    spell={
        **c.COMMON,
        "thread": lambda v, a: "0u",
        "block": lambda v, a: f"block_{_AXES[int(v.attrs['axis'])]}",
        "grid": lambda v, a: f"grid[{v.attrs['axis']}]",
        "min": c.extreme("std::min", "nan_min"),
        "max": c.extreme("std::max", "nan_max"),
        "fma": c.call("std::fma"),
        "mad": c.call("multiply_add"),
        **c.functions({"abs": "std::fabs", "round": "std::nearbyint"}, "std::"),
        "rsqrt": lambda v, a: f"(1.0f / std::sqrt({c.bare(a[0])}))",
        "fast_exp": c.call("std::exp"),
        "fast_div": lambda v, a: f"({a[0]} / {a[1]})",
        "cast": c.by_types(CASTS, "C++ cast"),
        "bitcast": c.by_types(BITCASTS, "C++ bitcast"),
        "unpack_f16": lambda v, a: f"half_{'high' if v.attrs['half'] else 'low'}({c.bare(a[0])})",
        "and_xor": lambda v, a: f"(({a[0]} & {a[1]}) ^ {a[2]})",
        "dot4_i8": c.call("dot4_i8"),
        **c.halves(),
        **{name: c.call(name) for name in c.PACKED},
        "load_words": _load_words,
    },
    statements={
        **_STATEMENTS,
        "offset": _offset,
        "tile_fill": lambda v, a: f"tile_fill({v.ref.name if v.ref else ''}[{a[0]}], {a[1]});",
        "tile_load": _tile_load,
        "tile_multiply": _tile_multiply,
        "tile_store": _tile_store,
        "store_words": _store_words,
        "barrier": lambda v, a: "// one thread a block: nothing to wait for",
        "atomic_add": _atomic_add,
        "mad_halves": _mad_halves,
    },
    literal=c.literal_of(TYPES, "bits_to_float({0})"),
    pointer=_pointer,
    vector=lambda width: _VECTORS[width],
    index=c.indexed,
    unroll=lambda trips: f"#pragma GCC unroll {max(1, min(trips, 64))}",
    helpers=HELPERS,
)

_BLOCK = {
    0: "        const uint32_t block_x = linear % grid[0];",
    1: "        const uint32_t block_y = linear / grid[0] % grid[1];",
    2: "        const uint32_t block_z = linear / grid[0] / grid[1];",
}


def _argument(index: int, param: Param) -> str:
    if param.ref is not None:
        const = "" if param.ref.writable else "const "
        kind = f"{const}{TYPES[param.ref.dtype]}*"
        return f"    {_pointer(param.ref)} {param.symbol} = *static_cast<{kind} const*>(args[{index}]);"
    kind = TYPES[param.type]
    return f"    const {kind} {param.symbol} = *static_cast<const {kind}*>(args[{index}]);"


def _kernel(function: Function) -> str:
    axes = {int(s.attrs["axis"]) for s in walk(function.body) if isinstance(s, Value) and s.op == "block"}
    shared = [f"        {TYPES[r.dtype]} {r.name}[{r.size}];" for r in function.refs if r.space == "shared"]
    return "\n".join(
        [
            'extern "C" __attribute__((visibility("default"))) void',
            f"{function.name}(void* const* args, const uint32_t* grid, uint32_t begin, uint32_t end)",
            "{",
            *(_argument(i, p) for i, p in enumerate(function.params)),
            "    for (uint32_t linear = begin; linear < end; ++linear) {",
            *(_BLOCK[axis] for axis in sorted(axes)),
            *shared,
            *body(function, DIALECT, depth=2),
            "    }",
            "}",
            "",
        ]
    )


def _entry(dtype: str, number: float) -> str:
    """Of a table, which stands before the helpers."""
    if math.isfinite(number):
        return DIALECT.literal(dtype, number)
    return "NAN" if math.isnan(number) else "INFINITY" if number > 0 else "(-INFINITY)"


def render(functions: Sequence[Function]) -> str:
    """One .cpp file: headers, the tables and helpers that are used, the kernels."""
    tables = c.tables(functions, "static const float", _entry)
    kernels = "\n".join(_kernel(f) for f in functions)
    helpers = "\n".join(used_helpers(DIALECT, kernels))
    headers = ["#include <algorithm>", "#include <cmath>", "#include <cstdint>", "#include <cstring>"]
    if "_mm256" in helpers:
        headers += ["#if defined(__AVX2__) || defined(__F16C__)", "#include <immintrin.h>", "#endif"]
    elif "_cvt" in helpers:
        headers += ["#ifdef __F16C__", "#include <immintrin.h>", "#endif"]
    parts = [p for p in (tables, helpers, kernels) if p]
    return "\n".join(headers) + "\n\n" + "\n".join(parts)
