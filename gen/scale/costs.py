"""What compiles cost, by kernel, target and kind of compile: for the order of a build, its pools, its shards,
and the estimate of a build that nobody has run.

A cost file is small, and a repository may keep it beside its manifest, as costs.json:

{"wootz_costs":1,"kernels":{
"qgemv":{"cpu":{"baseline":[39,1.204,1.118,310],..},"sm_90a":{"cuda":[..]}},
..}}

A row is a count of compiles, their mean seconds of wall and of processors, and the most memory that one took,
in MB; the last two are null where only ninja's log was there to read. A compile of the CPU goes by its
instruction set, others by their rule in the build graph; "emit" is the emission of a unit. What a build
measured stays in its work folder, by artifact, until `wootz costs` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..build import index, ninja, runner, state
from ..build.index import ArtifactsError
from ..emit import provenance
from ..emit.provenance import BuildError
from ..plan import name
from ..plan.cells import Unit
from .pools import Task

FILE = "costs.json"
MEASURED = f"{name.WORK}/costs.json"
VERSION = 1
EMIT = "emit"

SECONDS = {
    "cuda": 2.0,
    "lean": 8.0,
    "cutlass": 90.0,
    "stub": 11.0,
    "cpu": 1.5,
    "air": 0.2,
    "metal": 0.1,
    EMIT: 0.3,
}
"""Of one compile of a rule, or one emission, where nothing was recorded."""


@dataclass(frozen=True)
class Row:
    """Of `count` compiles: mean seconds of wall and of processors, most memory in MB. None: not measured."""

    count: int
    wall: float
    processor: float | None = None
    megabytes: float | None = None

    @property
    def seconds(self) -> float:
        """What one compile costs. A compiler is one thread, so that its processor time is what it takes where
        it does not wait for others."""
        return self.wall if self.processor is None else self.processor


Table = Mapping[str, Mapping[str, Mapping[str, Row]]]


@dataclass(frozen=True)
class Costs:
    """Rows by kernel, target and kind."""

    table: Table = field(default_factory=dict, hash=False)

    @cached_property
    def digest(self) -> str:
        """Of all that an estimate depends on."""
        return index.sha256("".join(_lines(self.table)).encode())

    def row(self, kernel: str, target: str, kind: str) -> Row | None:
        """What was recorded; of other targets' compiles of that kind, where this one's was not."""
        targets = self.table.get(kernel, {})
        if found := targets.get(target, {}).get(kind):
            return found
        return _mean([kinds[kind] for kinds in targets.values() if kind in kinds])

    def task(self, kernel: str, target: str, rule: str, kind: str) -> Task:
        """A compile whose rule is known. kind: the instruction set, or the rule again."""
        row = self.row(kernel, target, kind)
        seconds = row.seconds if row else SECONDS[rule]
        return Task(rule, max(1, round(1000 * seconds)), row.megabytes if row else None)

    def emission(self, unit: Unit) -> int:
        """Milliseconds to make a unit's text."""
        return self.task(unit.kernel.name, unit.target.name, EMIT, EMIT).milliseconds

    def edge(self, unit: Unit, edge: ninja.Edge) -> Task:
        """A compile of the build graph."""
        return self.task(unit.kernel.name, unit.target.name, edge.rule, kind_of(edge))

    def tasks(self, unit: Unit) -> list[Task]:
        """The compiles of a unit that has not been emitted, the same on every host: a CUDA unit as its
        kernel's units were recorded most often, a Metal unit where some were, which takes a Mac."""
        kernel, target = unit.kernel.name, unit.target
        if target.backend == "cpu":
            return [self.task(kernel, target.name, "cpu", isa) for isa, _ in unit.artifacts]
        rows = {rule: row for rule in _RULES[target.backend] if (row := self.row(kernel, target.name, rule))}
        rules = list(rows)
        if target.backend == "cuda":
            one = max(rows.keys() - {"stub"}, key=lambda rule: (rows[rule].count, rule), default="cuda")
            rules = [one, *(["stub"] if one == "cutlass" and "stub" in rows else [])]
        return [self.task(kernel, target.name, rule, rule) for rule in rules]


_RULES = {"cuda": ("cuda", "lean", "cutlass", "stub"), "metal": ("air", "metal")}
"""Of a backend. Of the CPU's there is one."""


def kind_of(edge: ninja.Edge) -> str:
    """How a row of the file names the compile."""
    return edge.isa or edge.rule


def _mean(rows: Iterable[Row]) -> Row | None:
    """One row for many. None for none."""
    rows = list(rows)
    if not rows:
        return None
    count = sum(row.count for row in rows)

    def mean(values: Iterable[float | None]) -> float | None:
        known = [(row.count, value) for row, value in zip(rows, values) if value is not None]
        return sum(n * v for n, v in known) / sum(n for n, _ in known) if known else None

    memory = [row.megabytes for row in rows if row.megabytes is not None]
    wall = mean(row.wall for row in rows) or 0.0
    return Row(count, wall, mean(row.processor for row in rows), max(memory, default=None))


# The file


def beside(manifest: Path) -> Path:
    """Where a repository keeps its costs."""
    return manifest.with_name(FILE)


def compiles(costs: Costs) -> Iterator[Row]:
    """Its rows, but those of emission."""
    for targets in costs.table.values():
        for kinds in targets.values():
            yield from (row for kind, row in kinds.items() if kind != EMIT)


def of_manifest(manifest: Path, named: Path | None) -> Costs:
    """From the file that was named, else from the one beside the manifest, where there is one."""
    path = named or beside(manifest)
    return read(path) if named or path.is_file() else Costs()


def read(path: Path) -> Costs:
    """A cost file. BuildError where it cannot be read or is none."""
    try:
        data = json.loads(path.read_bytes())
        if data["wootz_costs"] != VERSION:
            raise ValueError(f"is of version {data['wootz_costs']!r}, wanted {VERSION}")
        return Costs(
            {
                kernel: {t: {kind: _row(values) for kind, values in k.items()} for t, k in targets.items()}
                for kernel, targets in data["kernels"].items()
            }
        )
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BuildError(
            f"{path}: is no cost file: {error or type(error).__name__}; run: wootz costs"
        ) from error


def _row(values: list[Any]) -> Row:
    count, wall, *more = values
    numbers = [float(wall), *(None if value is None else float(value) for value in more)]
    if len(values) != 4 or int(count) < 1 or any(n is not None and not 0 <= n < 1e9 for n in numbers):
        raise ValueError(f"{values} is not [compiles, seconds, processor seconds or null, MB or null]")
    return Row(int(count), *numbers)  # type: ignore[arg-type]  # the first is a number


def write(path: Path, costs: Costs) -> bool:
    """True where the file changed."""
    return provenance.write_lines(path, _lines(costs.table))


def _lines(table: Table) -> Iterator[str]:
    yield f'{{"wootz_costs":{VERSION},"kernels":{{'
    for number, kernel in enumerate(sorted(table)):
        rows = {
            target: {kind: _values(row) for kind, row in sorted(kinds.items())}
            for target, kinds in sorted(table[kernel].items())
        }
        yield f"{',' if number else ''}\n{json.dumps(kernel)}:{index.dump(rows)}"
    yield "\n}}\n"


def _values(row: Row) -> list[float | None]:
    rounded = (None if value is None else round(value, 3) for value in (row.wall, row.processor))
    return [row.count, *rounded, None if row.megabytes is None else round(row.megabytes)]


def forecast(manifest: Path, named: Path | None, out: Path) -> ninja.Forecast:
    """What the compiles of a folder are expected to take: what they took here the last time, else what the
    cost file says."""
    known, here = of_manifest(manifest, named), _remembered(out)

    def expected(unit: Unit, edge: ninja.Edge) -> Task:
        if edge.output in here:
            _, processor, kilobytes = here[edge.output]
            return Task(edge.rule, round(1000 * processor), kilobytes / 1000)
        return known.edge(unit, edge)

    return expected


# What builds left


def remember(out: Path, measured: Mapping[str, runner.Cost]) -> None:
    """Add what a build measured to its work folder."""
    if measured:
        known = {**_remembered(out), **{path: list(cost) for path, cost in measured.items()}}
        provenance.write(out / MEASURED, json.dumps(known, separators=(",", ":"), sort_keys=True))


def _remembered(out: Path) -> dict[str, list[float]]:
    try:
        known = json.loads((out / MEASURED).read_bytes())
        return {str(path): [float(v) for v in cost] for path, cost in known.items() if len(cost) == 3}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def compiled(out: Path) -> dict[str, Row]:
    """Output -> what its last compile took: as a build measured it, else as ninja's log has it."""
    logged = {path: Row(1, took) for path, took in runner.seconds(out).items()}
    return {**logged, **{path: Row(1, w, p, kb / 1000) for path, (w, p, kb) in _remembered(out).items()}}


def collect(folders: Iterable[Path]) -> Costs:
    """From the work folders of builds, whatever their manifests and shards. Where a build measured nothing,
    seconds are those of ninja's log. ArtifactsError for a folder in which nothing was built, and for one that
    is given twice."""
    gathered: dict[tuple[str, str, str], list[Row]] = {}
    seen = set[Path]()
    for out in folders:
        if out.resolve() in seen:
            raise ArtifactsError(f"{out}: is given twice; give each folder once")
        seen.add(out.resolve())
        rows = list(_built(out))
        if not rows:
            raise ArtifactsError(f"{out}: holds no record of a compile; build there, and keep {name.WORK}/")
        for where, row in rows:
            gathered.setdefault(where, []).append(row)
    table: dict[str, dict[str, dict[str, Row]]] = {}
    for (kernel, target, kind), rows_of_kind in gathered.items():
        if mean := _mean(rows_of_kind):
            table.setdefault(kernel, {}).setdefault(target, {})[kind] = mean
    return Costs(table)


def _built(out: Path) -> Iterator[tuple[tuple[str, str, str], Row]]:
    """((kernel, target, kind), row) of each compile whose artifact is of the folder's last plan."""
    rows = compiled(out)
    for record in state.load_units(out).values():
        kernel, _, target = record.unit.split("/")
        if record.seconds:
            yield (kernel, target, EMIT), Row(1, record.seconds, record.seconds)
        for path, kind in _kinds(record, target):
            if path in rows:
                yield (kernel, target, kind), rows[path]


def _kinds(record: state.UnitRecord, target: str) -> Iterator[tuple[str, str]]:
    """(path of an artifact or intermediate, kind of its compile) of a unit."""
    if record.stub:
        yield record.stub, "stub"
    for path in record.compiled:
        folder, file = path.partition("/")[0], path.rsplit("/", 1)[-1]
        if folder == name.FOLDERS["so"]:
            yield path, file.removeprefix(f"{target}.").removesuffix(".so")
        elif folder == name.FOLDERS["metallib"]:
            yield name.intermediate(path, "air"), "air"
            yield path, "metal"
        else:
            yield path, ninja.RULES[record.kind]
