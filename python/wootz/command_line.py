"""What the commands verify, bench, tune and info share: options read, an error in one line, exit statuses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from .errors import WootzError

__all__ = ["run"]


def run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    work: Callable[[argparse.Namespace], int],
    failures: tuple[type[WootzError], ...] = (),
) -> int:
    """The status that `work` gives; 2 for a bad command line and any WootzError, 1 for one of `failures`."""
    try:
        options = parser.parse_args(list(argv))
    except SystemExit as end:
        return int(end.code or 0)
    try:
        return work(options)
    except WootzError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1 if isinstance(error, failures) else 2
