"""Executes every CUDA and Metal cell on the CPU and writes what passed: evidence for the index.

    python tests/exec/evidence.py --out evidence/cpu.json

The same code as test_cells.py. Exit status 1 where a cell failed; it is written down too, as not passed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT), str(ROOT / "python")]

import cells  # noqa: E402
from lanes import cache, tools  # noqa: E402

from gen import __version__, plan  # noqa: E402


def run(subject: cells.Subject) -> list[cells.Result]:
    return cells.run_subject(subject)


def report(results: list[cells.Result]) -> str:
    """The file: a header, then a line a cell, in the order of their names."""
    header = {"device": "cpu", "generator": __version__, "compiler": tools.clang_version().splitlines()[0]}
    lines = [json.dumps(r.to_json(), allow_nan=False) for r in sorted(results, key=lambda r: r.cell)]
    return json.dumps(header)[:-1] + ', "cells": [\n' + ",\n".join(lines) + "\n]}\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Execute every CUDA and Metal cell on the CPU; write what passed."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the evidence")
    parser.add_argument("--profile", default="release", help="a profile of kernels.yaml (default: release)")
    parser.add_argument("-j", dest="jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args(argv)
    subjects = cells.subjects(cells.repository(), plan.Request(options.profile))
    results: list[cells.Result] = []
    with (
        tempfile.TemporaryDirectory(prefix="wootz-exec-") as folder,
        ProcessPoolExecutor(options.jobs) as pool,
    ):
        os.environ[cache.VARIABLE] = folder  # the workers start later, and share it
        for done, (subject, some) in enumerate(zip(subjects, pool.map(run, subjects)), 1):
            results += some
            print(f"{done} of {len(subjects)}: {subject}: {cells.failures(some) or 'pass'}", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    temporary = options.out.with_name(f".{options.out.name}.tmp")
    temporary.write_text(report(results), encoding="utf-8")
    temporary.replace(options.out)
    failed = sum(not r.passed for r in results)
    print(f"{len(results) - failed} cells passed, {failed} failed; written to {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
