"""From artifacts, a manifest and benchmark files to the files of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..build import index
from ..emit.provenance import BuildError
from ..wheel.shipped import Shipped, read
from . import bench, coverage, detail, page, weight, write
from .planned import Planned


@dataclass(frozen=True)
class Made:
    """What a report holds: counts of cells and units, and of the files that changed."""

    cells: int
    units: int
    changed: int


def report(artifacts: Path, out: Path, benches: Iterable[Path] = (), planned: Planned | None = None) -> Made:
    """Write a report. ArtifactsError: these are no artifacts. BuildError names what else cannot be read, or
    where nothing may be written."""
    shipped = read(artifacts)
    found = weight.artifacts(shipped)
    measured = [bench.read(path) for path in benches]
    cover = coverage_of(shipped, planned)
    files: dict[str, Callable[[], str]] = {
        write.PAGE: partial(page.render, cover, shipped, found, measured, planned is not None)
    }
    records: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for cell in shipped.cells.values():
        records.setdefault(index.unit_of(cell), []).append(cell)
    timings: dict[Any, list[tuple[str, bench.Row]]] = {}
    for file in measured:
        for row in file.rows:
            timings.setdefault(row.unit, []).append((file.device, row))
    weights = {artifact.path: artifact for artifact in found}
    for key, unit in cover.units.items():
        of_plan = planned.units.get(unit.key) if planned else None
        of_unit = records.get(key, ()), of_plan, timings.get(key, ())
        files[detail.path(unit)] = partial(_script, unit, shipped, weights, *of_unit)
    changed = write.write(out, files)
    return Made(cover.count().cells, len(cover.units), changed)


def coverage_of(shipped: Shipped, planned: Planned | None) -> coverage.Coverage:
    """The cells of an index, with what a plan adds. BuildError where index and manifest mean two things by
    one name."""
    targets, formats = shipped.sections["targets"], shipped.sections["formats"]
    cells = coverage.of_index(shipped.cells.values())
    if planned:
        _check_same("target", targets, planned.targets)
        _check_same("format", formats, planned.formats)
        cells = coverage.joined(cells, planned.rows)
        targets, formats = {**planned.targets, **targets}, {**planned.formats, **formats}
    return coverage.coverage(cells, targets, formats)


def _check_same(what: str, ours: coverage.Records, theirs: coverage.Records) -> None:
    for key in sorted(ours.keys() & theirs.keys()):
        if index.dump(ours[key]) != index.dump(theirs[key]):
            advice = "name the manifest that the artifacts were built from"
            raise BuildError(f"{what} {key}: the index has another than the manifest; {advice}")


def _script(unit: coverage.Unit, shipped: Shipped, *more: Any) -> str:
    try:
        return detail.script(unit, shipped, *more)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"{type(error).__name__}: {error}"
        raise BuildError(f"{shipped.where}: is damaged: unit {unit.key}: {what}; build it again") from error
