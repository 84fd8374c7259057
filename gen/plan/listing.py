"""`wootz list`: one row a cell, written as it is planned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..build import index
from ..manifest.reader import Manifest
from . import cells as plan
from . import name

COLUMNS = ("kernel", "format", "dtype", "target", "state", "reason", "file", "symbol", "evidence")
_KEY = '{"key":"'


def indexed_evidence(folder: Path | None, manifest: Manifest) -> dict[str, list[str]]:
    """Cell key -> evidence, from the index in a folder; empty where there is none.

    Only of cells whose format and target are in the manifest as the index has them: another's evidence is
    none."""
    found: dict[str, list[str]] = {}
    path = folder / name.INDEX if folder else None
    if path is None or not path.is_file():
        return found
    mine = [
        *map(index.format_record, manifest.formats.values()),
        *map(index.target_record, manifest.targets.values()),
    ]
    same = {name.NO_FORMAT}
    known = {index.dump(record) for record in mine}
    with path.open(encoding="utf-8") as lines:
        for line in lines:  # a record is a line; those of targets and formats come before those of cells
            if not line.startswith(_KEY):
                continue
            key = line[len(_KEY) : line.index('"', len(_KEY))]
            if line.rstrip(",\n") in known:
                same.add(key)
            elif '"evidence":[' in line and set(key.split("/")[1::2]) <= same:
                start = line.index('"evidence":[') + len('"evidence":')
                found[key] = json.loads(line[start : line.index("]", start) + 1])
    return found


def rows(
    manifest: Manifest, selection: plan.Selection, evidence: Mapping[str, list[str]]
) -> Iterator[dict[str, Any]]:
    """One row a cell. `file`: the artifact (the first choice where there are several); "" where there is no
    job."""
    for unit in plan.units(manifest, selection):
        file = unit.artifacts[0][1]
        for cell in unit.cells:
            job, key = cell.state == plan.JOB, cell.key
            yield {
                "key": key,
                "kernel": cell.kernel,
                "options": dict(cell.options),
                "format": cell.format,
                "dtype": cell.dtype,
                "target": cell.target,
                "state": cell.state,
                "reason": cell.reason,
                "file": file if job else "",
                "symbol": cell.symbol if job else "",
                "evidence": evidence.get(key, []) if job else [],
            }


def as_json(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A JSON array, a row a line."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    before = "[\n"
    for row in rows:
        yield before + encode(row)
        before = ",\n"
    yield "\n]\n" if before != "[\n" else "[]\n"


def as_table(rows: Iterable[Mapping[str, Any]], selection: plan.Selection) -> Iterator[str]:
    """Aligned text, with a count of the states at its end."""
    widths = {
        "format": _width(selection.formats),
        "target": _width(selection.targets),
        "dtype": 6,
        "state": 8,
    }
    counts = {plan.JOB: 0, plan.SKIP: 0, plan.REFUSED: 0}

    def line(cells: Mapping[str, str], kernel: int = 14) -> str:
        padded = (cells[c].ljust(kernel if c == "kernel" else widths.get(c, 0)) for c in COLUMNS)
        return "  ".join(padded).rstrip() + "\n"

    yield line({column: column for column in COLUMNS})
    for row in rows:
        counts[row["state"]] += 1
        shown = {column: row[column] or "-" for column in COLUMNS}
        shown["kernel"], shown["evidence"] = row["key"].split("/")[0], ",".join(row["evidence"]) or "-"
        yield line(shown)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    yield f"# {sum(counts.values())} cells: {states}\n"


def _width(names: Iterable[str]) -> int:
    return max([6, *map(len, names)])
