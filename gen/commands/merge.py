"""wootz merge"""

from __future__ import annotations

import argparse
from pathlib import Path

from ._shared import DONE

TEXT = "Put the shards of one build together in one folder."


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shards", type=Path, nargs="+", metavar="SHARD", help="folders of wootz build --shard"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a folder that is new or empty"
    )


def run(args: argparse.Namespace) -> int:
    from ..scale.merge import merge

    cells = merge(args.shards, args.out)
    print(f"{args.out}: {len(args.shards)} shards, {cells} cells")
    return DONE
