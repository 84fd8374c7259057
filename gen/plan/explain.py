"""`wootz explain`: the chain of one unit, from the manifest's axes to the launch formula and the evidence."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..build import index, ninja, wrapping
from ..build.state import UnitRecord
from ..emit import emission
from ..manifest.reader import Manifest
from ..project.lookup import family_of
from ..toolchain import find as toolchain
from ..toolchain.cutlass import Headers
from ..tuning.table import Tuning, rows_of
from ..variants import tiles
from . import cells as plan
from . import name

NO_TUNING = Tuning()
_LONG = ("values", "positions")  # tables that would bury the rest


def explain(
    manifest: Manifest, kernel: str, fmt: str, target: str, folder: Path | None, tuning: Tuning = NO_TUNING
) -> dict[str, Any]:
    """Everything about kernel x format x target. `folder`: where it was built, for evidence. PlanError as
    `select`."""
    profile = next(iter(manifest.profiles))
    whole = plan.Request(profile=profile, targets=(target,), formats=(fmt,), kernels=(kernel,))
    unit = next(iter(plan.units(manifest, plan.select(manifest, whole))), None)
    if unit is None:
        raise plan.PlanError(
            f"kernel {kernel} has no cells with format {fmt} on target {target}: see formats and targets of "
            f"{kernel}, and kernels of {target}, in the manifest"
        )
    unit = tuning.apply(unit)
    fact: dict[str, Any] = {
        "unit": unit.key,
        "axes": short(unit.format.descriptor()) if unit.format else None,
        "target": index.target_record(unit.target),
        "cells": [{"key": c.key, "state": c.state, "reason": c.reason, "evidence": []} for c in unit.cells],
        "source": unit.source,
        "artifacts": [path for _, path in unit.artifacts],
        "commands": commands(unit, None),
        "entries": [],
        "measured": [],
        "tiles": tiles_of(unit),
    }
    if unit.jobs:
        record = emission.record(unit, "", emission.rendered(unit))
        fact["source_sha256"], fact["kind"] = record.sha256, record.kind
        fact["artifacts"] += [record.stub] if record.stub else []
        fact["commands"] = commands(unit, record)
        fact["entries"] = [
            {"dtype": e["dtype"], "options": e["options"], **e["entry"]} for e in record.entries
        ]
        fact["measured"] = _measured(unit, tuning, [e["symbol"] for e in fact["entries"]])
        _add_evidence(fact, folder)
    return fact


def tiles_of(unit: plan.Unit) -> list[dict[str, Any]]:
    """The tiles that each job's template could have, those that the target does not allow with the reason."""
    lattice = family_of(unit.kernel).lattice
    found = []
    for cell in unit.jobs if lattice else ():
        given = lattice(unit.format, cell.dtype, unit.target, dict(cell.options)) if lattice else None
        for each in tiles.candidates(given, unit.target) if given else ():
            cost = vars(each.cost) if each.cost else {}
            found.append({"cell": cell.key, "point": dict(each.point), **cost, "reason": each.reason})
    return found


def _measured(unit: plan.Unit, tuning: Tuning, symbols: Collection[str]) -> list[dict[str, Any]]:
    """The rows of selection tables that name the unit's cells. counts: whether there is such a variant."""
    return [
        {"cell": cell.key, **vars(row), "shape": dict(row.shape), "counts": row.symbol(cell) in symbols}
        for cell in unit.jobs
        for row in rows_of(tuning.tables, cell)
    ]


def short(value: Any) -> Any:
    """A descriptor without its long tables."""
    if isinstance(value, Mapping):
        return {k: f"({len(v)} entries)" if k in _LONG else short(v) for k, v in value.items()}
    return [short(v) for v in value] if isinstance(value, list) else value


def commands(unit: plan.Unit, record: UnitRecord | None) -> list[str]:
    """The compiler calls, without the shell around them that makes them atomic, and what wraps what they
    made; tools go by their plain names."""
    headers = Headers(("CUTLASS/include", "CUTLASS/tools/util/include"), "")
    rules = ninja.commands(toolchain.Toolchain(cutlass=headers, cuda=("CUDA/include",)))
    calls = [ninja.expand(ninja.bare(rules[edge.rule]), edge) for edge in ninja.edges(unit, record)]
    return calls + [shlex.join(wrapping.command(("fatbinary",), wrap)) for wrap in wrapping.of(unit)]


def _add_evidence(fact: dict[str, Any], folder: Path | None) -> None:
    """What the index of a built folder knows. A folder without one leaves the lists empty. ArtifactsError for
    a damaged one."""
    path = folder / name.INDEX if folder else None
    cells = index.cell_keys(index.read(path)["cells"]) if path and path.exists() else {}
    for cell in fact["cells"]:
        known = cells.get(cell["key"])
        if known and known["source_sha256"] == fact["source_sha256"]:
            cell["evidence"] = known["evidence"]
            cell["left_out"] = known.get("left_out", {})


def as_text(fact: Mapping[str, Any]) -> str:
    """For people."""
    lines = [fact["unit"], ""]
    for key, value in (fact["axes"] or {}).items():
        lines.append(f"  {key + ':':10}{json.dumps(value)}")
    lines += ["", f"source      {fact['source']}", *(f"artifact    {path}" for path in fact["artifacts"])]
    lines += [f"command     {command}" for command in fact["commands"]]
    lines += ["", "cells"]
    for cell in fact["cells"]:
        lines.append(
            f"  {cell['key']}  {cell['state']}  "
            f"{cell['reason'] or ', '.join(cell['evidence']) or 'not built here'}"
        )
        lines += [f"    without {symbol}: {why}" for symbol, why in cell.get("left_out", {}).items()]
    lines += ["", "entries"]
    for entry in fact["entries"]:
        when = " and ".join(map(formula, entry["when"])) or "always"
        lines.append(f"  {entry['symbol']}  when {when}")
        lines.append(f"    {launch(entry)}")
        lines.append(f"    ({', '.join(f'{kind} {label}: {role}' for label, kind, role in entry['args'])})")
        lines += [f"    {key} {_shown(entry[key])}" for key in MORE if key in entry]
    lines += ["", "measured shapes"] if fact.get("measured") else []
    lines += map(_measured_text, fact.get("measured") or ())
    lines += ["", "tiles"] if fact["tiles"] else []
    for tile in fact["tiles"]:
        point = ", ".join(f"{axis} {value}" for axis, value in tile["point"].items())
        lines.append(f"  {tile['cell']}  {point}: {tile['reason'] or 'allowed'}")
    return "\n".join(lines)


def _measured_text(row: Mapping[str, Any]) -> str:
    """Which variant a shape gets, and what speaks for it."""
    extents = " ".join(f"{axis}={extent}" for axis, extent in row["shape"].items())
    beside = f" (next: {row['next']}, {row['next_us']} us)" if row["next"] else ""
    timed = f"{row['variant']}, {row['us']} us{beside} on {row['device']}"
    verdict = "tuned" if row["counts"] else "does not count, there is no such variant"
    return f"  {row['cell']}  {extents}: {timed}, source {row['source'][:12]}: {verdict}"


MORE = ("cluster", "workspace", "maps", "prologue", "gate", "spills")
"""What only some entries have."""


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def launch(entry: Mapping[str, Any]) -> str:
    """Grid, block and group memory, or who says."""
    if "stub" in entry:
        return f"launched as {entry['stub']}_query of its host stub says"
    grid = ", ".join(map(formula, entry["grid"]))
    return (
        f"grid ({grid}), block {entry['block']}, "
        f"shared {formula(entry['shared'])} + {entry['static_shared']} B"
    )


_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "mod": "%",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ge": ">=",
    "gt": ">",
    "and": "and",
    "or": "or",
}


def formula(value: Any) -> str:
    """A launch formula as text: ["ceildiv", "n", 32] is ceildiv(n, 32)."""
    if not isinstance(value, (list, tuple)):
        return str(value)
    op, a, b = value[0], formula(value[1]), formula(value[2])
    return f"({a} {_INFIX[op]} {b})" if op in _INFIX else f"{op}({a}, {b})"
