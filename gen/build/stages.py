"""From a manifest to a folder of artifacts and their index: plan, emit, compile, audit, index.

Each stage hands on data; only what changed is done again. A folder belongs to one build at a time, holds
exactly the plan's files when a build has succeeded, and holds no index when it has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..emit import provenance
from ..emit import text as emit
from ..emit.emission import emit_all, render_all
from ..emit.provenance import BuildError
from ..plan import cells as plan
from ..plan import name
from ..project import shipped_checks
from ..scale import costs, overweight, shards
from ..scale.budgets import Budgets
from ..toolchain import find as toolchain
from ..tuning import table
from . import index, runner, state
from .compiling import Compiled, Pair, built, compile_all, outputs, shipped
from .lock import lock, refuse_others
from .options import Options, Output, Row, Summary
from .state import ArtifactRecord, UnitRecord


def generate(options: Options, output: Output) -> Summary:
    """Emit the sources of a plan and compile nothing."""
    planned = _plan(options, output)
    units, summary = planned.units, planned.summary
    refuse_others(options.out)
    with lock(options.out):
        digester = state.Digester(state.generator_digest())
        shipped_checks.write(options.out, [unit.kernel for unit in units])
        _, changed = emit_all(options, units, digester, output.progress)
        if changed:  # the index, where there is one, speaks of other sources
            _forget(options.out)
    for row in summary.rows:
        row.emitted = row.jobs
    return summary


def _forget(out: Path) -> None:
    for path in (state.STAMP, name.INDEX):
        provenance.remove(out / path)


@dataclass(frozen=True)
class Planned:
    """What there is to do. units: those of this build that have jobs; parts: those of every shard, or the one
    part that is the whole; summary: counts every cell of this build; tables: of selections; read:
    the files that were read beside the manifest."""

    units: list[plan.Unit]
    summary: Summary
    parts: list[list[plan.Unit]]
    budgets: Budgets
    tables: table.Tables
    read: tuple[str, ...]


def _plan(options: Options, output: Output) -> Planned:
    """A shard's rows count its own jobs, and what nobody builds."""
    loaded = plan.load(options.manifest)
    selection = plan.select(loaded, options.request)
    for note in selection.notes:
        output.say(note)
    rows: dict[tuple[str, str], Row] = {}
    tuning = table.Tuning(table.read(options.tuning), options.request.tiles == "all")
    every = list(plan.units(loaded, selection))
    parts = [[tuning.apply(unit) for unit in every if unit.jobs]]
    if options.shard:
        known = costs.of_manifest(options.manifest, options.costs)
        parts = shards.split(parts[0], known, options.shard.of)
    units = parts[options.shard.number - 1 if options.shard else 0]
    mine = {unit.key for unit in units}
    for unit in every:
        key = (unit.kernel.name, unit.target.name)
        row = rows.setdefault(key, Row(*key))
        row.jobs += len(unit.jobs) if unit.key in mine else 0
        row.skipped += sum(cell.state == plan.SKIP for cell in unit.cells)
        row.refused += sum(cell.state == plan.REFUSED for cell in unit.cells)
    if not rows:
        raise plan.PlanError(
            f"nothing to build: no kernel of {', '.join(selection.kernels) or 'none'} is for a target of "
            f"{', '.join(selection.targets) or 'none'} in a format that was asked for"
        )
    read = tuple(str(Path(path).resolve()) for path in loaded.files[1:])
    return Planned(units, Summary(list(rows.values())), parts, loaded.budgets, tuning.tables, read)


def cell_records(
    pairs: Iterable[Pair],
    artifacts: Mapping[str, ArtifactRecord],
    tools: toolchain.Toolchain,
    evidence: index.Evidence,
    tables: table.Tables | None = None,
) -> Iterator[dict[str, Any]]:
    """The index' record of each job. tables: rows of selections. BuildError for a job without an entry."""
    for unit, record in pairs:
        files = [
            {"file": path, "size": artifacts[path].size, "sha256": artifacts[path].sha256, "isa": isa}
            for isa, path in built(unit, tools)
        ]
        stub = _stub_record(record, artifacts.get(record.stub) if files else None) if record.stub else None
        refused = {s: why for _, path in built(unit, tools) for s, why in artifacts[path].left_out.items()}
        check = unit.kernel.own.check_record(unit.kernel.name)["sha256"] if unit.kernel.own else ""
        proved = record.sha256, check
        for cell in unit.jobs:
            chosen = dict(cell.options)
            mine = [e for e in record.entries if e["dtype"] == cell.dtype and e["options"] == chosen]
            if not mine:
                raise BuildError(f"{cell.key}: its source {record.source} has no entry for it")
            entries = [e["entry"] for e in mine]
            left_out = {e["symbol"]: refused[e["symbol"]] for e in entries if e["symbol"] in refused}
            types = mine[0].get("types")
            kept = [e for e in entries if e["symbol"] not in left_out]
            measured = table.records(tables or {}, cell, kept)
            yield {
                "key": cell.key,
                "kernel": cell.kernel,
                "format": cell.format,
                "dtype": cell.dtype,
                "target": cell.target,
                "options": chosen,
                **({"types": types} if types else {}),
                "files": files,
                **({"stub": stub} if stub else {}),
                "source": record.source,
                "source_size": record.size,
                "source_sha256": record.sha256,
                "source_kind": record.kind,
                "evidence": index.evidence_of(cell.key, proved, bool(files), evidence),
                "entries": kept,
                **({"measured": measured} if measured else {}),
                **({"left_out": left_out} if left_out else {}),
            }


def _stub_record(record: UnitRecord, made: ArtifactRecord | None) -> dict[str, Any]:
    """A unit's host stub: its source, and its file where this host builds it."""
    file = {"file": record.stub, "size": made.size, "sha256": made.sha256} if made else {}
    return {**file, "source": record.stub_source, "source_sha256": record.stub_sha256}


def _sections(pairs: Sequence[Pair], cells: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    targets = {unit.target.name: unit.target for unit, _ in pairs}
    kernels = {unit.kernel.name: unit.kernel for unit, _ in pairs}
    formats = {unit.format.name: unit.format for unit, _ in pairs if unit.format}
    return {
        "targets": [index.target_record(t) for t in targets.values()],
        "kernels": [{"key": k.name, **emit.kernel_record(k)} for k in kernels.values()],
        "formats": [index.format_record(f) for f in formats.values()],
        "cells": list(cells),
    }


def build(options: Options, output: Output) -> Summary:
    """Build a folder of artifacts. Failed jobs are in the summary; what stops the whole build raises
    BuildError."""
    generator = state.generator_digest()
    files = state.files_digest(generator, options.manifest, options.evidence, table.paths(options.tuning))
    if saved := state.fresh(options.out, options.inputs(files)):
        return Summary.unchanged(saved)
    planned = _plan(options, output)
    units, summary = planned.units, planned.summary
    tools = toolchain.find([unit.target for unit in units], options.names, output.say)
    refuse_others(options.out)
    with lock(options.out) as keep:  # bad input and missing compilers never get as far as to make a folder
        _forget(options.out)
        records, _ = emit_all(options, units, state.Digester(generator), output.progress)
        pairs = list(zip(units, records))
        tools = _complete(tools, pairs, options, output)
        compiled = compile_all(options, pairs, tools, keep, output)
        summary.failures = compiled.failures
        summary.left_out = {p: a.left_out for p, a in sorted(compiled.artifacts.items()) if a.left_out}
        _count(summary, pairs, compiled, tools, runner.seconds(options.out))
        if not summary.failures:
            compiled.read.update(planned.read)
            checks = shipped_checks.write(options.out, [unit.kernel for unit in units])
            made = _index(options, planned, pairs, tools, compiled, generator, output)
            summary.failures = made.over
            if not made.over:
                provenance.write_lines(options.out / name.INDEX, made.lines)
                _stamp(options, pairs, tools, compiled, checks, summary, options.inputs(files))
    return summary


def _complete(
    tools: toolchain.Toolchain, pairs: Sequence[Pair], options: Options, output: Output
) -> toolchain.Toolchain:
    """With what only some units need, which is known once they have been emitted."""
    entries = (e["entry"] for _, record in pairs for e in record.entries)
    needs = toolchain.Needs(
        cutlass=any(record.kind == state.CUTLASS for _, record in pairs),
        stubs=any(record.stub for _, record in pairs),
        gates=any(entry.get("gate") for entry in entries),
    )
    target = next((unit.target for unit, _ in pairs if unit.target.backend == "cuda"), None)
    return toolchain.complete(tools, needs, target, options.names, output.say)


@dataclass(frozen=True)
class Made:
    """The lines of an index, and what is over its budget."""

    lines: list[str]
    over: dict[str, str]


def _index(
    options: Options,
    planned: Planned,
    pairs: Sequence[Pair],
    tools: toolchain.Toolchain,
    compiled: Compiled,
    generator: str,
    output: Output,
) -> Made:
    """The index of what was compiled. Budgets of a shard are looked at where it is merged."""
    evidence, tables = index.read_evidence(options.evidence), planned.tables
    sections = _sections(pairs, cell_records(pairs, compiled.artifacts, tools, evidence, tables))
    jobs = {cell.key: cell for unit, _ in pairs for cell in unit.jobs}
    for message in table.stale(tables, sections["cells"], jobs):
        output.say(message)
    if options.shard:
        part = shards.record(options.shard, planned.parts, generator, evidence, tables)
        part["budgets"] = planned.budgets.to_json()
        return Made(list(index.lines(tools.versions(), sections, {"shard": part})), {})
    lines = list(index.lines(tools.versions(), sections))
    return Made(lines, overweight.check(planned.budgets, options.out.joinpath, sections, lines))


def _stamp(
    options: Options,
    pairs: Sequence[Pair],
    tools: toolchain.Toolchain,
    compiled: Compiled,
    checks: set[str],
    summary: Summary,
    inputs: str,
) -> None:
    """Last of all: from now on the folder is up to date."""
    files = {name.INDEX, name.BUILD_FILE, *checks, *(record.source for _, record in pairs)}
    files |= {record.stub_source for _, record in pairs if record.stub}
    for paths in (outputs, shipped):
        files |= {path for unit, record in pairs for path in paths(unit, record, tools)}
    state.write_stamp(options.out, inputs, files, compiled.read, summary.to_json())


def _count(
    summary: Summary,
    pairs: Iterable[Pair],
    compiled: Compiled,
    tools: toolchain.Toolchain,
    seconds: Mapping[str, float],
) -> None:
    rows = {(row.kernel, row.target): row for row in summary.rows}
    for unit, record in pairs:
        row, paths = rows[unit.kernel.name, unit.target.name], outputs(unit, record, tools)
        made = [path for path in paths if path in compiled.made]
        if unit.key in compiled.failures:
            row.failed += len(unit.jobs)
        elif not paths:
            row.emitted += len(unit.jobs)
        elif made:
            row.compiled += len(unit.jobs)
        else:
            row.current += len(unit.jobs)
        row.seconds += sum(seconds.get(path, 0.0) for path in made)
        ours = (compiled.artifacts.get(path) for path in shipped(unit, record, tools))
        row.bytes += sum(artifact.size for artifact in ours if artifact)


def check_prebuilt(options: Options, output: Output) -> Summary:
    """Check that a folder holds what this manifest and this generator would build; compile nothing.

    Each difference is in the summary's failures: a prebuilt folder is never taken for what it is not.
    """
    planned = _plan(options, output)
    units, summary = planned.units, planned.summary
    found = index.read(options.out / name.INDEX)
    indexed, checks = index.cell_keys(found["cells"]), {k["key"]: k.get("check") for k in found["kernels"]}
    wanted = set()
    for i, (unit, made) in enumerate(zip(units, render_all(units, options.jobs))):
        source, own = index.sha256(made.text.encode()), unit.kernel.own
        if own and checks.get(unit.kernel.name) != own.check_record(unit.kernel.name):
            summary.failures[unit.key] = "has another check"
        paths = {path for _, path in unit.artifacts}
        for cell in unit.jobs:
            wanted.add(cell.key)
            if cell.key not in indexed:
                summary.failures[cell.key] = "is not in the index"
            elif indexed[cell.key]["source_sha256"] != source:
                summary.failures[cell.key] = "was built from another source"
            elif other := {file["file"] for file in indexed[cell.key]["files"]} - paths:
                summary.failures[cell.key] = f"ships as {min(other)}, wanted {min(paths)}"
        output.progress("check", i + 1, len(units), unit.key)
    for key in sorted(set(indexed) - wanted):
        summary.failures[key] = "is in the index, but not in the plan"
    for problem in index.validate(options.out):
        summary.failures.setdefault(problem.split(": ")[0], problem)
    for row in summary.rows:
        row.current = row.jobs
    return summary
