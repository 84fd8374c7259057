"""wootz check"""

from __future__ import annotations

import argparse
from pathlib import Path

from ._shared import DONE

TEXT = "Validate a manifest."


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", type=Path, metavar="MANIFEST")


def run(args: argparse.Namespace) -> int:
    from ..plan.cells import load

    manifest = load(args.manifest)
    parts = ((manifest.formats, "formats"), (manifest.kernels, "kernels"), (manifest.targets, "targets"))
    print(f"{args.manifest}: valid: {', '.join(f'{len(items)} {what}' for items, what in parts)}")
    return DONE
