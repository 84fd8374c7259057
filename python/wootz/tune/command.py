"""The command `wootz tune`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import command_line
from ..arrays import parse_device
from ..errors import ArgumentError, DriverError
from ..library import load
from ..verify import cells_for
from .cases import Case, cases, parse_shapes, targets
from .search import Manner, Outcome
from .table import Table

__all__ = ["main"]

_WIDTH = 24


def _parser() -> argparse.ArgumentParser:
    parser = command_line.Parser(
        prog="wootz tune",
        description="Check and time every variant of kernels at shapes, and write which is fastest to a "
        "selection table. For artifacts with every tile: wootz build --tiles all.",
    )
    parser.add_argument("--artifacts", metavar="DIR", help="artifact folder (default: the package's)")
    text = '"cpu", or "cuda:N"; several share the cases out (needs the extra wootz[tune])'
    parser.add_argument("--device", nargs="+", default=["cpu"], metavar="NAME", help=text)
    for what in ("kernels", "formats", "dtypes"):
        text = f"only these {what}, names or globs"
        parser.add_argument(f"--{what}", nargs="+", default=[], metavar="NAME", help=text)
    text = "extents by name, several separated by colons, as m=1:8,n=14336,k=4096"
    parser.add_argument("--shapes", nargs="+", required=True, metavar="SHAPE", help=text)
    text = "the table, TARGET.json: rows of the same text and device are kept, others join them"
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help=text)
    parser.add_argument("--again", action="store_true", help="measure what the table has, too")
    text = "variants that are not run, names or globs"
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help=text)
    parser.add_argument("--verbose", action="store_true", help="name each variant before it runs")
    parser.add_argument("--scheduler", default="", metavar="ADDRESS", help="of dask, as tcp://host:8786")
    return parser


def main(argv: Sequence[str]) -> int:
    """The command. Exit status 0: done; 1: a variant was wrong, or a case failed; 2: bad use."""
    return command_line.run(_parser(), argv, _run, failures=(DriverError,))


def _run(options: argparse.Namespace) -> int:
    _check_devices(options.device, options.scheduler)
    lib = load(options.artifacts)
    table, wanted = _cases(lib, options)
    table.add(())  # a table that cannot be written is known before the work
    titles = {_title(device) for device in options.device}
    todo = [c for c in wanted if options.again or not any(table.has(c.key(t), c.source) for t in titles)]
    if len(todo) < len(wanted):
        print(f"{len(wanted) - len(todo)} of {len(wanted)} cases are in {options.out}: kept")
    good, taken = True, not todo
    for number, outcome in enumerate(_outcomes(lib, todo, options), 1):
        if outcome.row:
            table.add((outcome.row,))
        good, taken = good and outcome.good, taken or not outcome.refused
        _show(outcome, number, len(todo))
    if not taken:
        raise ArgumentError("no kernel takes any of these shapes")
    print(f"{options.out}: {len(table.rows)} rows")
    return 0 if good else 1


def _check_devices(devices: Sequence[str], scheduler: str) -> None:
    kinds = {parse_device(device)[0] for device in devices}
    if len(kinds) > 1:
        raise ArgumentError(f"--device: {' and '.join(devices)} are not alike: tune each by itself")
    if scheduler and len(devices) > 1:
        raise ArgumentError("--device: name the one that each worker of the scheduler sees")


def _cases(lib: Any, options: argparse.Namespace) -> tuple[Table, list[Case]]:
    """The table, and the cases that the command line names."""
    shapes = parse_shapes(options.shapes)
    cells = cells_for(lib, options.device[0])
    found = list(targets(cells))
    target = options.out.stem
    if target not in found:
        raise ArgumentError(
            f"--out: {options.out} is the table of a target {target!r}; {options.device[0]} runs those of "
            f"{', '.join(found) or 'none'}: name it TARGET.json"
        )
    mine = [cell for cell in cells if cell["target"] == target]
    wanted = cases(mine, shapes, options.kernels, options.formats, options.dtypes)
    return Table(options.out, target), wanted


def _title(device: str) -> str:
    from ..bench import open_device

    title: str = open_device(device).title
    return title


def _outcomes(lib: Any, todo: Sequence[Case], options: argparse.Namespace) -> Any:
    from .spread import outcomes

    manner = Manner(tuple(options.without), options.verbose)
    return outcomes(str(lib.path), todo, options.device, options.scheduler, manner) if todo else ()


def _show(outcome: Outcome, number: int, count: int) -> None:
    """A line for the case, lines for wrong variants, and on a terminal how far the run is."""
    live = sys.stderr.isatty()
    if live:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    for variant, why in outcome.wrong:
        print(f"wootz tune: {outcome.case}: {variant} is wrong, and was not timed: {why}", file=sys.stderr)
    print(f"{outcome.case}: {_result(outcome)}", flush=True)
    if live and number < count:
        done = "#" * (_WIDTH * number // count)
        print(f"[{done:{_WIDTH}}] {number}/{count}", end="", file=sys.stderr, flush=True)


def _result(outcome: Outcome) -> str:
    row = outcome.row
    if row is None:
        single = "one variant: nothing to choose" if outcome.single else ""
        refused = f"refused: {outcome.refused}" if outcome.refused else ""
        return single or refused or f"FAILED: {outcome.failed or 'no variant is right'}"
    beside = f" (next: {row.next} {row.next_us}; {row.tried} timed)" if row.next else " (alone)"
    return f"{row.variant} {row.us} us{beside}"
