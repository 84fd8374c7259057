"""The checker is checked: each kind of mistake, planted in a kernel that works, is caught by its layer.

A layer is (sanitizer, order). It says a kind of `lanes.KINDS`, "compile", or "wrong" (the result differs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from lanes import ORDERS, CompileError, ExecutionError, MissingTool, Program, tools
from samples import SAMPLES, SUFFIX

from gen.toolchain import nvcc

Layer = tuple[str | None, int]

PLAIN: Layer = (None, 0)
PLAIN_REVERSED: Layer = (None, 1)
PLAIN_SHUFFLED: Layer = (None, 2)
ADDRESS: Layer = ("address", 0)
THREAD: Layer = ("thread", 0)
THREAD_REVERSED: Layer = ("thread", 1)
THREAD_SHUFFLED: Layer = ("thread", 2)

BARRIER = "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"


@dataclass(frozen=True)
class Bug:
    """`old` becomes `new`, everywhere if `every`; caught: what each of the given layers is to say."""

    name: str
    backend: str
    sample: str
    old: str
    new: str
    caught: Mapping[Layer, str]
    every: bool = False

    def text(self) -> str:
        text = SAMPLES[self.sample].text(self.backend)
        assert self.old in text, f"{self.name}: the sample changed; {self.old!r} is not in it"
        return text.replace(self.old, self.new, -1 if self.every else 1)


def everywhere(kind: str) -> dict[Layer, str]:
    return dict.fromkeys((PLAIN, PLAIN_REVERSED, PLAIN_SHUFFLED, ADDRESS, THREAD), kind)


RACE = {THREAD: "thread", THREAD_REVERSED: "thread", THREAD_SHUFFLED: "thread"}
OUTSIDE = {PLAIN: "memory", PLAIN_REVERSED: "memory", ADDRESS: "address"}
UNDEFINED = {PLAIN: "undefined", PLAIN_REVERSED: "undefined", ADDRESS: "undefined"}
COMPILE = {PLAIN: "compile"}

BUGS = [
    Bug("store one past the end", "cuda", "silu", "i >= n2", "i > n2", OUTSIDE),
    Bug("store one past the end", "metal", "silu", "gid >= n4", "gid > n4", OUTSIDE),
    Bug("load past the end", "cuda", "words", "uint4*>(x + 16 * t)", "uint4*>(x + 16 * t + 16)", OUTSIDE),
    Bug("load past the end", "metal", "words", "uint4*)(x + 16 * t)", "uint4*)(x + 16 * t + 16)", OUTSIDE),
    Bug("input written", "cuda", "words", "y[4 * t] = sum;",
        "y[4 * t] = sum; const_cast<uint8_t*>(x)[t] = 0;",
        {PLAIN: "memory", ADDRESS: "memory"}),
    Bug("barrier missing before a read", "cuda", "gemv", "    __syncthreads();\n", "",
        {PLAIN: "wrong", PLAIN_SHUFFLED: "wrong", **RACE}),
    Bug("barrier missing before a read", "metal", "gemv", BARRIER, "",
        {PLAIN: "wrong", PLAIN_SHUFFLED: "wrong", **RACE}),
    Bug("barrier missing before the next write", "cuda", "mm", "        __syncthreads();\n    }\n    for",
        "    }\n    for",
        RACE),
    Bug("barrier missing before the next write", "metal", "mm", f"    {BARRIER}    }}\n    for",
        "    }\n    for", RACE),
    Bug("barrier that orders no memory", "metal", "gemv", "mem_flags::mem_threadgroup",
        "mem_flags::mem_none", RACE),
    Bug("barrier in a branch", "cuda", "gemv", "    __syncthreads();",
        "    if (tid < 64) { __syncthreads(); }",
        everywhere("lanes")),
    Bug("barrier in a branch", "metal", "gemv", BARRIER, f"if (sg == 0) {{ {BARRIER} }}",
        everywhere("lanes")),
    Bug("sum in a branch", "metal", "gemv", "acc = simd_sum(acc);",
        "if (lane < 16) { acc = simd_sum(acc); }",
        everywhere("lanes")),
    Bug("shuffle with too small a mask", "cuda", "gemv", "__shfl_down_sync(0xffffffffu",
        "__shfl_down_sync(0xffffu",
        everywhere("lanes")),
    Bug("group memory overrun", "cuda", "gemv", "part[tid / 32] = acc", "part[tid / 32 + 1] = acc",
        UNDEFINED),
    Bug("group memory overrun", "metal", "gemv", "part[sg] = acc", "part[sg + 1] = acc", UNDEFINED),
    Bug("group memory overrun by a pointer", "cuda", "gemv", "part[tid / 32] = acc",
        "float* p = part; p[tid / 8] = acc",
        {ADDRESS: "address"}),
    Bug("group memory not initialised", "cuda", "gemv", "if (tid % 32 == 0) {",
        "if (tid % 32 == 0 && tid < 96) {",
        everywhere("wrong")),
    Bug("group memory not initialised", "metal", "gemv", "if (lane == 0) {", "if (lane == 0 && sg != 3) {",
        everywhere("wrong")),
    Bug("table overrun", "cuda", "words", "v.x & 3u", "v.x & 7u", UNDEFINED),
    Bug("table overrun", "metal", "words", "code & 3u", "code & 7u", UNDEFINED),
    Bug("misaligned load of 16 bytes", "cuda", "words", "uint4*>(x + 16 * t)", "uint4*>(x + 4 * t)",
        UNDEFINED),
    Bug("misaligned load of 16 bytes", "metal", "words", "uint4*)(x + 16 * t)", "uint4*)(x + 4 * t)",
        UNDEFINED),
    Bug("misaligned load of 8 bytes", "cuda", "words", "uint2*>(x + 16 * t)", "uint2*>(x + 4 * t)",
        UNDEFINED),
    Bug("misaligned ldmatrix", "cuda", "mm", "* 40", "* 36", everywhere("lanes"), every=True),
    Bug("shift by 32", "cuda", "words", "v.y >> 18", "v.y >> (m - 8)", UNDEFINED),
    Bug("matrix fragments swapped", "cuda", "mm", "b0[2] = {fb[0], fb[1]}", "b0[2] = {fb[1], fb[0]}",
        everywhere("wrong")),
    Bug("two groups write one element", "metal", "gemv", "{ y[row] =", "{ y[row / 2 * 2] =",
        everywhere("wrong")),
    Bug("loop without end", "cuda", "words", "o >>= 1", "o >>= 0", {PLAIN: "timeout", ADDRESS: "timeout"}),
    Bug("loop without end", "metal", "words", "o >>= 1", "o >>= 0", {PLAIN: "timeout"}),
    Bug("local variable not initialised", "cuda", "gemv", "float acc = 0.0f", "float acc", COMPILE),
    Bug("local variable not initialised", "metal", "gemv", "float acc = 0.0f",
        "float acc; if (k == 0) { acc = 0.0f; }",
        everywhere("wrong")),
    Bug("scalar of another type", "cuda", "words", "uint64_t n", "uint32_t n", COMPILE),
    Bug("scalar of another type", "metal", "gemv", "constant uint& k", "constant ulong& k", COMPILE),
    Bug("output that is const", "cuda", "gemv", "float* __restrict__ y", "const float* __restrict__ y",
        COMPILE),
    Bug("output that is const", "metal", "silu", "device half4* y ", "device const half4* y ", COMPILE),
    Bug("argument missing", "cuda", "silu", ", uint32_t n2", "", COMPILE),
    Bug("buffer index given twice", "metal", "gemv", "[[buffer(1)]]", "[[buffer(2)]]", COMPILE),
    Bug("buffer index left out", "metal", "gemv", "[[buffer(4)]]", "[[buffer(5)]]", COMPILE),
    Bug("buffer indices swapped", "metal", "gemv",
        "scales    [[buffer(1)]],\n    device const half* x         [[buffer(2)]]",
        "scales    [[buffer(2)]],\n    device const half* x         [[buffer(1)]]", OUTSIDE),
    Bug("misspelt attribute", "metal", "gemv", "[[thread_index_in_simdgroup]]",
        "[[thread_index_in_simd_group]]", COMPILE),
    Bug("attribute missing", "metal", "gemv", "[[thread_index_in_simdgroup]]", "", COMPILE),
    Bug("pointer into another address space", "metal", "gemv", "    device const half* s",
        "    threadgroup const half* s",
        COMPILE),
    Bug("pointer without address space", "metal", "gemv", "    device const half* s", "    const half* s",
        COMPILE),
    Bug("write through constant", "metal", "gemv", "acc = simd_sum(acc);", "acc = simd_sum(acc); k = 0;",
        COMPILE),
    Bug("unknown function", "metal", "gemv", "simd_sum", "simd_summ", COMPILE),
    Bug("unknown function", "cuda", "gemv", "__half2float", "__half2single", COMPILE),
    Bug("double", "metal", "gemv", "- 8.0f", "- double(8.0f)", COMPILE),
]  # fmt: skip


def verdict(sample_name: str, backend: str, text: str, layer: Layer) -> str:
    """What the checker says of a text: "right", "wrong", "compile", or the kind of an ExecutionError."""
    sample = SAMPLES[sample_name]
    try:
        error = sample.run(backend, text, *layer, seconds=2)
    except CompileError:
        return "compile"
    except ExecutionError as failure:
        return failure.kind
    return "right" if error <= sample.tolerance else "wrong"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.backend}-{bug.name.replace(' ', '-')}")
def test_planted_bug_is_caught(bug: Bug) -> None:
    text = bug.text()
    found = {layer: verdict(bug.sample, bug.backend, text, layer) for layer in bug.caught}
    assert found == dict(bug.caught)


@pytest.mark.parametrize("sanitizer", [None, "address", "thread"], ids=lambda s: s or "plain")
@pytest.mark.parametrize("backend", SUFFIX)
@pytest.mark.parametrize("name", SAMPLES)
def test_sample_is_right(name: str, backend: str, sanitizer: str | None) -> None:
    text = SAMPLES[name].text(backend)
    found = {order: verdict(name, backend, text, (sanitizer, order)) for order in ORDERS}
    assert found == dict.fromkeys(ORDERS, "right")


def test_a_dead_process_is_one_launch_only() -> None:
    """After a launch that ended its process, the next one runs; and the report names block, thread and
    line.
    """
    bug = next(b for b in BUGS if b.name == "barrier in a branch" and b.backend == "cuda")
    sample = SAMPLES["gemv"]
    case = sample.fresh_case()
    entry = sample.entries["cuda"]
    line = 1 + bug.text().split("__syncthreads")[0].count("\n")
    with Program.build(bug.text(), "cuda", [entry]) as program:
        for _ in range(2):
            with pytest.raises(
                ExecutionError, match=rf"(?s)block \(0,0,0\).*thread \d+: waiting, op 1, line {line},"
            ):
                program.run(entry, case.values)
        right = {**case.values, ("rows", "shape"): 0}
        assert program.run(entry, right)[("y", "out")].shape == (6,)  # an empty grid runs nothing


def test_a_report_names_the_buffer_and_the_source_line() -> None:
    bug = next(b for b in BUGS if b.name == "load past the end" and b.backend == "metal")
    sample = SAMPLES["words"]
    entry = sample.entries["metal"]
    with Program.build(bug.text(), "metal", [entry]) as program, pytest.raises(ExecutionError) as caught:
        program.run(entry, sample.fresh_case().values)
    assert caught.value.kind == "memory"
    assert "0 bytes past the end of 'x' (1024 bytes)" in str(caught.value)
    assert "emitted.metal" in str(caught.value)


def test_launch_statistics_count_threads_and_meetings() -> None:
    sample = SAMPLES["gemv"]
    with Program.build(sample.text("cuda"), "cuda", [sample.entries["cuda"]]) as program:
        program.run(sample.entries["cuda"], sample.fresh_case().values)
        threads, _, barriers, collectives = program.stats
    assert (threads, barriers, collectives) == (6 * 128, 6, 6 * 4 * 5)


def test_a_missing_tool_fails_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(nvcc, "nvcc_candidates", lambda named: [])
    for find, command in (
        (tools.clang, tools.INSTALL),
        (tools.nm, tools.INSTALL),
        (tools.cuda_include, tools.INSTALL_CUDA),
    ):
        with pytest.raises(MissingTool) as caught:
            find.__wrapped__()
        assert command in str(caught.value)
