"""Executes every CUDA and Metal cell whose text a CPU can run and writes what passed: evidence for the index.

    python tests/exec/evidence.py --out evidence/text-on-cpu.json -j 2

The same code as test_cells.py. The report is written after each kernel x format x backend. A cell that has
passed is not run again unless its text, its launch, its check or the executor changed since: a run that was
stopped goes on, a later one takes up what changed (--again runs everything). Exit status 1 where a cell
failed; it is written down too, as not passed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]
if importlib.util.find_spec("wootz") is None:  # the checkout's own, where none is installed
    sys.path.insert(0, str(ROOT / "python"))

import cells  # noqa: E402
from lanes import cache, tools  # noqa: E402

from gen import __version__  # noqa: E402
from gen.emit import provenance  # noqa: E402
from gen.plan import cells as plan  # noqa: E402

Record = dict[str, Any]
Records = dict[str, Record]


@dataclass(frozen=True)
class Outcome:
    """What came of one subject: the records of its cells, how many of them were run now, and the time."""

    subject: str
    records: tuple[Record, ...]
    run: int
    seconds: float
    problem: str

    def __str__(self) -> str:
        known = len(self.records) - self.run
        what = self.problem or ("pass" if self.records else "no text that a CPU can run")
        return f"{self.subject}: {what} ({self.run} run, {known} known, {self.seconds:.1f} s)"


def passed(path: Path) -> Records:
    """The cells of a report that passed, by key; none where there is no report."""
    if not path.is_file():
        return {}
    return {
        cell["cell"]: cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["pass"]
    }


def outcome(subject: cells.Subject, known: Mapping[str, Record]) -> Outcome:
    """Run the texts of a subject of which a cell is not known to have passed."""
    begun, records, results = time.monotonic(), list[Record](), list[cells.Result]()
    units = tuple(filter(cells.executable, subject.units))
    for text in cells.texts(cells.Subject(units)) if units else ():
        if cells.known(subject, text, known):
            records += [known[key] for keys in text.cells.values() for key, _ in keys]
        else:
            results += cells.run_text(subject, text)
    records += [result.to_json() for result in results]
    return Outcome(
        str(subject), tuple(records), len(results), time.monotonic() - begun, cells.failures(results)
    )


def outcomes(subjects: Sequence[cells.Subject], known: Records, jobs: int) -> Iterator[Outcome]:
    """Of each subject, as it is done. Each process is given what it needs of what is known."""
    with (
        tempfile.TemporaryDirectory(prefix="wootz-exec-") as folder,
        ProcessPoolExecutor(jobs) as pool,
    ):
        os.environ[cache.VARIABLE] = folder  # the workers start later, and share it
        try:
            pending = [pool.submit(outcome, each, _of(each, known)) for each in subjects]
            yield from (each.result() for each in as_completed(pending))
        finally:
            pool.shutdown(cancel_futures=True)


def _of(subject: cells.Subject, known: Records) -> Records:
    keys = (cell.key for unit in subject.units for cell in unit.jobs)
    return {key: known[key] for key in keys if key in known}


def report(records: Iterable[Record]) -> str:
    """The file: a header, then a line a cell, in the order of their names."""
    header = {"device": "cpu", "generator": __version__, "compiler": tools.clang_version().splitlines()[0]}
    lines = [json.dumps(r, allow_nan=False) for r in sorted(records, key=lambda r: str(r["cell"]))]
    return json.dumps(header)[:-1] + ', "cells": [\n' + ",\n".join(lines) + "\n]}\n"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Execute every CUDA and Metal cell on the CPU; write what passed."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the evidence")
    parser.add_argument("--profile", default="release", help="a profile of kernels.yaml (default: release)")
    for what in ("kernels", "formats"):
        parser.add_argument(f"--{what}", nargs="+", default=(), metavar="NAME", help="only these; globs")
    parser.add_argument("--again", action="store_true", help="run what the report has as passed, too")
    parser.add_argument("-j", dest="jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    whole = not options.kernels and not options.formats
    request = plan.Request(options.profile, formats=tuple(options.formats), kernels=tuple(options.kernels))
    subjects = cells.candidates(cells.repository(), request)
    before = passed(options.out)
    written, found = dict(before), Records()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for done, each in enumerate(outcomes(subjects, {} if options.again else before, options.jobs), 1):
        found |= {record["cell"]: record for record in each.records}
        written |= found
        provenance.write(options.out, report(written.values()))
        print(f"{done} of {len(subjects)}: {each}", flush=True)
    if whole:  # what is no cell any more is evidence of nothing
        provenance.write(options.out, report(found.values()))
    failed = sum(not record["pass"] for record in found.values())
    print(f"{len(found) - failed} cells passed, {failed} failed; written to {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
