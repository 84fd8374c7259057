"""wootz explain"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ._shared import ARTIFACTS, DONE, MANIFEST, folder, tuning_options

TEXT = "The chain of one cell, from axes to launch formula."


def options(parser: argparse.ArgumentParser) -> None:
    for what in ("kernel", "format", "target"):
        parser.add_argument(
            what, metavar=what.upper(), help="'-' for no format" if what == "format" else None
        )
    parser.add_argument("--manifest", type=Path, default=MANIFEST, metavar="FILE")
    parser.add_argument("--artifacts", "--out", type=folder, metavar="DIR", help="the folder it was built in")
    tuning_options(parser)
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    from ..plan import cells as plan
    from ..plan import explain
    from ..tuning import table

    manifest = plan.load(args.manifest)
    where = args.artifacts or (ARTIFACTS if ARTIFACTS.is_dir() else None)
    tuning = table.Tuning(table.read(args.tuning), args.tiles == "all")
    fact = explain.explain(manifest, args.kernel, args.format, args.target, where, tuning)
    print(json.dumps(fact, indent=2) if args.json else explain.as_text(fact))
    return DONE
