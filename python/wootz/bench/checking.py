"""The result of what is timed, against its reference: wrong results are not timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import verify
from ..errors import WootzError
from ..reference import Comparison, Expected, compare
from .devices import Bench
from .problems import Problem, Runs

EDGE = 64
"""Rows that are compared at the end of an axis that was grown, beside those that were drawn."""


class MismatchError(WootzError, RuntimeError):
    """A result is outside the tolerance of its reference."""


def check(
    problem: Problem, runs: Runs, device: Bench, kernel: Callable[..., Any] | None = None
) -> Comparison:
    """Runs the first launch and compares what it wrote.

    Outputs that are arrays of their own: at the very size, where they were drawn, at both ends of the axes
    that were grown, and no float is left unwritten between. Others (updated operands, tensors): `kernel` is
    called at the drawn size, as verify does. Raises MismatchError.
    """
    if not in_whole(problem):
        if kernel is None:
            raise TypeError("outputs that are operands or tensors are checked by a call of the kernel")
        result, why = verify.run_once(
            kernel, problem.cell, problem.record, problem.values, device.memory, problem.check
        )
        return _passed(problem, result, why)
    runs.launches[0]()
    return compare_output(problem, runs.outputs[0], device)


def in_whole(problem: Problem) -> bool:
    """Whether all that a call writes is one new array."""
    updated = any(each.updated for each in problem.signature.operands) and problem.updates
    return problem.signature.output.kind == "array" and not problem.signature.in_place and not updated


def compare_output(problem: Problem, out: Any, device: Bench) -> Comparison:
    """An output on the device against the reference. Raises MismatchError."""
    dtype = problem.types[problem.signature.output.name]
    places = sampled(tuple(out.shape), problem.expected.value.shape)
    found = device.sample(out, dtype, places)
    result = compare(found, grown(problem.expected, places), dtype)
    finite = bool(np.isfinite(problem.expected.value).all())
    unwritten = device.poisoned(out, dtype) if finite and dtype in ("f16", "bf16", "f32") else 0
    return _passed(problem, result, f"{unwritten} elements were not written" if unwritten else "")


def sampled(shape: Sequence[int], drawn: Sequence[int]) -> list[NDArray[np.int64]]:
    """The places that are compared, for each axis: all, or those drawn and the last ones."""
    return [
        np.unique(np.concatenate([np.arange(min(n, few)), np.arange(n if n == few else max(n - EDGE, 0), n)]))
        for n, few in zip(shape, drawn)
    ]


def grown(expected: Expected, places: Sequence[NDArray[np.int64]]) -> Expected:
    """The reference at places of a problem that repeats its rows."""
    if not places:
        return expected
    at = np.ix_(*(where % max(n, 1) for where, n in zip(places, expected.value.shape)))
    bound = np.broadcast_to(expected.bound, expected.value.shape)
    return Expected(expected.value[at], bound[at])


def _passed(problem: Problem, result: Comparison, why: str) -> Comparison:
    if result.passed and not why:
        return result
    size = ", ".join(f"{name} = {n}" for name, n in problem.size.items())
    raise MismatchError(
        f"{problem.cell['key']} is wrong at {size}, and is not timed: "
        f"{why or f'error {result.error:.1e}, tolerance {result.tolerance:.1e}'}"
    )
