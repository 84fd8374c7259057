"""wootz generate"""

from __future__ import annotations

import argparse

from ._shared import folder_options, plan_options, work

TEXT = "Emit the sources of a plan; compile nothing."


def options(parser: argparse.ArgumentParser) -> None:
    plan_options(parser)
    folder_options(parser)


def run(args: argparse.Namespace) -> int:
    from ..build.stages import generate

    return work(args, generate, "generated")
