"""One case: every variant that takes its shape is checked against the reference, then timed; the wrong ones
are never timed. All are timed briefly, those near the best once more, in turn."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ..bench import MismatchError, check, measure, operands_for, place, prepare
from ..bench.timing import lasting
from ..errors import ArgumentError, DriverError, NoVariantError, WootzError
from .cases import NONE, Case, suffix
from .table import Row, best

if TYPE_CHECKING:
    from ..bench.devices import Bench
    from ..bench.problems import Placed, Runs
    from ..bench.timing import Times
    from ..kernel import Kernel
    from ..library import Library

__all__ = ["BRIEF", "LONG", "Manner", "Outcome", "search"]

NEAR = 1.15
"""Variants within this ratio of the best are timed again."""

BRIEF, LONG = 7, 18
"""Replays of either timing; the core leaves the first ones out."""


@dataclass(frozen=True)
class Manner:
    """How a run goes. without: variants that are left out, names or globs. verbose: each variant is named
    before it runs, and its time said after: a launch that never ends has a name."""

    without: tuple[str, ...] = ()
    verbose: bool = False

    def leaves_out(self, variant: str) -> bool:
        return any(fnmatchcase(variant, pattern) for pattern in self.without)

    def say(self, text: str) -> None:
        if self.verbose:
            print(text, file=sys.stderr, flush=True)


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


def search(lib: Library, case: Case, device: Bench, manner: Manner) -> Outcome:
    """The fastest variant of a case on a device. Errors of the case become its outcome; DriverError is raised
    where the device is lost."""
    try:
        return _search(lib, case, device, manner)
    except (WootzError, MemoryError, RuntimeError) as error:  # the next cases must still run
        if isinstance(error, DriverError) and error.lost:
            raise
        return Outcome(case, failed=f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
    finally:
        with contextlib.suppress(RuntimeError):  # of a device that is lost
            device.free()


def _search(lib: Library, case: Case, device: Bench, manner: Manner) -> Outcome:
    format = None if case.format == NONE else case.format
    kernel = lib.kernel(case.kernel, format, case.dtype, device.name, **dict(case.options))
    names = {symbol: suffix(case, symbol) for symbol in kernel.variants()}
    symbols = [symbol for symbol, name in names.items() if not manner.leaves_out(name)]
    if len(names) == 1:
        return Outcome(case, single=True)
    cell = lib.index.find("cells", case.cell)
    if cell is None:
        return Outcome(case, failed=f"{lib.path} has no cell {case.cell}: it is not the folder of the others")
    try:
        problem = operands_for(lib, cell, dict(case.shape))
    except ArgumentError as error:
        return Outcome(case, refused=str(error))
    trial = Trial(kernel, place(problem, device), device)
    times, wrong = trial.screen({symbol: names[symbol] for symbol in symbols}, manner)
    if times:
        times |= trial.again([s for s, us in times.items() if us <= NEAR * min(times.values())])
    told = tuple((names[symbol], why) for symbol, why in wrong.items())
    if not times:
        reason = "no variant takes the shape" if not wrong else ""
        return Outcome(case, None, told, refused=reason)
    by_name = {names[symbol]: us for symbol, us in times.items()}
    return Outcome(case, _row(case, by_name, list(names.values()), device.title), told)


@dataclass(frozen=True)
class Trial:
    """A kernel, and operands on a device."""

    kernel: Kernel
    placed: Placed
    device: Bench

    def screen(self, names: Mapping[str, str], manner: Manner) -> tuple[dict[str, float], dict[str, str]]:
        """Microseconds of each variant that takes the shape and is right; why the others are wrong. names: of
        variants, by symbol."""
        times, wrong = {}, {}
        for symbol, name in names.items():
            kernel = self.kernel.only(symbol)
            manner.say(f"  {name}")
            try:
                runs = prepare(kernel, self.placed, self.device)
                check(self.placed.problem, runs, self.device, kernel)
            except NoVariantError:
                continue
            except MismatchError as error:
                wrong[symbol] = str(error)
                continue
            (times[symbol],) = self._time([runs], BRIEF)
            manner.say(f"  {name}: {times[symbol]:.3f} us")
        return times, wrong

    def again(self, symbols: Sequence[str]) -> dict[str, float]:
        """Microseconds of these variants, timed in turn."""
        if len(symbols) < 2:
            return {}
        runs = [prepare(self.kernel.only(symbol), self.placed, self.device) for symbol in symbols]
        return dict(zip(symbols, self._time(runs, LONG)))

    def _time(self, runs: Sequence[Runs], replays: int) -> Sequence[float]:
        name = self.device.name
        times: Times = measure([lasting(each.launches, name) for each in runs], name, replays)
        return times.us


def _row(case: Case, times: Mapping[str, float], order: Sequence[str], device: str) -> Row:
    winner, runner_up = best(times, order)
    beside: Any = None if runner_up is None else round(times[runner_up], 3)
    return Row(
        case.head, case.format, case.dtype, dict(case.shape), winner, round(times[winner], 3),
        runner_up, beside, len(times), device, case.source,
    )  # fmt: skip
