"""gemm_fp8_block on warpgroup MMA (cutlass/gemm_fp8_sm90.cuh): its emitted text, run on the CPU with twins of
copies, barriers and products, against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import arguments, planted
from lanes import ORDERS, Entry, ExecutionError, Program, evaluate, poisoned
from tensor_maps import arguments_of, from_arrays
from wootz import checks, reference

from gen.kernels import _fp8_sm90 as fp8
from gen.lower import templates
from gen.variants.family import Instance

HERE = Path(__file__).resolve().parent
TWINS = "".join((HERE / "twins" / name).read_text() for name in ("sm90.h", "warpgroup.h"))
Change = Callable[[str], str]


def same(text: str) -> str:
    return text


@contextmanager
def built(instance: Instance, change: Change = same) -> Iterator[tuple[Program, Entry]]:
    text = from_arrays(instance, instance.text.replace(templates.SYMBOL, "entry"))
    text = TWINS + change(templates.inline(instance.templates, [text]))
    memory = f"__shared__ uint8_t unaligned[{evaluate(instance.shared, {})}];"
    text = text.replace("extern __shared__ uint8_t unaligned[];", memory)
    entry = Entry("entry", arguments_of(instance), (instance.threads, 1, 1), instance.grid)
    with Program.build(text, "cuda", [entry]) as program:
        yield program, entry


def compared(
    program: Program, entry: Entry, given: dict[str, Any], out: str, order: int, sms: int
) -> tuple[Any, reference.Comparison]:
    (m, k), n = given["a"].shape, len(given["b"])
    expected = checks.expect("gemm_fp8_block", {"out": out}, given, "e4m3")
    blank = poisoned((m, n), reference.DTYPES[out][2])
    size = {"m": m, "n": n, "k": k, "sms": sms}
    found = program.run(entry, arguments(given, size, ("y", blank)), order, 300)
    return found["y", "out"], reference.compare(found["y", "out"], expected, out)


def operands(m: int, n: int, k: int) -> dict[str, Any]:
    """Scales of powers that differ much, so that a wrong one shows."""
    rng = np.random.default_rng([m, n, k])
    given = checks.check("gemm_fp8_block").operands(
        None, {"m": m, "n": n, "k": k}, "e4m3", {"out": "bf16"}, rng
    )
    for name in ("scale_a", "scale_b"):
        given[name] = (
            rng.uniform(0.5, 1.5, given[name].shape) * rng.choice([-1.0, 1.0, 8.0], given[name].shape)
        ).astype(np.float32)
    return given


def tile(**how: Any) -> fp8.Tile:
    return replace(fp8.USUAL, **how)


@pytest.mark.parametrize("rows", [128, 256])
def test_sizes(rows: int) -> None:
    """Of one tile and less, of several, with ragged ends on every side; more blocks than slots."""
    with built(fp8.instance("bf16", tile(rows=rows, slots=2))) as what:
        for m, n, k, sms in ((3, 8, 16, 2), (rows + 61, 264, 400, 5), (130, 128, 784, 1)):
            bits = set()
            for order in ORDERS[:2] if m == 3 else ORDERS[:1]:
                y, result = compared(*what, operands(m, n, k), "bf16", order, sms)
                assert result.passed, (m, n, k, order, result)
                bits.add(y.tobytes())
            assert len(bits) == 1


def test_more_rows_of_tiles_than_are_taken_together() -> None:
    with built(fp8.instance("bf16", tile(rows=128, slots=2, together=1))) as what:
        _, result = compared(*what, operands(300, 264, 144), "bf16", 0, 2)
        assert result.passed, result


def test_f16() -> None:
    with built(fp8.instance("f16", tile(rows=128))) as what:
        _, result = compared(*what, operands(70, 72, 272), "f16", 0, 2)
        assert result.passed, result


MISTAKES = {
    "sums before their product": ("wgmma_wait<0>();", ""),
    "a slot is not given back": ("if (lane == 0) barrier_arrive(", "static_cast<void>("),
    "fresh sums are not fresh": ("multiply<s != 0>", "multiply<true>"),
    "the scale of another block of b": ("level = next_level", "level = level"),
    "the scale of another row of a": ("rows[8] * level", "rows[0] * level"),
    "rows past m are stored": ("row + at >= p.m || ", ""),
    "steps of other columns": ("s * 2)", "s * 4)"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    old, new = MISTAKES[mistake]

    with built(fp8.instance("bf16", tile(rows=128, slots=2)), planted(old, new)) as what:
        try:
            _, result = compared(*what, operands(70, 72, 528), "bf16", 0, 2)
        except (ExecutionError, AssertionError):
            return
        assert not result.passed
