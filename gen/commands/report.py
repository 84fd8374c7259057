"""wootz report"""

from __future__ import annotations

import argparse
from pathlib import Path

from ._shared import ARTIFACTS, DONE, names

TEXT = "A page about artifacts: coverage, evidence, sizes, times, speed, every source."


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--artifacts", type=Path, default=ARTIFACTS, metavar="DIR", help="an artifact folder, or a wheel"
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
    parser.add_argument("--profile", default="default", help="with --manifest: a profile of it")
    for what in ("targets", "formats", "kernels", "knobs"):
        text = f"with --manifest: only these, as in wootz list --{what}"
        parser.add_argument(f"--{what}", nargs="+", metavar="NAME", help=text)


def run(args: argparse.Namespace) -> int:
    from ..plan import Request
    from ..site.planned import planned
    from ..site.report import report

    filters = (names(getattr(args, what)) for what in ("targets", "formats", "kernels", "knobs"))
    of_plan = planned(args.manifest, Request(args.profile, *filters)) if args.manifest else None
    made = report(args.artifacts, args.out, args.bench, of_plan)
    print(f"{args.out / 'index.html'}: {made.cells} cells, {made.units} units, {made.changed} files changed")
    return DONE
