"""wootz list"""

from __future__ import annotations

import argparse
import sys

from ._shared import ARTIFACTS, DONE, artifact_folders, plan_options, request

TEXT = "Every cell of a plan: kernel, format, dtype, target, state, reason."


def options(parser: argparse.ArgumentParser) -> None:
    plan_options(parser)
    parser.add_argument("--state", choices=("job", "skip", "refused"), help="only cells in this state")
    parser.add_argument("--artifacts", default=ARTIFACTS, metavar="DIR|NAME", help="where evidence is read")


def run(args: argparse.Namespace) -> int:
    from ..build import index
    from ..plan import cells as plan
    from ..plan import listing, name

    manifest = plan.load(args.manifest)
    selection = plan.select(manifest, request(args))
    for note in selection.notes:
        print(f"wootz: {note}", file=sys.stderr)
    evidence = {}
    for folder in artifact_folders(args.artifacts):
        if args.artifacts is not ARTIFACTS:  # one that is named has to be there, and whole
            index.read(folder / name.INDEX)
        evidence.update(listing.indexed_evidence(folder, manifest))
    rows = listing.rows(manifest, selection, evidence)
    if args.state:
        rows = (row for row in rows if row["state"] == args.state)
    sys.stdout.writelines(listing.as_json(rows) if args.json else listing.as_table(rows, selection))
    return DONE
