"""The DSL that builds the IR, and the passes over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gen.ir import passes
from gen.ir.dsl import Builder, DslError
from gen.ir.nodes import GRID, Block, For, Value, fold, is_const, walk
from gen.lower import cuda
from tests.null.programs import GPU, IN_TURN, builder, overlapping, staged


# ------------------------------------------------------------ the DSL
def test_constants_fold() -> None:
    b = builder()
    two, seven = b.const(2, "u32"), b.const(7, "u32")
    folded = {
        "add": 9,
        "mul": 14,
        "sub": 5,
        "div": 3,
        "rem": 1,
        "and": 2,
        "or": 7,
        "xor": 5,
        "shl": 28,
        "shr": 1,
        "min": 2,
        "max": 7,
    }
    for op, wanted in folded.items():
        assert is_const(b.op(op, seven, two).value, wanted), op
    assert is_const((two - 3).value, 0xFFFFFFFF)
    assert is_const((b.const(1, "u64") << 40).value, 1 << 40)
    assert ((two < 3).dtype, is_const((two < 3).value, 1), is_const(seven.eq(2).value, 0)) == (
        "bool",
        True,
        True,
    )
    assert not is_const((two // 0).value)
    assert not is_const((two << 32).value)
    assert not is_const((b.const(1.0, "f32") + 2.0).value), "floats are left to the compiler's rounding"
    assert fold("add", "i32", [1, 2]) is None


def test_identities_vanish() -> None:
    b = builder()
    x = b.scalar("n")
    for same in (
        x + 0,
        0 + x,
        x - 0,
        x * 1,
        1 * x,
        x // 1,
        x | 0,
        x ^ 0,
        x << 0,
        x >> 0,
        x & 0xFFFFFFFF,
        x.cast("u32"),
    ):
        assert same.value is x.value
    y = b.load(b.buffer("y", "f32"), 0)
    assert (y + 0.0).value is not y.value, "-0.0 + 0.0 is 0.0"
    assert (y * 1.0).value.op == "mul"
    assert (b.scalar("m", "u64") & 0xFFFFFFFF).value.op == "and"
    assert is_const(b.const(3, "u32").cast("u64").value, 3)


def test_equal_values_are_one_in_a_scope() -> None:
    b = builder()
    n = b.scalar("n")
    first = n * 3
    assert (n * 3).value is first.value
    assert (n * 4).value is not first.value
    with b.when(n < 5) as whole:
        assert (n * 3).value is first.value
        inside = n * 5
    with b.otherwise(whole):
        other = n * 5
        assert other.value is not inside.value
    assert (n * 5).value not in (inside.value, other.value)
    x = b.buffer("x", "f32")
    assert b.load(x, 0).value is not b.load(x, 0).value, "memory may have changed"
    assert b.const(0.0, "f32").value is not b.const(-0.0, "f32").value
    assert b.const(float("nan"), "f32").value is b.const(float("nan"), "f32").value
    assert b.const(0.1, "f32").value.attrs["value"] != 0.1, "constants are float32 numbers"


@pytest.mark.parametrize("operand", [1, 2.0])
def test_numbers_take_the_other_operand_s_type(operand: float) -> None:
    b = builder()
    x = b.load(b.buffer("x", "f32"), 0)
    assert (operand + x).value.args[1].dtype == (x + operand).value.args[1].dtype == "f32"


def test_a_single_trip_is_no_loop() -> None:
    b = builder()
    for bounds in ((0, 1), (3, 4), (0, 8, 8), (2, 5, 7)):
        with b.loop(*bounds) as i:
            assert is_const(i.value, bounds[0])
    assert not any(isinstance(s, For) for s in walk(b.function.body))
    for more in ((0, 2), (0, 9, 8), (4, 4)):
        with b.loop(*more):
            pass
    assert sum(isinstance(s, For) for s in walk(b.function.body)) == 3


def test_names_are_unique() -> None:
    b = builder()
    assert [b.shared("s", "f32", 1).name, b.local("s", "f32", 1).name, b.var("s", 0.0).ref.name] == [
        "s",
        "s1",
        "s2",
    ]
    assert b.table("t", [1.0]) is b.table("u", [1.0])
    assert b.table("t", [1.0]) is not b.table("t", [-0.0])
    x = b.buffer("w.codes", "u8")
    moved = [b.at(x, b.thread()), b.at(x, b.thread())]
    assert (x.name, [m.name for m in moved]) == ("w_codes", ["w_codes_at0", "w_codes_at1"])
    b.scalar("w.codes", "u32", "pitch")
    assert [p.symbol for p in b.function.params] == ["w_codes", "w_codes_pitch"]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda b: b.op("add", 1, 2), "add: needs at least one DSL value, got (1, 2)"),
        (lambda b: b.minimum(1, 2.0), "min: needs at least one DSL value"),
        (lambda b: b.select(b.thread() < 1, 1, 2), "select: needs a DSL value in one arm, got 1 and 2"),
    ],
)
def test_errors(use: Callable[[Builder], Any], message: str) -> None:
    with pytest.raises(DslError) as caught:
        use(builder())
    assert message in str(caught.value)


# ------------------------------------------------------------ passes
def texts(block: Block) -> Iterator[str]:
    for s in walk(block):
        yield s.op if isinstance(s, Value) else type(s).__name__


def test_launches_in_turn_wait_for_nothing() -> None:
    """Not a word of it is left; where they overlap, the wait stays, and is in the text."""
    texts = []
    for target in (GPU, IN_TURN):
        b = builder()
        overlapping(b)
        function = passes.run(b.function, target)
        texts.append(cuda.render([function]))
        assert function.waits() == (target is GPU)
    assert [text.count(op) for text in texts for op in GRID] == [2, 2, 0, 0]
    early, rest = texts[0].split("    grid_wait();\n    grid_release();\n")
    assert "= w_at0[" in early
    assert "x[" in rest
    assert "griddepcontrol.wait;" in early
    assert "griddepcontrol.launch_dependents;" in early


def test_dead_code_goes() -> None:
    b = builder()
    x, y, n = b.buffer("x", "f32"), b.buffer("y", "f32", "out"), b.scalar("n")
    dead, live = b.local("dead", "f32", 4), b.local("live", "f32", 4)
    b.shared("unused", "f32", 4)
    b.table("t", [1.0, 2.0])
    counter = b.var("counter", 0.0)
    moved = b.at(b.at(x, n), n * 2)
    b.at(y, n * 7)
    with b.loop(0, n) as i:
        b.store(dead, 0, b.load(moved, i) * 2.0)
        counter.set(counter.get() + 1.0)
        with b.when(i < 3):
            b.store(dead, 1, 0.0)
    with b.loop(0, n) as i:
        _ = b.load(x, i) + 1.0
    b.store(live, 0, b.load(x, n * 3))
    b.store(y, 0, b.load(live, 0))
    passes.run(b.function, GPU)
    kept = list(texts(b.function.body))
    assert "If" not in kept
    assert "offset" not in kept
    # What only its own update reads is not seen to be dead.
    assert (kept.count("For"), {r.name for r in b.function.refs}) == (1, {"live", "counter"})
    assert kept.count("store") == 2


def test_passes_are_idempotent_and_keep_effects() -> None:
    b = builder(64)
    y, s = b.buffer("y", "f32", "out"), b.shared("s", "f32", 8)
    staged(b)
    b.store(s, b.thread() % 8, 1.0)
    b.barrier()
    with b.loop(0, 4, unroll=True) as i:
        b.store(y, i, b.load(s, i))
    passes.run(b.function, GPU)
    once = [id(s) for s in walk(b.function.body)]
    passes.run(b.function, GPU)
    assert [id(s) for s in walk(b.function.body)] == once
    kept = list(texts(b.function.body))
    assert (kept.count("store"), kept.count("barrier")) == (2, 2)
