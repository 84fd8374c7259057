"""Metal Shading Language: kernels with explicit address spaces and buffer indices."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.nodes import Function, Param, Ref, Value, walk
from . import c
from .walker import Dialect, body, used_helpers

TYPES = {
    "bool": "bool", "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong", "i32": "int",
    "f16": "half", "bf16": "bfloat", "f32": "float",
}  # fmt: skip

_SCALARS = ("u8", "u16", "u32", "u64", "i32", "f16", "bf16", "f32")
CASTS = {(a, b): f"{TYPES[b]}({{0}})" for a in _SCALARS for b in _SCALARS if a != b}
BITCASTS = {(a, b): f"as_type<{TYPES[b]}>({{0}})" for a in _SCALARS for b in _SCALARS if a != b}

HELPERS = {
    "half_low": """inline float half_low(uint word)
{
    return float(as_type<half>(ushort(word & 0xffffu)));
}
""",
    "half_high": """inline float half_high(uint word)
{
    return float(as_type<half>(ushort(word >> 16)));
}
""",
    "dot4_i8": c.dot4_i8("inline", "int", "uint"),
    **{name: c.extreme_halves(name, "inline", "uint") for name in ("max_halves", "min_halves")},
    "fma_bf16_halves": c.fma_bf16_halves("inline", "uint", "as_type<float>", "as_type<uint>"),
    **{n: c.pack_floats(n, "inline", "uint", "as_type<float>", "as_type<uint>") for n in c.PACKED},
    "nan_min": """inline float nan_min(float a, float b)
{
    return a != a ? a : (b != b ? b : min(a, b));
}
""",
    "nan_max": """inline float nan_max(float a, float b)
{
    return a != a ? a : (b != b ? b : max(a, b));
}
""",
}

_VECTORS = {1: "uint", 2: "uint2", 4: "uint4"}
_SPACES = {"global": "device", "shared": "threadgroup"}


def _pointer(ref: Ref) -> str:
    return f"device {TYPES[ref.dtype]}*" if ref.writable else f"device const {TYPES[ref.dtype]}*"


def _load_words(value: Value, args: list[str]) -> str:
    ref = value.ref
    if ref is None:
        raise KeyError("load_words names no buffer")
    return f"(*({_SPACES[ref.space]} const {_VECTORS[value.width]}*)({ref.name} + {args[0]}))"


def _store_words(value: Value, args: list[str]) -> str:
    ref, words = value.ref, args[1:]
    if ref is None:
        raise KeyError("store_words names no buffer")
    vector = _VECTORS[len(words)]
    return f"*({_SPACES[ref.space]} {vector}*)({ref.name} + {args[0]}) = {vector}({', '.join(words)});"


def _fragment(ref: Ref) -> tuple[str, str]:
    return f"simdgroup_matrix<{TYPES[ref.dtype]}, 8, 8>", ""


def _tile_load(value: Value, args: list[str]) -> str:
    (tile,), memory, at, stride = c.tile_operands(value, args)
    turned = ", ulong2(0), true" if value.attrs["transposed"] else ""
    return f"simdgroup_load({tile}, {memory.name} + {at}, {stride}{turned});"


def _tile_multiply(value: Value, args: list[str]) -> str:
    (total, left, right), *_ = c.tile_operands(value, args)
    return f"simdgroup_multiply_accumulate({total}, {left}, {right}, {total});"


def _tile_store(value: Value, args: list[str]) -> str:
    (tile,), memory, at, stride = c.tile_operands(value, args)
    return f"simdgroup_store({tile}, {memory.name} + {at}, {stride});"


_AXES = "xyz"
_EXACT = {"abs": "fabs", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}

DIALECT = Dialect(
    name="Metal",
    types=TYPES,
    spell={
        **c.COMMON,
        "thread": lambda v, a: "thread_index",
        "block": lambda v, a: f"block.{_AXES[int(v.attrs['axis'])]}",
        "grid": lambda v, a: f"blocks.{_AXES[int(v.attrs['axis'])]}",
        "min": c.extreme("min", "nan_min"),
        "max": c.extreme("max", "nan_max"),
        "fma": c.call("fma"),
        "mad": c.call("fma"),
        **c.functions(_EXACT, "precise::"),
        "fast_exp": c.call("fast::exp"),
        "fast_div": c.call("fast::divide"),
        "cast": c.by_types(CASTS, "Metal cast"),
        "bitcast": c.by_types(BITCASTS, "Metal bitcast"),
        "unpack_f16": lambda v, a: f"half_{'high' if v.attrs['half'] else 'low'}({c.bare(a[0])})",
        "and_xor": lambda v, a: f"(({a[0]} & {a[1]}) ^ {a[2]})",
        "dot4_i8": c.call("dot4_i8"),
        **c.halves(),
        **{name: c.call(name) for name in c.PACKED},
        "load_words": _load_words,
        "lane_xor": lambda v, a: f"simd_shuffle_xor({a[0]}, ushort({v.attrs['mask']}))",
    },
    statements={
        **c.statements(TYPES, _pointer, _fragment),
        "tile_fill": lambda v, a: (
            f"{v.ref.name if v.ref else ''}[{a[0]}] = make_filled_simdgroup_matrix<float, 8, 8>({a[1]});"
        ),
        "tile_load": _tile_load,
        "tile_multiply": _tile_multiply,
        "tile_store": _tile_store,
        "store_words": _store_words,
        "barrier": lambda v, a: "threadgroup_barrier(mem_flags::mem_threadgroup);",
    },
    literal=c.literal_of(TYPES, "as_type<float>({0})"),
    pointer=_pointer,
    vector=lambda width: _VECTORS[width],
    index=c.indexed,
    unroll=lambda trips: "#pragma unroll",
    helpers=HELPERS,
)

_BUILTINS = {
    "thread": "uint thread_index [[thread_index_in_threadgroup]]",
    "block": "uint3 block [[threadgroup_position_in_grid]]",
    "grid": "uint3 blocks [[threadgroups_per_grid]]",
}


def _parameter(index: int, param: Param) -> str:
    kind = _pointer(param.ref) if param.ref else f"constant {TYPES[param.type]}&"
    return f"{kind} {param.symbol} [[buffer({index})]]"


def _kernel(function: Function) -> str:
    shared = [
        f"    alignas(16) threadgroup {TYPES[r.dtype]} {r.name}[{r.size}];"
        for r in function.refs
        if r.space == "shared"
    ]
    used = {s.op for s in walk(function.body) if isinstance(s, Value)}
    parameters = [_parameter(i, p) for i, p in enumerate(function.params)]
    parameters += [text for op, text in _BUILTINS.items() if op in used]
    head = f"kernel void {function.name}(\n    " + ",\n    ".join(parameters) + ")"
    return "\n".join([head, "{", *shared, *body(function, DIALECT), "}", ""])


def render(functions: Sequence[Function]) -> str:
    """One .metal file: the tables and helpers that are used, the kernels."""
    tables = c.tables(functions, "constant float", DIALECT.literal)
    kernels = "\n".join(_kernel(f) for f in functions)
    helpers = "\n".join(used_helpers(DIALECT, kernels))
    parts = [p for p in (tables, helpers, kernels) if p]
    headers = ["metal_stdlib", *(["metal_simdgroup_matrix"] if "simdgroup_matrix" in kernels else [])]
    included = "".join(f"#include <{header}>\n" for header in headers)
    return f"{included}using namespace metal;\n\n" + "\n".join(parts)
