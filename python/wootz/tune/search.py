"""One case: every variant that takes its shape is checked against the reference, then timed; the wrong ones
are never timed. All are timed briefly, those near the best again, in turn."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import reference
from ..arrays import parse_device
from ..errors import ArgumentError, NoVariantError, WootzError
from ..modules import resolve_device
from ..plan import make_plan
from ..staging import Memory, memory
from ..verify import blank, moved, operand_dtypes
from .cases import NONE, Case, suffix
from .clock import Clock, Launches
from .operands import Problem, make
from .table import Row, best

if TYPE_CHECKING:
    from ..kernel import Kernel
    from ..library import Library
    from ..plan import Plan

__all__ = ["Budget", "Outcome", "device_name", "search"]

NEAR = 1.15
"""Variants within this ratio of the best are timed again."""

COPIES = 2, 64
"""Least and most sets of operands of a case."""


@dataclass(frozen=True)
class Budget:
    """seconds: of the brief timing of a variant, and of the longer one. bytes: what the operands of a case
    should outgrow together: several times the caches."""

    brief: float = 0.01
    long: float = 0.05
    bytes: int = 400 << 20


@dataclass(frozen=True)
class Outcome:
    """What came of a case: a row; or why there is none. wrong: by variant, why it was not timed. refused: the
    kernel does not take the shape. single: it has nothing to choose from. failed: it broke."""

    case: Case
    row: Row | None = None
    wrong: tuple[tuple[str, str], ...] = ()
    refused: str = ""
    failed: str = ""
    single: bool = False

    @property
    def good(self) -> bool:
        return not self.wrong and not self.failed


def device_name(device: str) -> str:
    """What rows call a device: a GPU's name, or the processor's model."""
    kind, number = parse_device(device)
    if kind != "cpu":
        return resolve_device(kind, number).name
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def search(lib: Library, case: Case, device: str, clock: Clock, budget: Budget) -> Outcome:
    """The fastest variant of a case on a device. Errors of the case become an Outcome."""
    try:
        return _search(lib, case, device, clock, budget)
    except (WootzError, MemoryError, RuntimeError) as error:  # the next cases must still run
        return Outcome(case, failed=f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _search(lib: Library, case: Case, device: str, clock: Clock, budget: Budget) -> Outcome:
    format = None if case.format == NONE else case.format
    kernel = lib.kernel(case.kernel, format, case.dtype, device, **dict(case.options))
    symbols = kernel.variants()
    if len(symbols) == 1:
        return Outcome(case, single=True)
    signature = kernel.signature
    if signature.in_place or any(each.updated for each in signature.operands):
        return Outcome(case, refused=f"{case.kernel} writes to its operands: runs of it are not alike")
    try:
        plans = _plans(kernel, symbols, dict(case.shape))
    except ArgumentError as error:
        return Outcome(case, refused=str(error))
    bench = Bench.of(lib, kernel, case, device, budget)
    wrong = {s: why for s, plan in plans.items() if (why := bench.check(plan))}
    right = {s: bench.launches(plan) for s, plan in plans.items() if s not in wrong}
    names = {s: suffix(case, s) for s in symbols}
    told = tuple((names[s], why) for s, why in wrong.items())
    if not right:
        return Outcome(case, None, told, failed="no variant gives the right result")
    times = {names[s]: us for s, us in _time(right, clock, budget).items()}
    return Outcome(case, _row(case, times, list(names.values()), device_name(device)), told)


def _plans(kernel: Kernel, symbols: tuple[str, ...], shape: dict[str, int]) -> dict[str, Plan]:
    """Those of the variants that take the shape. Raises ArgumentError for one that none takes."""
    make_plan(kernel, shape)
    plans = {}
    for symbol in symbols:
        try:
            plans[symbol] = make_plan(kernel.only(symbol), shape)
        except NoVariantError:
            continue
    return plans


def _time(right: Mapping[str, Launches], clock: Clock, budget: Budget) -> dict[str, float]:
    """Microseconds of each variant."""
    times = dict(zip(right, clock(list(right.values()), budget.brief)))
    near = [s for s, us in times.items() if us <= NEAR * min(times.values())]
    if len(near) > 1:
        times.update(zip(near, clock([right[s] for s in near], budget.long)))
    return times


def _row(case: Case, times: Mapping[str, float], order: list[str], device: str) -> Row:
    winner, runner_up = best(times, order)
    return Row(
        case.head, case.format, case.dtype, dict(case.shape), winner, round(times[winner], 3),
        runner_up, round(times[runner_up], 3) if runner_up else None, len(times), device, case.source,
    )  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """The operands of a case on a device, several times, and what the kernel should make of them."""

    problem: Problem
    sets: tuple[dict[str, Any], ...]
    output: Callable[[], Any]
    dtype: str

    @classmethod
    def of(cls, lib: Library, kernel: Kernel, case: Case, device: str, budget: Budget) -> Bench:
        where, signature = memory(device), kernel.signature
        record = lib.index.find("kernels", case.kernel) or {}
        format = lib.format(case.format) if case.format != NONE else None
        made = make(case.kernel, signature, format, case.dtype, dict(case.options), dict(case.shape))
        types = {each: kernel.dtype_of(each) for each in kernel._reader.dtypes}
        types |= operand_dtypes(record, {"dtype": case.dtype, "types": kernel._types})
        count = min(max(COPIES[0], -(-budget.bytes // max(1, _bytes(made.values)))), COPIES[1])
        sets = tuple(_there(made.values, types, where) for _ in range(count))
        shape, dtype = made.expected.value.shape, types[signature.output.name]
        like = made.values.get(signature.output.name)
        return cls(made, sets, lambda: blank(record["output"], like, shape, dtype, where), dtype)

    def check(self, plan: Plan) -> str:
        """Why a variant's result is wrong, or nothing."""
        out = self.output()
        try:
            plan(**self.sets[0], out=out.array)
            actual, whole = out.read()
        except WootzError as error:
            return f"{type(error).__name__}: {error}"
        found = reference.compare(actual, self.problem.expected, self.dtype)
        if not whole:
            return "wrote outside its output"
        if found.passed:
            return ""
        return f"error {found.error:.2e}, tolerance {found.tolerance:.2e}"

    def launches(self, plan: Plan) -> Launches:
        """A launch for each set of operands."""
        return [_Launch(plan, each, self.output().array) for each in self.sets]


@dataclass(frozen=True)
class _Launch:
    plan: Plan
    operands: dict[str, Any]
    out: Any

    def __call__(self) -> object:
        return self.plan(**self.operands, out=self.out)


def _there(values: Mapping[str, Any], types: Mapping[str, str], where: Memory) -> dict[str, Any]:
    return {name: moved(value, types.get(name, ""), where) for name, value in values.items()}


def _bytes(values: Mapping[str, Any]) -> int:
    return sum(array.nbytes for array in _arrays(values))


def _arrays(values: Mapping[str, Any]) -> Iterator[np.ndarray[Any, Any]]:
    for value in values.values():
        yield from (value.fields.values() if hasattr(value, "fields") else (value,))
