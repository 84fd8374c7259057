"""wootz simulate"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from ._shared import DONE, UsageError, jobs, plan_options, request

TEXT = "How long a plan takes to build on so many machines, from recorded costs; builds nothing."


def options(parser: argparse.ArgumentParser) -> None:
    plan_options(parser)
    parser.add_argument("--machines", type=jobs, nargs="+", default=[1, 2, 4, 8, 16], metavar="N")
    parser.add_argument(
        "-j",
        "--jobs",
        type=jobs,
        default=os.cpu_count() or 1,
        metavar="N",
        help="parallel work on each machine",
    )
    parser.add_argument(
        "--memory", default="", metavar="SIZE", help="free on each, as 16 GB (default: as here)"
    )
    parser.add_argument("--costs", type=Path, metavar="FILE", help="default: costs.json beside the manifest")


def run(args: argparse.Namespace) -> int:
    from ..build.report import grid
    from ..plan import cells as plan
    from ..scale import costs, pools, simulate, sizes

    memory = sizes.parse(args.memory) if args.memory else pools.available_memory()
    if memory is None:
        raise UsageError(f"--memory {args.memory}: {sizes.WANTED}")
    manifest = plan.load(args.manifest)
    selection = plan.select(manifest, request(args))
    units = [unit for unit in plan.units(manifest, selection) if unit.jobs]
    known = costs.of_manifest(args.manifest, args.costs)
    found = [simulate.estimate(units, known, n, args.jobs, memory) for n in args.machines]
    cells = sum(len(unit.jobs) for unit in units)
    if args.json:
        machine = {"jobs": args.jobs, "memory": memory}
        head = {"profile": args.profile, "cells": cells, "units": len(units), **machine}
        print(json.dumps({**head, "rows": [asdict(row) for row in found]}, indent=1))
        return DONE
    print(
        f"{cells} cells in {len(units)} units, {args.jobs} jobs and {sizes.show(memory)} of memory a machine"
    )
    if found[0].recorded < 1:
        share = 1 - found[0].recorded
        print(
            f"{share:.0%} of the units are of kernels that nobody has recorded: constants stand in for them"
        )
    rows = [(str(e.machines), _time(e.seconds), f"{e.busy:.0%}") for e in found]
    print(grid(("machines", "time", "jobs busy"), rows), end="")
    return DONE


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
