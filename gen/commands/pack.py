"""wootz pack"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ._shared import DONE, named

TEXT = "Make wheels of an artifact folder, with no build back end: wootz.load(NAME) finds them."


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--artifacts", type=Path, required=True, metavar="DIR", help="the folder of a whole build"
    )
    parser.add_argument(
        "--name", type=named("library"), required=True, help="the distribution's, and what to load it by"
    )
    parser.add_argument("--version", type=named("version"), required=True, help="as PEP 440 has it")
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR", help="default: dist")
    parser.add_argument(
        "--split", action="store_true", help="a wheel for each target, and one that requires them all"
    )
    parser.add_argument(
        "--sources",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="carry the emitted sources, for wootz.load(jit=True) (default: yes)",
    )
    parser.add_argument(
        "--licence", type=named("licence"), default="", metavar="SPDX", help="an expression, as Apache-2.0"
    )
    parser.add_argument("--licence-file", type=Path, nargs="+", default=(), metavar="FILE", help="to carry")
    parser.add_argument("--json", action="store_true", help="JSON on standard output")


def run(args: argparse.Namespace) -> int:
    from ..wheel import pack

    extra = pack.licence_files(args.licence_file)
    request = pack.Request(
        args.artifacts, args.name, args.version, args.out, args.split, args.sources, args.licence, extra
    )
    made, left_out = pack.pack(request)
    for target in left_out:
        print(f"wootz: {target}: not compiled on this host: left out", file=sys.stderr)
    for each in made:
        if each.note:
            print(f"wootz: {each.path.name} is for Linux like this one: {each.note}", file=sys.stderr)
    if args.json:
        print(json.dumps([{**vars(each), "path": str(each.path)} for each in made]))
    else:
        for each in made:
            print(f"{each.path}  {each.bytes} bytes, {each.cells} cells, {', '.join(each.targets)}")
    return DONE
