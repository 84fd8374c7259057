"""wootz size"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from ._shared import ARTIFACTS, DONE, artifact_folders

TEXT = "What artifacts weigh, by kernel, format or target."


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--artifacts", default=ARTIFACTS, metavar="DIR|NAME", help="a folder, or an installed package"
    )
    parser.add_argument("--by", choices=("kernel", "format", "target"), default="target")
    parser.add_argument("--json", action="store_true", help="bytes, as JSON on standard output")


def run(args: argparse.Namespace) -> int:
    from ..build import index
    from ..build.report import grid
    from ..plan import name
    from ..scale import weights
    from ..scale.sizes import show

    items = []
    for folder in artifact_folders(args.artifacts):
        path = folder / name.INDEX
        items += weights.weigh(folder.joinpath, index.read(path), path.read_bytes())
    groups, whole = weights.by(items, args.by), weights.total(items)
    kinds = {kind: weights.total(i for i in items if i.kind == kind) for kind in weights.KINDS}
    if args.json:
        parts = {"by": args.by, "groups": groups, "kinds": kinds, "total": whole}
        print(json.dumps(parts, default=asdict))
        return DONE
    rows = [(key, sums) for key, sums in (*groups.items(), *kinds.items(), ("total", whole))]
    texts = [(key, str(sums.files), show(sums.raw), show(sums.wheel)) for key, sums in rows]
    sections = (len(groups), len(groups) + len(kinds))
    print(grid((args.by, "files", "raw", "in a wheel"), texts, sections), end="")
    return DONE
