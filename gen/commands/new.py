"""wootz new"""

from __future__ import annotations

import argparse
from pathlib import Path

from ._shared import DONE, UsageError

TEXT = "Write a small project of one's own: a manifest, two kernels, their checks and tests, a wheel."


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the distribution's, and what to load it by")
    parser.add_argument("--out", type=Path, metavar="DIR", help="an empty or new folder (default: NAME)")


def run(args: argparse.Namespace) -> int:
    from ..project import scaffold
    from ..wheel import naming

    try:
        name = naming.library(args.name)
    except ValueError as error:
        raise UsageError(str(error)) from error
    folder = args.out or Path(name)
    made = scaffold.write(folder, name, naming.package(name))
    print(f"{folder}: {len(made)} files; its README.md says how to build, install and test it")
    return DONE
