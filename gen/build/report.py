"""What a command shows: progress on standard error, one summary table on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from .options import Output, Row, Summary

_STEPS = 10  # lines of progress a stage prints where there is no terminal
_COUNTS = ("jobs", "compiled", "current", "emitted", "skipped", "refused", "failed")
_HEADS = {"current": "up to date"}


class _Bar:
    """A progress bar on a terminal; elsewhere a line for each tenth of a stage that takes long."""

    def __init__(self, console: Console) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        what = TextColumn("{task.fields[what]}")
        quiet = not console.is_terminal
        self.bar = Progress(*columns, what, console=console, transient=True, disable=quiet)
        self._console = console
        self._tasks: dict[str, int] = {}

    def show(self, stage: str, done: int, of: int, what: str) -> None:
        """One step of a stage is done."""
        if not self._console.is_terminal:
            if of >= _STEPS and (done * _STEPS // of != (done - 1) * _STEPS // of) and stage == "compile":
                print(f"{stage} {done}/{of}", file=sys.stderr, flush=True)
            return
        if stage not in self._tasks:
            self._tasks[stage] = int(self.bar.add_task(stage, total=of, what=""))
        task = self.bar.task_ids[list(self._tasks).index(stage)]
        self.bar.update(task, completed=done, total=of, what=escape(what))


@contextmanager
def output() -> Iterator[Output]:
    """Messages and progress for one build."""
    from .options import Output

    console = Console(stderr=True)
    bar = _Bar(console)

    def say(message: str) -> None:
        console.print(f"wootz: {message}", markup=False, highlight=False, soft_wrap=True)

    with bar.bar:
        yield Output(say, bar.show)


def _size(count: int) -> str:
    value, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


def _cells(row: Row) -> list[str]:
    counts = [str(getattr(row, key)) if getattr(row, key) else "·" for key in _COUNTS]
    return [*counts, f"{row.seconds:.1f}" if row.seconds else "·", _size(row.bytes) if row.bytes else "·"]


def table(summary: Summary) -> None:
    """The summary: a row for each kernel and target, counted in cells."""
    from .options import Row

    shown = Table(title="cells by kernel and target", title_justify="left")
    for head in ("kernel", "target"):
        shown.add_column(head)
    for head in (*_COUNTS, "seconds", "bytes"):
        shown.add_column(_HEADS.get(head, head), justify="right")
    total = Row("total", "")
    for row in summary.rows:
        shown.add_row(
            escape(row.kernel), escape(row.target), *_cells(row), style="red" if row.failed else None
        )
        for key in (*_COUNTS, "seconds", "bytes"):
            setattr(total, key, getattr(total, key) + getattr(row, key))
    shown.add_section()
    shown.add_row(total.kernel, total.target, *_cells(total), style="bold")
    console = Console()
    Console(width=None if console.is_terminal else 140).print(shown)


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]], breaks: Sequence[int] = ()) -> str:
    """Rows of texts in columns, the first to the left, numbers to the right; an empty line before the rows
    whose positions are in `breaks`."""
    widths = [max(map(len, column)) for column in zip(heads, *rows)]
    lines = []
    for number, row in enumerate((heads, *rows), -1):
        first, *rest = (
            f"{cell:<{w}}" if i == 0 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths))
        )
        lines.append(("\n" if number in breaks else "") + "  ".join((first, *rest)) + "\n")
    return "".join(lines)
