"""wootz bench: Time any cells, cold, against the floor that bytes and arithmetic set, and against peers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from .. import command_line, files
from ..errors import ArgumentError
from ..library import load
from . import cells, peers, plot, report, suite
from .ceilings import Ceilings
from .checking import MismatchError
from .devices import FaultError, open_device
from .rows import Measuring, Row, attempt, row_of, sized
from .timing import REPLAYS, WARM
from .worker import Worker

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = command_line.Parser(prog="wootz bench", description=(__doc__ or "").partition(": ")[2])
    add = parser.add_argument
    add("--kernels", type=_names, default=(), metavar="A,B", help='names or globs, as "qgemv" or "unary.*"')
    add("--formats", type=_names, default=(), metavar="A,B", help="names or globs (default: all there are)")
    add("--dtypes", type=_names, default=(), metavar="A,B", help="as bf16,f16 (default: all there are)")
    add("--shapes", type=_names, default=(), metavar="NxK,..", help="by the kernel's symbols in their order")
    add("--size", nargs="+", default=(), metavar="N=E", help="extents by symbol, as n=14336 k=4096")
    add("--m", type=_numbers, default=(), metavar="1,8", help="rows of activations, one size for each")
    add("--device", default="cpu", help='"cpu" (default) or "cuda:N", which needs torch')
    add("--artifacts", metavar="DIR", help="artifact folder (default: the one in the package)")
    add("--peers", nargs="?", const=(), type=_names, metavar="A,B", help="beside these, or all there are")
    add("--pdl", choices=("on", "off"), default="on", help="off: no launch begins before the last has ended")
    add("--replays", type=int, default=REPLAYS, metavar="N", help=f"of each (default: {REPLAYS})")
    add("--suite", type=Path, metavar="FILE", help="cases with limits, in place of the options above")
    add("--budget", type=float, default=float("inf"), metavar="S", help="seconds that a suite may take")
    add("--json", type=Path, metavar="FILE", help="write the report there")
    add("--plot", type=Path, metavar="FILE", help="write a roofline there: .svg, or .png by matplotlib")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _numbers(text: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in _names(text))
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text}: want whole numbers from 1 on")
    return found


def _extents(pairs: Sequence[str]) -> dict[str, int]:
    found = {}
    for pair in (part for each in pairs for part in each.split(",")):
        name, equals, number = pair.partition("=")
        if not (name and equals and number.isdecimal() and int(number)):
            raise ArgumentError(f"--size {pair}: want SYMBOL=EXTENT, as n=4096")
        found[name] = int(number)
    return found


def main(argv: Sequence[str]) -> int:
    """The command. Exit status 0; 1: a result was wrong, or a limit of a suite was not met; 2: bad use, or
    nothing of that description."""
    return command_line.run(_parser(), argv, _run)


def _run(options: argparse.Namespace) -> int:
    _check(options)
    lib, cases = load(options.artifacts), suite.read(options.suite) if options.suite else None
    device = open_device(options.device)
    ceilings = Ceilings(device.name)
    how = Measuring(lib, device, ceilings, options.peers, options.replays, options.pdl == "on")
    with _notes() as note:
        if cases is None:
            lines, (rows, wrong) = None, _rows(how, options, note)
        else:
            lines, wrong = _suite(how, cases, options, note), []
            rows = _rows_of(lines)
        found = _report(how, rows, lines)
    _show(rows, ceilings, device.title)
    for text in wrong:
        print(text)
    bad = len(wrong) if lines is None else _show_suite(lines)
    if options.json:
        files.write(options.json, report.as_json(found))
    if options.plot and rows:
        files.write(options.plot, plot.picture(options.plot, device.title, ceilings, rows))
    return 1 if bad else 0


_OF_CASES = {**dict.fromkeys(("kernels", "formats", "dtypes", "shapes", "size", "m"), ()), "peers": None}
"""Options that the cases of a suite have for themselves, with their defaults."""


def _check(options: argparse.Namespace) -> None:
    """What can be wrong before anything is measured."""
    if options.replays <= WARM + 1:
        raise ArgumentError(f"--replays {options.replays}: want more than {WARM + 1}; {WARM} do not count")
    if options.suite and any(getattr(options, name) != default for name, default in _OF_CASES.items()):
        raise ArgumentError("--suite has its own kernels, sizes and peers: leave these options out")
    if not options.suite and not options.kernels:
        raise ArgumentError("name --kernels, or a --suite")
    peers.refuse_missing(options.peers or ())
    plot.check_format(options.plot)
    for path in (options.json, options.plot):
        files.check(path)


@contextmanager
def _notes() -> Iterator[Callable[[str], None]]:
    """What is being measured, on a terminal, one line that is written over."""
    live = sys.stderr.isatty()

    def note(text: str) -> None:
        if live:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    try:
        yield note
    finally:
        note("")


def _rows(
    how: Measuring, options: argparse.Namespace, note: Callable[[str], None]
) -> tuple[list[Row], list[str]]:
    """The rows of a command line, and what was wrong."""
    wanted = cells.Wanted(
        options.kernels, options.formats, options.dtypes, options.shapes, _extents(options.size), options.m
    )
    chosen = cells.chosen(how.lib, how.device.name, wanted)
    work = [(cell, size) for cell in chosen for size in cells.sizes(how.lib, cell, wanted)]
    rows: list[Row] = []
    wrong: list[str] = []
    for i, (cell, size) in enumerate(work):
        note(f"{i + 1} of {len(work)}: {cell['key']}")
        try:
            rows.append(row_of(how, cell, size))
        except MismatchError as error:
            wrong.append(str(error))
        except FaultError as error:
            if not rows:  # nor ceilings, which could not be measured any more
                raise
            left = f"; not measured after it: {len(work) - i - 1}" if work[i + 1 :] else ""
            return rows, [*wrong, f"{cell['key']} {sized(size)}: {error}{left}"]
        how.device.free()
    return rows, wrong


def _suite(
    how: Measuring, cases: Sequence[suite.Case], options: argparse.Namespace, note: Callable[[str], None]
) -> list[suite.Line]:
    """Lines as they come; a report is written after each case, so that a run that is ended leaves one."""
    lines: list[suite.Line] = []
    with Worker(how) if how.device.fragile else nullcontext(attempt) as trying:
        for line in suite.run(how, cases, options.budget, note, trying):
            note("")
            cell = f"{line.row.cell} {line.row.size}: " if line.row else ""
            print(f"{line.verdict:8} {line.case}: {cell}{line.found}", flush=True)
            if options.json and lines and lines[-1].case != line.case:
                files.write(options.json, report.as_json(_report(how, _rows_of(lines), lines)))
            lines.append(line)
    return lines


def _rows_of(lines: Sequence[suite.Line]) -> list[Row]:
    return [line.row for line in lines if line.row]


def _report(how: Measuring, rows: Sequence[Row], lines: Sequence[suite.Line] | None) -> dict[str, Any]:
    more = {} if lines is None else {"lines": [line.to_json() for line in lines]}
    return report.report(how.lib, how.device, how.ceilings, rows, **more)


def _show(rows: Sequence[Row], ceilings: Ceilings, title: str) -> None:
    rates = "".join(f", {dtype} {rate:.3g} TFLOP/s" for dtype, rate in ceilings.matrix_tflops.items())
    print(f"{title}: read {ceilings.read_gb_s:.1f} GB/s{rates}")
    if rows:
        report.shown(*report.table(rows))
    for text in report.absent(rows):
        print(text)


def _show_suite(lines: Sequence[suite.Line]) -> int:
    """A line a case; how many lines were not met."""
    head, verdicts = ("case", "met", "short", "stated", "wrong", "missing"), suite.summary(lines)
    shown = [[case, *(str(of.get(name, 0)) for name in head[1:])] for case, of in verdicts]
    report.shown(head, shown)
    return sum(line.verdict not in ("met", "stated") for line in lines)
