"""Text of warpgroup MMA instructions: operand lists of up to 128 accumulators, so generated."""

from __future__ import annotations

from collections.abc import Iterable

COLUMNS = range(8, 257, 8)
TYPES = {"bf16": "Bfloat", "f16": "Half"}
"""Activation types, and what cutlass/fragment.cuh calls them."""


def wgmma(columns: int, dtype: str) -> str:
    """`Wgmma<columns, type>` for cutlass/wgmma.cuh: D[64][columns] += A (registers) * B (descriptor)."""
    if columns not in COLUMNS or dtype not in TYPES:
        raise ValueError(
            f"wgmma of {columns} columns of {dtype}: wanted a multiple of 8 from 8 to 256, "
            f"and {' or '.join(TYPES)}"
        )
    count = columns // 2
    results = ", ".join(f"%{i}" for i in range(count))
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{dtype}.{dtype}"
    a = ", ".join(f"%{count + i}" for i in range(4))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    inputs = ", ".join(f'"r"(a[{i}])' for i in range(4))
    return (
        f"template <>\nstruct warpgroup::Wgmma<{columns}, fragment::{TYPES[dtype]}> {{\n"
        f"    static WOOTZ_FN void multiply(float (&d)[{count}], const uint32_t (&a)[4], uint64_t b) {{\n"
        f'        asm volatile("{{\\n.reg .pred p;\\nsetp.eq.u32 p, 0, 0;\\n"\n'
        f'                     "{name} {{{results}}}, "\n'
        f'                     "{{{a}}}, %{count + 4}, p, 1, 1, 0;\\n}}"\n'
        f'                     : {outputs}\n                     : {inputs}, "l"(b));\n'
        "    }\n};\n"
    )


def wgmmas(columns: Iterable[int], dtype: str) -> str:
    """The instructions of several widths, narrowest first, each once."""
    return "".join(wgmma(n, dtype) for n in sorted(set(columns)))


def wgmma_shared(columns: int) -> str:
    """`WgmmaShared<columns>` for cutlass/wgmma.cuh: 8-bit floats, both operands in shared memory."""
    if columns not in COLUMNS:
        raise ValueError(f"wgmma of {columns} columns: wanted a multiple of 8 from 8 to 256")
    count = columns // 2
    results = ", ".join(f"%{i}" for i in range(count))
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k32.f32.e4m3.e4m3"
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return (
        f"template <>\nstruct warpgroup::WgmmaShared<{columns}> {{\n"
        f"    template <bool Add>\n"
        f"    static WOOTZ_FN void multiply(float (&d)[{count}], uint64_t a, uint64_t b) {{\n"
        f'        asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'                     "{name} {{{results}}}, "\n'
        f'                     "%{count}, %{count + 1}, p, 1, 1;\\n}}"\n'
        f'                     : {outputs}\n                     : "l"(a), "l"(b), "n"(Add));\n'
        "    }\n};\n"
    )
