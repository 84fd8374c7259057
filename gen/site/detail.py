"""What a unit opens to: its chain, as `wootz explain` has it, and its source. It is a script: a page may load
that from a file:// address, where fetch is refused."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..build import index
from ..build.index import EXECUTED
from ..build.state import UnitRecord
from ..plan import cells as plan
from ..plan import explain
from ..wheel.shipped import Shipped, files
from . import roofline
from .bench import Row
from .coverage import Cell, Unit
from .weight import Artifact

Section = dict[str, Any]
"""{"title", "head": columns, or none for names and values, "rows": lists of texts}."""

CALL = "wootz"
"""The page's function that a unit's script calls with its data."""


def path(unit: Unit) -> str:
    """Where a unit's script lies, relative to the page; page.js makes the same name."""
    return f"units/{'/'.join(map(_safe, (unit.kernel, unit.format, unit.target)))}.js"


def _safe(part: str) -> str:
    """A file's name: any character that could mean something else becomes =HEX."""
    return re.sub(r"^\.|[^A-Za-z0-9_.-]", lambda found: f"={ord(found[0]):x}", part) or "="


def script(
    unit: Unit,
    shipped: Shipped,
    weights: Mapping[str, Artifact],
    cells: Sequence[Mapping[str, Any]],
    planned: plan.Unit | None = None,
    timings: Sequence[tuple[str, Row]] = (),
) -> str:
    """The data of one unit. `weights`: artifacts by path; `cells`: its records of the index; `planned`: what
    the manifest makes of it; `timings`: (device, row) of benchmarks."""
    sections = [
        *_axes(shipped.sections["formats"].get(unit.format), planned),
        *_target(shipped.sections["targets"].get(unit.target), planned),
        _cells(unit, cells),
        *_made(unit, weights, cells, planned),
        *_entries(cells),
        *_tiles(planned),
        *_measured(timings),
    ]
    data = {"sections": sections, "sources": list(_sources(shipped, cells))}
    return f"{CALL}({json.dumps(data, separators=(',', ':'), sort_keys=True)})\n"


def _axes(record: Mapping[str, Any] | None, planned: plan.Unit | None) -> Iterator[Section]:
    if record is None and planned and planned.format:
        record = planned.format.descriptor()
    if record:
        axes = explain.short({k: v for k, v in record.items() if k not in ("key", "name", "packed")})
        yield {"title": "Axes", "rows": [[k, _spelt(v)] for k, v in axes.items()]}


def _target(record: Mapping[str, Any] | None, planned: plan.Unit | None) -> Iterator[Section]:
    record = index.target_record(planned.target) if record is None and planned else record
    if record:
        known = {k: v for k, v in record.items() if v not in (None, "", []) and k != "key"}
        yield {"title": "Target", "rows": [[k, _spelt(v)] for k, v in known.items()]}


def _cells(unit: Unit, cells: Sequence[Mapping[str, Any]]) -> Section:
    left_out = {cell["key"]: cell.get("left_out", {}) for cell in cells}
    rows = [
        [
            cell.key,
            cell.state,
            _proof(cell),
            "; ".join(f"{s}: {w}" for s, w in left_out.get(cell.key, {}).items()),
        ]
        for cell in unit.cells
    ]
    head = ["cell", "state", "evidence, or why not", "variants left out"]
    return _without_empty({"title": "Cells", "head": head, "rows": rows})


def _proof(cell: Cell) -> str:
    if cell.state != plan.JOB:
        return cell.reason
    labels = (label.replace(EXECUTED, "executed: ") for label in cell.evidence)
    return ", ".join(labels) if cell.built else "not in this index"


def _made(
    unit: Unit,
    weights: Mapping[str, Artifact],
    cells: Sequence[Mapping[str, Any]],
    planned: plan.Unit | None,
) -> Iterator[Section]:
    """Source, compiler calls, artifacts."""
    if not cells:
        return
    first = cells[0]
    stub = first.get("stub", {})
    texts = [[first["source"], _bytes(first.get("source_size")), first["source_sha256"]]]
    texts += [[stub["source"], "", stub["source_sha256"]]] if stub else []
    yield _without_empty({"title": "Source", "head": ["file", "bytes", "SHA-256"], "rows": texts})
    if planned:
        calls = explain.commands(planned, _record(unit, first))
        yield {"title": "Compiler calls", "head": [], "rows": [[call] for call in calls]}
    rows = [
        [
            file.path,
            _bytes(file.size),
            _bytes(weight.compressed),
            "" if weight.seconds is None else f"{weight.seconds:.1f} s",
            file.sha256,
        ]
        for file in files(first)
        for weight in (weights[file.path],)
    ]
    if rows:
        head = ["file", "bytes", "compressed", "compiled in", "SHA-256"]
        yield _without_empty({"title": "Artifacts", "head": head, "rows": rows})


def _record(unit: Unit, cell: Mapping[str, Any]) -> UnitRecord:
    """What the build's records say of a unit, from what its index does."""
    stub = cell.get("stub", {})
    return UnitRecord(
        unit=unit.key,
        inputs="",
        source=cell["source"],
        sha256=cell["source_sha256"],
        artifacts=tuple(file["file"] for file in cell["files"]),
        entries=(),
        kind=cell.get("source_kind", "dsl"),
        stub_source=stub.get("source", ""),
        stub_sha256=stub.get("source_sha256", ""),
        stub=stub.get("file", ""),
    )


def _entries(cells: Sequence[Mapping[str, Any]]) -> Iterator[Section]:
    rows = [
        [
            entry["symbol"],
            " and ".join(map(explain.formula, entry["when"])) or "always",
            explain.launch(entry),
            ", ".join(f"{kind} {label}: {role}" for label, kind, role in entry["args"]),
            "; ".join(f"{key} {_plain(entry[key])}" for key in explain.MORE if key in entry),
        ]
        for cell in cells
        for entry in cell["entries"]
    ]
    if rows:
        head = ["entry", "used when", "launch", "arguments", "more"]
        yield _without_empty({"title": "Entries and launch formulas", "head": head, "rows": rows})


def _tiles(planned: plan.Unit | None) -> Iterator[Section]:
    rows = [
        [tile["cell"], ", ".join(f"{a} {v}" for a, v in tile["point"].items()), tile["reason"] or "allowed"]
        for tile in (explain.tiles_of(planned) if planned else ())
    ]
    if rows:
        yield {"title": "Tiles", "head": ["cell", "tile", "verdict"], "rows": rows}


def _measured(timings: Sequence[tuple[str, Row]]) -> Iterator[Section]:
    rows = [
        [
            device,
            " ".join(f"{axis} {size:,}" for axis, size in row.shape.items()),
            row.dtype,
            f"{roofline.figure(row.us)} µs",
            "" if row.share is None else f"{100 * row.share:.0f} %",
            ", ".join(f"{peer} {roofline.figure(us)} µs" for peer, us in row.peers.items()),
        ]
        for device, row in timings
    ]
    if rows:
        head = ["device", "shape", "type", "time", "of the floor", "peers"]
        yield _without_empty({"title": "Measured", "head": head, "rows": rows})


def _without_empty(section: Section) -> Section:
    """Without the columns in which no row says anything."""
    kept = [i for i, _ in enumerate(section["head"]) if any(row[i] for row in section["rows"])]
    rows = [[row[i] for i in kept] for row in section["rows"]]
    return {**section, "head": [section["head"][i] for i in kept], "rows": rows}


def _sources(shipped: Shipped, cells: Sequence[Mapping[str, Any]]) -> Iterator[Section]:
    """Texts, compressed: {"file", "note", "data"}. A text that is not the one indexed is not shown."""
    claims = [(cells[0]["source"], cells[0]["source_sha256"])] if cells else []
    claims += [(s["source"], s["source_sha256"]) for s in (cells[0].get("stub"),) if s] if cells else []
    for file, expected in claims:
        data = shipped.content(file)
        if data is None:
            yield {"file": file, "note": "The source is not shipped."}
        elif index.sha256(data) != expected:
            yield {"file": file, "note": "The file is not the one that was indexed: its SHA-256 differs."}
        else:
            packed = base64.b64encode(zlib.compress(data)).decode("ascii")
            yield {"file": file, "bytes": len(data), "data": packed}


def _bytes(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _spelt(value: Any) -> str:
    """Plain data in words: "kind int, bits 4, signed yes"."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_spelt(part)}" for key, part in value.items())
    if isinstance(value, list):
        nested = any(isinstance(part, Mapping) for part in value)
        return ("; " if nested else ", ").join(map(_spelt, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
