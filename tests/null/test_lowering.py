"""From IR to text: the walk keeps the order of memory, every operation is lowered or refused, the text is
the same each time and holds nothing that it does not use."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.emit import text as emit
from gen.formats.axes import Format
from gen.formats.grammar import format_of
from gen.ir import passes
from gen.ir.dsl import Builder
from gen.ir.nodes import DTYPES, OPS, Function
from gen.lower import c, cpu, cuda, metal
from gen.lower.walker import Dialect, Refused, body, refused
from gen.manifest.reader import KernelSpec
from gen.manifest.target import Target
from gen.plan import cells as plan

sys.path.insert(0, str(Path(__file__).resolve().parent))
import host

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
DIALECTS: tuple[Dialect, ...] = (cpu.DIALECT, cuda.DIALECT, metal.DIALECT)
GPU = Target("t", "cuda", simd=32, max_threads=1024, shared_bytes=4096)


def lines(build: Callable[[Builder], None], dialect: Dialect = cuda.DIALECT) -> list[str]:
    """The statements of a kernel with x (u32, read), y (u32, written) and n."""
    b = Builder("k", 32, 32)
    build(b)
    return [line.strip() for line in body(passes.run(b.function, GPU), dialect)]


# ------------------------------------------------------------ the walk
def test_a_value_used_once_is_written_in_place() -> None:
    def build(b: Builder) -> None:
        x, y, n = b.buffer("x", "u32"), b.buffer("y", "u32", "out"), b.scalar("n")
        once, twice = n * 3, n * 5
        b.store(y, once, b.load(x, twice))
        b.store(y, twice, 1)

    assert lines(build) == ["const uint32_t v0 = n * 5u;", "y[n * 3u] = x[v0];", "y[v0] = 1u;"]


def test_a_read_comes_before_the_store_that_follows_it() -> None:
    def build(b: Builder) -> None:
        y = b.buffer("y", "u32", "out")
        first, second = b.load(y, 0), b.load(y, 1)
        b.store(y, 0, second)
        b.store(y, 1, first)

    assert lines(build) == ["const uint32_t v0 = y[0u];", "y[0u] = y[1u];", "y[1u] = v0;"]


def test_a_read_inside_an_expression_keeps_its_place() -> None:
    def build(b: Builder) -> None:
        y, n = b.buffer("y", "u32", "out"), b.scalar("n")
        total = (b.load(y, 0) + n) * 2
        b.store(y, 0, 7)
        b.store(y, 1, total)

    assert lines(build) == ["const uint32_t v0 = y[0u];", "y[0u] = 7u;", "y[1u] = (v0 + n) * 2u;"]


def test_a_variable_is_read_where_it_is_read() -> None:
    def build(b: Builder) -> None:
        y, v = b.buffer("y", "u32", "out"), b.var("v", 1, "u32")
        before = v.get()
        v.set(before + 1)
        after = v.get()
        b.store(y, 0, before)
        b.store(y, 1, after)

    assert lines(build) == [
        "uint32_t v = 1u;", "const uint32_t v0 = v;", "v = v0 + 1u;", "const uint32_t v1 = v;",
        "y[0u] = v0;", "y[1u] = v1;",
    ]  # fmt: skip


def test_a_value_for_an_inner_block_is_named_outside() -> None:
    def build(b: Builder) -> None:
        y, n = b.buffer("y", "u32", "out"), b.scalar("n")
        read = b.load(y, 0)
        with b.when(n < 4) as whole:
            b.store(y, 0, 1)
            b.store(y, 1, read)
        with b.otherwise(whole):
            b.store(y, 2, read)

    assert lines(build) == [
        "const uint32_t v0 = y[0u];", "if (n < 4u) {", "y[0u] = 1u;", "y[1u] = v0;",
        "} else {", "y[2u] = v0;", "}",
    ]  # fmt: skip


def test_a_chosen_pointer_is_one_of_two_and_vanishes_unused() -> None:
    def build(b: Builder) -> None:
        x, z, y, n = b.buffer("x", "u32"), b.buffer("z", "u32"), b.buffer("y", "u32", "out"), b.scalar("n")
        b.choose(n < 2, x, z)
        far = b.choose(n < 4, b.at(x, n), z)
        b.store(y, 0, b.load(b.at(far, n), 1))

    assert lines(build) == [
        "const uint32_t* __restrict__ x_at0 = x + n;",
        "const uint32_t* __restrict__ chosen1 = n < 4u ? x_at0 : z;",
        "const uint32_t* __restrict__ chosen1_at0 = chosen1 + n;",
        "y[0u] = chosen1_at0[1u];",
    ]


def test_a_condition_reads_before_its_block() -> None:
    def build(b: Builder) -> None:
        y = b.buffer("y", "u32", "out")
        with b.when(b.load(y, 0).eq(0)):
            b.store(y, 0, 1)

    assert lines(build) == ["if (y[0u] == 0u) {", "y[0u] = 1u;", "}"]


def test_a_loop_s_bounds_are_read_once() -> None:
    """Text would evaluate them on every trip, after the body has changed what they read."""

    def build(b: Builder) -> None:
        y = b.buffer("y", "u32", "out")
        with b.loop(b.load(y, 1), b.load(y, 0) + 2, b.load(y, 2)) as i:
            b.store(y, 0, i)

    assert lines(build) == [
        "const uint32_t v0 = y[0u] + 2u;", "const uint32_t v1 = y[2u];",
        "for (uint32_t i0 = y[1u]; i0 < v0; i0 += v1) {", "y[0u] = i0;", "}",
    ]  # fmt: skip


@pytest.mark.parametrize("shape", ["load", "variable"])
def test_a_loop_s_bounds_in_compiled_code(shape: str, tmp_path: Path) -> None:
    def build(b: Builder) -> None:
        y = b.buffer("y", "u32", "out")
        v = b.var("v", 3, "u32")
        stop = b.load(y, 0) if shape == "load" else v.get()
        with b.loop(0, stop) as i:
            b.store(y, 0, 1)
            v.set(1)
            b.store(y, i + 1, v.get() * 10 + i)

    y = np.array([3, 0, 0, 0, 0], np.uint32)
    host.Library(tmp_path, [host.function("k", build)]).run("k", {"y": y})
    assert y.tolist() == [1, 10, 11, 12, 0]


def test_collectives_are_named_and_wait_for_reads() -> None:
    def build(b: Builder) -> None:
        s, y = b.shared("s", "f32", 4), b.buffer("y", "f32", "out")
        before = b.load(s, 0)
        b.barrier()
        b.store(y, 0, before + b.lane_sum(b.load(s, 1)))

    found = lines(build)
    assert found[:3] == ["const float v0 = s[0u];", "__syncthreads();", "const float v1 = s[1u];"]
    assert [f"const float v{2 + i} = __shfl_xor_sync(" in line for i, line in enumerate(found[3:8:2])]
    assert sum("__shfl_xor_sync" in line for line in found) == 5
    assert found[-1].startswith("y[0u] = v0 + (")


def test_a_long_expression_is_broken_up() -> None:
    def build(b: Builder) -> None:
        x, y = b.buffer("x", "u32"), b.buffer("y", "u32", "out")
        total = b.load(x, 0)
        for i in range(1, 40):
            total = total + b.load(x, i)
        b.store(y, 0, total)

    found = lines(build)
    assert len(found) > 3
    assert max(map(len, found)) < 160


def test_an_operation_without_a_lowering_is_refused() -> None:
    b = Builder("k", 32, 32)
    y = b.buffer("y", "f32", "out")
    b.effect("atomic_add", (b.const(0, "u32").value, b.const(1.0, "f32").value), ref=y)
    function = passes.run(b.function, GPU)
    assert refused(function, metal.DIALECT) == "operation atomic_add has no lowering to Metal"
    assert refused(function, cuda.DIALECT) is None
    with pytest.raises(Refused, match="operation atomic_add has no lowering to Metal"):
        body(function, metal.DIALECT)
    assert lines(
        lambda b: b.effect(
            "atomic_add", (b.const(0, "u32").value, b.thread().value), ref=b.buffer("y", "u32", "out")
        )
    ) == ["atomicAdd(&y[0u], threadIdx.x);"]


# ------------------------------------------------------------ totality (and see test_totality)
def test_nothing_is_spelled_that_no_operation_asks_for() -> None:
    for dialect in DIALECTS:
        assert set(dialect.spell) | set(dialect.statements) <= set(OPS)
        assert not set(dialect.spell) & set(dialect.statements)
        assert set(dialect.types) == set(DTYPES)


# ------------------------------------------------------------ whole files
TARGETS = {
    "cpp": Target(
        "cpu", "cpu", features=frozenset({"f16", "bf16"}), simd=1, max_threads=1024, shared_bytes=1 << 16
    ),
    "cu": Target("gpu", "cuda", features=frozenset({"f16", "bf16", "f16_pairs"}), shared_bytes=48 << 10),
    "metal": Target(
        "apple", "metal", features=frozenset({"f16", "bf16", "f16_pairs"}), shared_bytes=32 << 10
    ),
}
SMALL = {"element": "e2m1", "block": 8, "scale": "e8m0"}
GOLDEN_CASES = [(kernel, extension) for kernel in ("copy", "dequant") for extension in TARGETS]


def small() -> Format:
    found = format_of("small", SMALL)[0]
    assert found is not None
    return found


def golden_text(kernel: str, extension: str) -> str:
    fmt = small() if kernel == "dequant" else None
    return emit.emit(KernelSpec(kernel, ("f32",)), fmt, TARGETS[extension], ("f32",)).text


@pytest.mark.parametrize(("kernel", "extension"), GOLDEN_CASES)
def test_golden(kernel: str, extension: str) -> None:
    """What two small kernels look like. After a change that is meant, write them anew and read the diff:
    WOOTZ_GOLDEN=write python -m pytest tests/null/test_lowering.py -k golden"""
    path, text = GOLDEN / f"{kernel}.{extension}", golden_text(kernel, extension)
    if os.environ.get("WOOTZ_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "see this test's docstring"


def units() -> list[plan.Unit]:
    """A few formats of every kind, with every kernel, on one target of every backend."""
    manifest = plan.load(ROOT / "kernels.yaml")
    chosen: dict[tuple[Any, ...], str] = {}
    for name, fmt in manifest.formats.items():
        zero = fmt.zero and (fmt.zero.domain, fmt.zero.element.kind)
        key = (fmt.element.kind, fmt.scales[0].element.kind, len(fmt.scales), zero, bool(fmt.layout.inline))
        chosen.setdefault(key, name)
    backends = {target.backend: name for name, target in manifest.targets.items()}
    formats = (*chosen.values(), "-")
    request = plan.Request("release", targets=tuple(backends.values()), formats=formats)
    return [u for u in plan.units(manifest, plan.select(manifest, request)) if u.jobs]


def text_of(unit: plan.Unit) -> str:
    return emit.emit(unit.kernel, unit.format, unit.target, unit.dtypes).text


DIALECT_OF = {"cpu": cpu.DIALECT, "cuda": cuda.DIALECT, "metal": metal.DIALECT}
START = re.compile(r'^(?:extern "C"|kernel void)', re.M)


@pytest.fixture(scope="module")
def everything() -> list[tuple[plan.Unit, str]]:
    """What the walk writes; templates are another matter."""
    made = [(unit, emit.emit(unit.kernel, unit.format, unit.target, unit.dtypes)) for unit in units()]
    return [(unit, emitted.text) for unit, emitted in made if not emitted.instances]


def test_a_file_has_the_helpers_it_uses_and_no_more(everything: list[tuple[plan.Unit, str]]) -> None:
    used_anywhere: dict[str, set[str]] = {}
    for unit, text in everything:
        dialect = DIALECT_OF[unit.target.backend]
        for name, helper in dialect.helpers.items():
            rest = text.replace(helper, "")
            called = re.search(rf"\b{name}\b", rest) is not None
            assert (helper in text) == called, f"{unit.key}: {name}"
            used_anywhere.setdefault(dialect.name, set()).update([name] if called else [])
    # test_matrix_tiles runs those of tiles; test_operations compiles those of halves on every backend.
    rare = {"Words2", "tile_load_left", "tile_load_right", "tile_load_turned", *c.HALVES, *c.PACKED}
    for dialect in DIALECTS:
        assert set(dialect.helpers) - used_anywhere[dialect.name] <= rare, "helpers that no kernel needs"


def test_tables_are_what_their_users_mean(everything: list[tuple[plan.Unit, str]]) -> None:
    """One definition a name in each file."""
    for unit, text in everything:
        names = re.findall(r"^(?:static (?:__device__ )?const|constant) float (\w+)\[", text, re.M)
        assert len(set(names)) == len(names), unit.key


def test_no_assembly_in_a_kernel_s_body(everything: list[tuple[plan.Unit, str]]) -> None:
    for unit, text in everything:
        kernels = text[START.search(text).start() :]  # type: ignore[union-attr]
        assert not re.search(r"\b(?:asm|__asm__|volatile)\b", kernels), unit.key
        assert not re.search(r"\b(?:printf|malloc|new|goto)\b", text), unit.key


def test_files_are_plain_text(everything: list[tuple[plan.Unit, str]]) -> None:
    for unit, text in everything:
        assert text.isascii(), unit.key
        assert text.endswith("\n"), unit.key
        assert "\t" not in text, unit.key
        assert not re.search(r"[ \t]+$", text, re.M), unit.key
        assert not re.search(r"\b(?:nan|inf)f?\b(?!_)", text), unit.key


def digest() -> str:
    some = [u for u in units() if u.kernel.name in ("copy", "binary", "dequant")]
    return hashlib.sha256("".join(map(text_of, some)).encode()).hexdigest()


def test_two_emissions_are_the_same_bytes() -> None:
    """In this process and in others, whose sets and dictionaries of strings are in another order."""
    here = digest()
    emit._emit.cache_clear()
    assert digest() == here
    script = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'python'), str(Path(__file__).parent)]}; "
    script += "import test_lowering; print(test_lowering.digest())"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == here


def test_render_takes_functions_apart() -> None:
    """An entry's text does not depend on what is emitted beside it."""

    def one(name: str) -> Function:
        return host.function(name, lambda b: b.store(b.buffer("y", "f32", "out"), 0, 1.0))

    both, alone = cpu.render([one("first"), one("second")]), cpu.render([one("second")])
    assert alone[START.search(alone).start() :] in both  # type: ignore[union-attr]
