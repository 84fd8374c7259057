"""gemm whose output is the memory of c: the emitted text gives the same bits with one pointer for both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cells
import numpy as np
import pytest
from inputs import arguments, names
from lanes import ORDERS, Entry, Program

from gen.plan import cells as plan

SIZES = ((17, 24, 32), (33, 40, 48), (7, 19, 24), (130, 264, 64))
"""(m, n, k): rows of vectors and of elements, several tiles of few rows, several blocks."""


def text() -> cells.Text:
    request = plan.Request("release", targets=("sm_80",), kernels=("gemm",))
    (subject,) = cells.subjects(cells.repository(), request)
    (found,) = cells.texts(subject)
    return found


def shared(found: cells.Text) -> cells.Text:
    """c is y: the pointers that a call in place gives."""
    assert "{c, bias, y," in found.body
    return replace(found, body=found.body.replace("{c, bias, y,", "{c ? y : c, bias, y,"))


def run(
    program: Program, entry: Entry, size: dict[str, int], given: dict[str, Any], y: Any, order: int
) -> Any:
    scalars = {"alpha": 0.5, "beta": -2.0, "activation": 1}
    return program.run(entry, arguments({**given, **scalars}, size, ("y", y)), order)["y", "out"]


def outcomes(found: cells.Text, in_place: bool) -> list[bytes]:
    """What y holds after each entry of f16, at each size, in each order."""
    some = [e for (dtype, _), entries in found.entries.items() if dtype == "f16" for e in entries]
    results = []
    with Program.build(found.body, "cuda", [e for es in found.entries.values() for e in es]) as program:
        for entry, (m, n, k) in ((e, size) for e in some for size in SIZES):
            rng, size = np.random.default_rng(m * n), {"m": m, "n": n, "k": k, "sms": 1}
            out = np.float16 if "_same_" in entry.symbol else np.float32
            c = rng.standard_normal((m, n)).astype(out)
            given = {
                "a": rng.standard_normal((m, k)).astype(np.float16),
                "b": rng.standard_normal((n, k)).astype(np.float16),
                "c": c,
                "bias": rng.standard_normal(n).astype(np.float16),
            }
            if not all(cells.evaluate(f, names_of(size)) for f in entry.when):
                continue
            y = c.copy() if in_place else np.zeros_like(c)
            results += [run(program, entry, size, given, y, order).tobytes() for order in ORDERS]
    return results


def names_of(size: dict[str, int]) -> dict[str, int]:
    kernel = {"operands": [{"name": n, "optional": True} for n in ("c", "bias")]}
    return names(kernel, {"c": 0, "bias": 0}, size)


@pytest.fixture(scope="module")
def expected() -> list[bytes]:
    return outcomes(text(), False)


def test_the_output_may_be_c(expected: list[bytes]) -> None:
    assert len(expected) > 3 * len(SIZES)
    assert outcomes(shared(text()), True) == expected


def test_a_thread_that_reads_what_another_writes_is_found(expected: list[bytes]) -> None:
    """Planted: c is read eight columns to the left, from what the thread before may have written."""
    planted = shared(text())
    place = "c + (static_cast<uint64_t>(row) * n + column + i)"
    assert place in planted.body
    body = planted.body.replace(place, place.replace("column + i", "(column + i + n - 8) % n"))
    results = outcomes(replace(planted, body=body), True)
    by_order = list(zip(*(results[order::3] for order in ORDERS)))
    assert any(len(set(each)) > 1 for each in by_order)  # what comes out depends on who is first
