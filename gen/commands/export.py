"""wootz export"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._shared import DONE, MANIFEST, UsageError

TEXT = "One cell as a program of its own, or as a solution of a benchmark."


def options(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    program = kinds.add_parser("program", help="a .cu with operands, launch and check, and a Makefile")
    program.add_argument(
        "--size", nargs="+", action="extend", default=[], metavar="NAME=VALUE",
        help="sizes of the kernel's check, as n=1024; the others are the check's own",
    )  # fmt: skip
    solution = kinds.add_parser("solution", help="the solution.json of NVIDIA's SOL-ExecBench")
    solution.add_argument("--definition", default="", metavar="NAME", help="default: the kernel's name")
    solution.add_argument("--author", default="wootz", metavar="NAME")
    solution.add_argument(
        "--hardware", nargs="+", default=["LOCAL"], metavar="NAME", help="as the benchmark names it"
    )
    for kind in (program, solution):
        kind.add_argument("cell", metavar="CELL", help="KERNEL[.OPTION]/FORMAT/DTYPE/TARGET, as wootz list")
        kind.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new or empty folder")
        kind.add_argument("--manifest", type=Path, default=MANIFEST, metavar="FILE")
        kind.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    from ..export import cell
    from ..plan import cells as plan

    sizes = _sizes(args.size) if args.kind == "program" else {}
    source = cell.find(plan.load(args.manifest), args.cell)
    made = _program(source, sizes, args) if args.kind == "program" else _solution(source, args)
    made["left_out"] = list(source.left_out)
    if args.json:
        print(json.dumps(made))
    else:
        told = [f"{name} = {value}" for name, value in made.get("size", {}).items()]
        print(f"{args.out}: {', '.join(made['files'])}: {', '.join([args.cell, *told])}")
        if source.left_out:
            print(f"left out, as they take tensor maps: {', '.join(source.left_out)}")
    return DONE


def _program(source: Any, sizes: dict[str, int], args: argparse.Namespace) -> dict[str, Any]:
    with _checks():
        from ..export import program
    return program.write(source, sizes, args.out)


def _solution(source: Any, args: argparse.Namespace) -> dict[str, Any]:
    with _checks():
        from ..export import solution
    return solution.write(source, args.definition, args.author, args.hardware, args.out)


@contextlib.contextmanager
def _checks() -> Iterator[None]:
    """Says what is missing where the package that runs kernels is."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("wootz", "numpy"):
            raise
        raise UsageError(f"export needs the package {error.name}: run: pip install wootz") from error


def _sizes(given: list[str]) -> dict[str, int]:
    """name=value pairs. UsageError for what is none."""
    found: dict[str, int] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name in found:
            raise UsageError(f"--size {text}: {name} is given already, as {found[name]}; say it once")
        try:
            found[name] = int(value)
        except ValueError:
            raise UsageError(f"--size {text}: wanted NAME=VALUE with a whole number, as n=1024") from None
    return found
