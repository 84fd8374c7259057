"""wootz costs"""

from __future__ import annotations

import argparse
from pathlib import Path

from ._shared import DONE

TEXT = "What compiles took, from the folders that were built, as a file that estimates read."


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="artifact folders, or shards")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="costs.json beside a manifest"
    )


def run(args: argparse.Namespace) -> int:
    from ..scale import costs

    found = costs.collect(args.folders)
    costs.write(args.out, found)
    rows = list(costs.compiles(found))
    measured = sum(row.count for row in rows if row.megabytes is not None)
    print(f"{args.out}: {sum(row.count for row in rows)} compiles, {measured} of them with memory")
    return DONE
