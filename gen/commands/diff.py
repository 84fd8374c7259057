"""wootz diff"""

from __future__ import annotations

import argparse
import json
import sys

from ._shared import artifacts

TEXT = (
    "What differs between two artifact folders or wheels; exit status 0: nothing, 1: something, 2: trouble."
)
SAME, DIFFERS = 0, 1


def options(parser: argparse.ArgumentParser) -> None:
    for side in ("old", "new"):
        parser.add_argument(side, metavar=side.upper(), help="a folder, a wheel, an installed package")
    parser.add_argument("--json", action="store_true", help="JSON on standard output")


def run(args: argparse.Namespace) -> int:
    from ..wheel import diff, shipped

    found = diff.compare(*(shipped.read(artifacts(side)) for side in (args.old, args.new)))
    if args.json:
        print(json.dumps(diff.as_json(found)))
    else:
        sys.stdout.writelines(diff.as_text(found))
    return SAME if found.same else DIFFERS
