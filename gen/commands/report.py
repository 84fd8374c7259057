"""wootz report"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ._shared import ARTIFACTS, DONE, UsageError, artifacts, request

TEXT = "A page about artifacts: coverage, evidence, sizes, times, speed, every source."


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--artifacts",
        default=ARTIFACTS,
        metavar="DIR|WHEEL|NAME",
        help="a folder, a wheel, an installed package",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="new, or of an earlier report: open index.html"
    )
    parser.add_argument(
        "--bench",
        type=Path,
        nargs="+",
        default=[],
        action="extend",
        metavar="FILE",
        help="of wootz bench --json",
    )
    parser.add_argument(
        "--manifest",
        type=Path,
        metavar="FILE",
        help="adds what its plan refuses, skips or has yet to build, compiler calls and tiles",
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="with --manifest: a profile of it (default: default)"
    )
    for what in _FILTERS:
        text = f"with --manifest: only these, as in wootz list --{what}"
        parser.add_argument(f"--{what}", nargs="+", metavar="NAME", help=text)


_FILTERS = ("targets", "formats", "kernels", "knobs")


def run(args: argparse.Namespace) -> int:
    from ..site.report import report

    made = report(artifacts(args.artifacts), args.out, args.bench, _planned(args))
    print(f"{args.out / 'index.html'}: {made.cells} cells, {made.units} units, {made.changed} files changed")
    return DONE


def _planned(args: argparse.Namespace) -> Any:
    """What the manifest plans, where one is named."""
    if args.manifest is None:
        if alone := next((what for what in ("profile", *_FILTERS) if getattr(args, what) is not None), None):
            raise UsageError(f"--{alone} says which cells of a manifest to show: add --manifest FILE")
        return None
    from ..site.planned import planned

    return planned(args.manifest, request(args))
