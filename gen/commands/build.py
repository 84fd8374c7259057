"""wootz build"""

from __future__ import annotations

import argparse
from pathlib import Path

from ._shared import UsageError, folder_options, plan_options, work

TEXT = "Emit, compile, audit and index the artifacts of a plan."


def options(parser: argparse.ArgumentParser) -> None:
    plan_options(parser)
    folder_options(parser)
    parser.add_argument("--nvcc", default="", metavar="PATH", help="the CUDA compiler (or WOOTZ_NVCC)")
    parser.add_argument("--shard", default="", metavar="i/n", help="build this part only, for wootz merge")
    parser.add_argument(
        "--costs",
        type=Path,
        metavar="FILE",
        help="what compiles cost (default: costs.json beside the manifest)",
    )
    parser.add_argument(
        "--prebuilt", action="store_true", help="compile nothing: check that DIR is what would be built"
    )


def run(args: argparse.Namespace) -> int:
    from ..build.stages import build, check_prebuilt

    if args.prebuilt and args.shard:
        raise UsageError("--prebuilt takes a whole build: merge the shards, and leave out --shard")
    return work(args, check_prebuilt, "confirmed") if args.prebuilt else work(args, build, "built")
