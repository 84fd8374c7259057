"""What the commands verify, bench, tune and info share: options read, an error in one line, exit statuses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from .errors import WootzError

__all__ = ["Parser", "run"]


class Parser(argparse.ArgumentParser):
    """Reports a bad command line in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; try: {self.prog} --help\n")


def run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    work: Callable[[argparse.Namespace], int],
    failures: tuple[type[WootzError], ...] = (),
) -> int:
    """The status that `work` gives; 2 for a bad command line, any WootzError, and memory that there is not; 1
    for one of `failures`."""
    try:
        options = parser.parse_args(list(argv))
    except SystemExit as end:
        return int(end.code or 0)
    try:
        return work(options)
    except WootzError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1 if isinstance(error, failures) else 2
    except MemoryError as error:
        print(f"{parser.prog}: {str(error) or 'out of memory'}: choose smaller shapes", file=sys.stderr)
        return 2
