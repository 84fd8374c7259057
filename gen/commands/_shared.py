"""What the commands share: exit statuses, default places, options of a plan and of a build."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_BESIDE = Path(__file__).resolve().parents[2]
MANIFEST = _BESIDE / "kernels.yaml"
EVIDENCE = _BESIDE / "evidence"
TUNING = _BESIDE / "tuning"
ARTIFACTS = _BESIDE / "artifacts"
DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class UsageError(ValueError):
    """A command line that asks for something that is not there."""


def names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Names given as separate words, or with commas between them."""
    return tuple(part for value in values or () for part in value.split(",") if part)


def request(args: argparse.Namespace) -> Any:
    """The plan.Request of the options that `plan_options` adds."""
    from ..plan.cells import Request

    filters = {f: names(getattr(args, f)) for f in ("targets", "formats", "kernels", "knobs")}
    return Request(
        args.profile or "default", **filters, tiles="all" if getattr(args, "tiles", "") == "all" else ""
    )


def jobs(text: str) -> int:
    count = int(text) if text.isdecimal() else 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted a whole number, 1 or more")
    return count


def artifact_folders(given: Path | str) -> list[Path]:
    """The folders of --artifacts: one that is named, or those of an installed package, as wootz.load has it.
    UsageError for a package that cannot be used."""
    if isinstance(given, Path) or os.sep in given:
        return [Path(given)]
    try:
        packages = importlib.import_module("wootz.packages")
    except ModuleNotFoundError:  # a checkout, and nothing installed
        return [Path(given)]
    try:
        return [part.folder for part in packages.find(given)] or [Path(given)]
    except packages.ArtifactError as error:
        raise UsageError(str(error)) from error


def artifacts(given: Path | str) -> Path:
    """The one folder or wheel of an argument that `artifact_folders` understands. UsageError as there, and
    for a package of several parts."""
    folders = artifact_folders(given)
    if len(folders) > 1:
        where = ", ".join(map(str, folders))
        raise UsageError(f"{given} is installed in {len(folders)} parts: name the folder of one: {where}")
    return folders[0]


def named(rule: str) -> Callable[[str], str]:
    """The type of an option whose value has a rule of wheel/naming.py."""

    def checked(text: str) -> str:
        from ..wheel import naming

        try:
            return str(getattr(naming, rule)(text))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--manifest", type=Path, default=MANIFEST, metavar="FILE", help="default: the one shipped"
    )
    parser.add_argument("--profile", default="default", help="a profile of the manifest (default: default)")
    for what, more in (
        ("targets", "; native is this machine"),
        ("formats", "; '-' is: no format"),
        ("kernels", ""),
    ):
        text = f"only these, names or globs, separated by spaces or commas{more}"
        parser.add_argument(f"--{what}", nargs="+", metavar="NAME", help=text)
    text = "values of knobs to build beside the defaults, as math=fast; in place of the profile's"
    parser.add_argument("--knobs", nargs="+", metavar="KNOB=VALUE", help=text)
    parser.add_argument("--json", action="store_true", help="JSON on standard output")


def folder_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="artifact folder; afterwards it holds this plan's files and no others of an earlier build",
    )
    parser.add_argument(
        "-j", "--jobs", type=jobs, default=os.cpu_count() or 1, metavar="N", help="parallel work"
    )
    parser.add_argument(
        "--evidence", type=Path, default=EVIDENCE, metavar="DIR", help="reports of wootz verify"
    )
    tuning_options(parser)


def folder(text: str) -> Path:
    """The type of an option that names a folder which is there."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no such folder")
    return Path(text)


def tuning_options(parser: argparse.ArgumentParser) -> None:
    """Which variants a unit has."""
    text = "the default variants and those that selection tables name, or every tile, for wootz tune"
    parser.add_argument("--tiles", choices=("default", "all"), default="default", help=text)
    parser.add_argument("--tuning", type=folder, default=TUNING, metavar="DIR", help="selection tables")


def _build_options(args: argparse.Namespace) -> Any:
    from ..build.options import Options
    from ..scale.shards import Shard
    from ..toolchain.find import Names
    from ..toolchain.tool import launcher_named

    shard = getattr(args, "shard", "")

    return Options(
        manifest=args.manifest,
        request=request(args),
        out=args.out,
        evidence=args.evidence,
        jobs=args.jobs,
        names=Names.from_environment(getattr(args, "nvcc", "")),
        launcher=launcher_named(),
        costs=getattr(args, "costs", None),
        shard=Shard.parse(shard) if shard else None,
        tuning=args.tuning,
    )


def work(args: argparse.Namespace, run: Callable[[Any, Any], Any], verb: str) -> int:
    """Run a build function with progress, and print its summary."""
    from ..build import report

    with report.output() as output:
        summary = run(_build_options(args), output)
    if args.json:
        print(json.dumps(summary.to_json()))
    else:
        report.table(summary)
    for artifact, variants in summary.left_out.items():
        for symbol, reason in variants.items():
            print(f"wootz: {artifact}: {symbol} is left out: {reason}", file=sys.stderr)
    for unit, problem in sorted(summary.failures.items()):
        print(f"wootz: {unit}: {problem}", file=sys.stderr)
    if summary.failures:
        print(f"wootz: {len(summary.failures)} of the plan's parts could not be {verb}", file=sys.stderr)
    return FAILED if summary.failures else DONE
