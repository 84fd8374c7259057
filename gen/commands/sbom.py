"""wootz sbom"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ._shared import DONE, artifacts, named

TEXT = "A software bill of materials (CycloneDX) of a wheel that carries these artifacts."


def _linked(text: str) -> tuple[str, str]:
    key, found, version = text.partition("=")
    if not (key and found and version):
        raise argparse.ArgumentTypeError(f"{text}: wanted NAME=VERSION")
    return key, version


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("artifacts", metavar="ARTIFACTS", help="a folder, a wheel, an installed package")
    parser.add_argument("--name", type=named("normal"), required=True, metavar="NAME", help="of the wheel")
    parser.add_argument(
        "--version", type=named("version"), required=True, metavar="VERSION", help="of the wheel"
    )
    parser.add_argument(
        "--licence",
        type=named("licence"),
        default="",
        metavar="EXPRESSION",
        help="of the wheel, in SPDX's words",
    )
    text = "what else is compiled into the wheel, as pybind11=3.0.1"
    parser.add_argument("--linked", nargs="+", type=_linked, default=[], metavar="NAME=VERSION", help=text)
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")


def run(args: argparse.Namespace) -> int:
    from ..emit import provenance
    from ..wheel import archive, sbom, shipped

    found = shipped.read(artifacts(args.artifacts))
    named = args.name, args.version, args.licence
    data = sbom.document(found.index, *named, dict(args.linked), archive.epoch())
    if args.out:
        provenance.write(args.out, data.decode())
    else:
        sys.stdout.write(data.decode())
    return DONE
