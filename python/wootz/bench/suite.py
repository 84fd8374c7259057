"""A list of cases with limits: what is to be reached, measured in one run, met or short line by line.

A suite is YAML (or JSON) of the form

    title: text
    cases:
      - name: text                     # what the limits are of
        kernels: [qmm_packed]          # as --kernels, and so on
        formats: [int4, mxfp4]
        dtypes: [bf16]
        shapes: [14336x4096]
        extents: {m: 1}
        m: [16, 64]
        pdl: false                     # default: as the index has it
        peers: [torch]                 # default: none
        want: {x_floor: 1.3}

`want` has one or several limits: x_floor (at most so many times the floor), us (at most), tflops (at least),
of_copy and of_read (at least this share of a bandwidth), of: {peer: at most this share of its time}, like:
{case: name, times: 1.15}: at most so many times the floor as the best row of that case at the same extents,
times this; any: {limits, of which one is enough}. Without it the case is stated, and nothing else. Other keys
beside `cases` are the file's own.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, MissingPackageError, WootzError, near
from . import cells, rows
from .ceilings import Ceilings
from .cells import Wanted
from .rows import Attempt, Measuring, Row

Attempting = Callable[[Measuring, cells.Cell, Mapping[str, int]], Attempt]
LIMITS = ("x_floor", "us", "tflops", "of_copy", "of_read", "of", "like", "any")
_KEYS = ("name", "kernels", "formats", "dtypes", "shapes", "extents", "m", "pdl", "peers", "want")


@dataclass(frozen=True)
class Case:
    """See above. peers: None for none."""

    name: str
    wanted: Wanted
    pdl: bool = True
    peers: Sequence[str] | None = None
    want: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """One row against its case. verdict: "met", "short", "stated", "wrong" (its result is) or "missing".
    found: the numbers, or why there are none."""

    case: str
    verdict: str
    found: str
    row: Row | None = None

    def to_json(self) -> dict[str, Any]:
        cell = {"cell": self.row.cell, "shape": dict(self.row.shape), "us": self.row.us} if self.row else {}
        return {"case": self.case, "verdict": self.verdict, "found": self.found, **cell}


def read(path: Path) -> list[Case]:
    """The cases of a file. Raises ArgumentError for what is no suite, MissingPackageError without PyYAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror or error}") from None
    found = _parsed(path, text)
    if not isinstance(found, dict) or not isinstance(found.get("cases"), list):
        raise ArgumentError(f"{path}: no suite: it has no list of cases")
    return [_case(path, i, each) for i, each in enumerate(found["cases"])]


def _parsed(path: Path, text: str) -> Any:
    try:
        if path.suffix == ".json":
            return json.loads(text)
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise MissingPackageError(f"{path}: a suite in YAML needs PyYAML: pip install pyyaml") from None
    except ValueError as error:
        raise ArgumentError(f"{path}: no JSON: {error}") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ArgumentError(f"{path}: no YAML: {str(error).splitlines()[0]}") from None


def _case(path: Path, number: int, record: Any) -> Case:
    where = f"{path}: case {number + 1}"
    if not isinstance(record, dict):
        raise ArgumentError(f"{where}: want a mapping with name and kernels; got {type(record).__name__}")
    for kind, given, known in (("key", record, _KEYS), ("limit", record.get("want") or {}, LIMITS)):
        for name in given:
            if name not in known:
                raise ArgumentError(f"{where}: no {kind} {name!r}{near(str(name), known)}")
    if not record.get("name") or not record.get("kernels"):
        raise ArgumentError(f"{where}: want a name and kernels")
    names = ("kernels", "formats", "dtypes", "shapes")
    lists = {key: tuple(map(str, record.get(key) or ())) for key in names}
    m = tuple(int(each) for each in record.get("m") or ())
    wanted = Wanted(**lists, extents=dict(record.get("extents") or {}), m=m)
    peers, pdl = record.get("peers"), bool(record.get("pdl", True))
    return Case(str(record["name"]), wanted, pdl, peers, record.get("want") or {})


def run(
    how: Measuring,
    cases: Sequence[Case],
    budget: float = float("inf"),
    note: Callable[[str], None] = print,
    attempt: Attempting = rows.attempt,
) -> Iterator[Line]:
    """A line for every cell and size of the cases, in their order; those for which `budget` seconds leave no
    time are missing. attempt: measures each of them. What one raises does not end the others."""
    end, best = time.monotonic() + budget, _Best()
    for case in cases:
        here = replace(how, pdl=case.pdl, peers=case.peers)
        try:
            work = [
                (cell, size)
                for cell in cells.chosen(here.lib, how.device.name, case.wanted)
                for size in cells.sizes(here.lib, cell, case.wanted)
            ]
        except WootzError as error:
            yield Line(case.name, "missing", str(error))
            continue
        for cell, size in work:
            note(f"{case.name}: {cell['key']}")
            name = f"{cell['key']} {rows.sized(size)}"
            if time.monotonic() > end:
                yield Line(case.name, "missing", f"{name}: out of time")
            else:
                yield _line(case, name, attempt(here, cell, size), here, best)


class _Best:
    """The least times of the floor by case and extents, of the rows so far."""

    def __init__(self) -> None:
        self._least: dict[tuple[str, str], float] = {}

    def add(self, case: str, row: Row) -> None:
        key = case, row.size
        self._least[key] = min(row.times_floor, self._least.get(key, row.times_floor))

    def of(self, case: str, row: Row) -> float | None:
        return self._least.get((case, row.size))


def _line(case: Case, name: str, got: Attempt, how: Measuring, best: _Best) -> Line:
    row = got.row
    if row is None:
        return Line(case.name, "wrong" if got.wrong else "missing", f"{name}: {got.why}")
    best.add(case.name, row)
    found = list(_judged(case.want, row, how.ceilings, best))
    verdict = "stated" if not found else "met" if all(met for met, _ in found) else "short"
    if case.pdl and not row.pdl and verdict == "short" and how.device.name != "cpu":
        found.append((True, "no pdl"))
    return Line(case.name, verdict, "; ".join(text for _, text in found) or _stated(row), row)


def _stated(row: Row) -> str:
    beside = "".join(f", {name} / ours {ratio:.2f}" for name, ratio in row.ratios.items())
    return f"{row.us:.2f} us, {row.times_floor:.2f} x floor{beside}"


def _judged(want: Mapping[str, Any], row: Row, ceilings: Ceilings, best: _Best) -> Iterator[tuple[bool, str]]:
    """Whether each limit is met, and how it stands."""
    for name, limit in want.items():
        if name == "any":
            some = list(_judged(limit, row, ceilings, best))
            yield any(met for met, _ in some), " or ".join(text for _, text in some)
        elif name == "of":
            yield from (_against(peer, float(share), row) for peer, share in limit.items())
        elif name == "like":
            yield _alike(limit, row, best)
        elif name in ("x_floor", "us"):
            value = row.times_floor if name == "x_floor" else row.us
            yield value <= limit, f"{name} {value:.3g} (at most {limit:g})"
        else:
            value = _rate(name, row, ceilings)
            yield value >= limit, f"{name} {value:.3g} (at least {limit:g})"


def _rate(name: str, row: Row, ceilings: Ceilings) -> float:
    if name == "tflops":
        return row.tflops
    return row.gb_s / (ceilings.copy_gb_s if name == "of_copy" else ceilings.read_gb_s)


def _against(peer: str, share: float, row: Row) -> tuple[bool, str]:
    if peer not in row.ratios:
        return False, f"{peer} was not measured: {row.absent.get(peer, 'it is no peer of this cell')}"
    value = 1.0 / row.ratios[peer]
    return value <= share, f"{value:.3g} of {peer}'s {row.peers[peer]:.2f} us (at most {share:g})"


def _alike(limit: Mapping[str, Any], row: Row, best: _Best) -> tuple[bool, str]:
    known = best.of(str(limit["case"]), row)
    if known is None:
        return False, f"{limit['case']} has no row of these extents"
    most = known * float(limit["times"])
    return row.times_floor <= most, f"x_floor {row.times_floor:.3g} (at most {most:.3g})"


def summary(lines: Sequence[Line]) -> list[tuple[str, dict[str, int]]]:
    """By case, in order: how many lines of each verdict."""
    counts: dict[str, dict[str, int]] = {}
    for line in lines:
        of = counts.setdefault(line.case, {})
        of[line.verdict] = of.get(line.verdict, 0) + 1
    return list(counts.items())
