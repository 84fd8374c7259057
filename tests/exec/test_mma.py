"""The host twins of warp-level matrix instructions and asynchronous copies do what PTX says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from lanes import ORDERS, Arg, Entry, ExecutionError, Program, poisoned
from numpy.typing import NDArray

Array = NDArray[Any]
TEXT = (Path(__file__).parent / "samples" / "mma.cu").read_text()

# Instruction -> NumPy type of its elements.
KINDS: dict[str, Any] = {
    "mma_m16n8k16_f16_f32": np.float16,
    "mma_m16n8k16_bf16_f32": ml_dtypes.bfloat16,
    "mma_m16n8k32_e4m3_f32": ml_dtypes.float8_e4m3fn,
    "mma_m16n8k32_e5m2_f32": ml_dtypes.float8_e5m2,
    "mma_m16n8k32_s8_s32": np.int8,
}
PRODUCT = tuple(Arg(n, "ptr", "out" if n == "d" else "in") for n in "abcd")
ENTRIES = {kind: Entry(f"product_{kind}", PRODUCT, (32, 1, 1), (1, 1, 1)) for kind in KINDS}
PIPELINE = Entry(
    "pipeline",
    (Arg("x", "ptr", "in"), Arg("y", "ptr", "out"), Arg("rows", "u32", "shape")),
    (32, 1, 1),
    (1, 1, 1),
)
EVERYTHING = [*ENTRIES.values(), PIPELINE]


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with Program.build(TEXT, "cuda", EVERYTHING) as built:
        yield built


def left(a: Array) -> Array:
    """Operand A, 16 x K, as each lane's four registers (PTX ISA, "Matrix fragments for mma.m16n8k16")."""
    each = 4 // a.itemsize
    registers = a.reshape(2, 8, 2, 4, each).transpose(1, 3, 2, 0, 4)  # g, t, k half, row half, element
    return np.ascontiguousarray(registers).view(np.uint32)


def right(b: Array) -> Array:
    """Operand B, K x 8, as each lane's two registers."""
    each = 4 // b.itemsize
    return np.ascontiguousarray(b.T.reshape(8, 2, 4, each).transpose(0, 2, 1, 3)).view(np.uint32)


def sums(c: Array) -> Array:
    """C or D, 16 x 8, as each lane's four numbers."""
    return np.ascontiguousarray(c.reshape(2, 8, 4, 2).transpose(1, 2, 0, 3))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_products(program: Program, kind: str, order: int) -> None:
    rng, dtype = np.random.default_rng(len(kind)), KINDS[kind]
    k = 32 if np.dtype(dtype).itemsize == 1 else 16
    if dtype is np.int8:
        a, b = (rng.integers(-128, 128, size).astype(np.int8) for size in ((16, k), (k, 8)))
        c: Array = rng.integers(-1000, 1000, (16, 8)).astype(np.int32)
    else:
        a, b = (rng.integers(-8, 8, size).astype(dtype) for size in ((16, k), (k, 8)))
        c = rng.integers(-100, 100, (16, 8)).astype(np.float32)
    values = {
        ("a", "in"): left(a), ("b", "in"): right(b), ("c", "in"): sums(c),
        ("d", "out"): poisoned((32, 4), c.dtype),
    }  # fmt: skip
    found = program.run(ENTRIES[kind], values, order)["d", "out"]
    expected = a.astype(np.float64) @ b.astype(np.float64) + c  # small integers: exact in f32
    assert found.tolist() == sums(expected).reshape(32, 4).tolist()


def test_8_bit_floats_that_are_no_numbers(program: Program) -> None:
    """E4M3 has no infinity, E5M2 has."""
    for kind, code, expected in (("e4m3", 0x7F, np.nan), ("e4m3", 0x7E, 448.0), ("e5m2", 0x7C, np.inf)):
        a = np.zeros((16, 32), np.uint8)
        a[3, 5] = code
        b = np.zeros((32, 8), np.uint8)
        b[5, 2] = 0x38 if kind == "e4m3" else 0x3C  # one
        values = {
            ("a", "in"): left(a), ("b", "in"): right(b), ("c", "in"): np.zeros((32, 4), np.float32),
            ("d", "out"): poisoned((32, 4), np.float32),
        }  # fmt: skip
        found = program.run(ENTRIES[f"mma_m16n8k32_{kind}_f32"], values)["d", "out"]
        spread = found.reshape(8, 4, 2, 2).transpose(2, 0, 1, 3).reshape(16, 8)
        assert np.array_equal(spread[3, 2], expected, equal_nan=True)


def pipelined(text: str, sanitizer: str | None = None, order: int = 0) -> bool:
    """Whether the pipeline's sum of rows is right."""
    x = np.random.default_rng(4).integers(0, 1 << 20, (5, 32, 4)).astype(np.uint32)
    values = {("x", "in"): x, ("y", "out"): poisoned((32, 4), np.uint32), ("rows", "shape"): 5}
    with Program.build(text, "cuda", EVERYTHING, sanitizer) as program:
        found = program.run(PIPELINE, values, order)["y", "out"]
    exchanged = x.sum(0).reshape(16, 2, 4)[:, ::-1].reshape(32, 4)
    return bool(np.array_equal(found, exchanged))


@pytest.mark.parametrize("sanitizer", [None, "address", "thread"])
def test_copies_arrive(sanitizer: str | None) -> None:
    assert pipelined(TEXT, sanitizer)


def planted(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


def test_a_copy_that_is_not_waited_for_is_found() -> None:
    assert not pipelined(planted("cp_async_wait<0>();", "cp_async_wait<1>();"))
    assert not pipelined(planted("        cp_async_wait<0>();\n", ""))


def test_a_stage_that_is_filled_while_it_is_read_is_found() -> None:
    """Data comes late on the CPU, yet the copy counts as a write from its start on."""
    text = planted("stages[(row + 1) % 2][4 * lane], x + 128", "stages[row % 2][4 * lane], x + 128")
    assert not pipelined(text)
    with pytest.raises(ExecutionError, match="data race"):
        pipelined(planted("        __syncthreads();\n        if", "        if"), "thread", 2)


def test_a_misaligned_copy_is_found() -> None:
    with pytest.raises(ExecutionError, match=r"cp\.async: address not aligned"):
        pipelined(planted("x + 4 * lane, 16", "x + 4 * lane + 1, 16"))


# What entries may be given besides arrays and sizes.
GIVEN = """
#include <cstdint>
extern "C" __global__ void given(const float* a, const float* b, float* y, uint32_t* room, float scale)
{
    room[0] += 1;
    y[0] = scale * (b ? a[0] * b[0] : a[0]) + static_cast<float>(room[0]);
    room[0] = $LEFT;
}
"""
ROOM = Entry(
    "given",
    (
        Arg("a", "ptr", "in"), Arg("b", "ptr", "in"), Arg("y", "ptr", "out"), Arg("room", "ptr", "workspace"),
        Arg("scale", "f32", "scalar"),
    ),
    (1, 1, 1), (1, 1, 1), (), ("mul", "n", 4), True,
)  # fmt: skip


@pytest.mark.parametrize(("b", "expected"), [(None, 11.0), (3.0, 31.0)])
def test_null_pointers_scalars_and_a_zeroed_workspace(b: float | None, expected: float) -> None:
    values = {
        ("a", "in"): np.float32([5.0]), ("b", "in"): None if b is None else np.float32([b]),
        ("y", "out"): poisoned((1,), np.float32), ("scale", "scalar"): 2.0, ("n", "shape"): 8,
    }  # fmt: skip
    with Program.build(GIVEN.replace("$LEFT", "0"), "cuda", [ROOM]) as program:
        assert program.run(ROOM, values)["y", "out"].tolist() == [expected]
    dirty = Program.build(GIVEN.replace("$LEFT", "7"), "cuda", [ROOM])
    with dirty, pytest.raises(ExecutionError, match="the workspace is not zero again"):
        dirty.run(ROOM, values)
