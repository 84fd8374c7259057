"""Units -> sources on disk, and the record of what each was made from. Only what changed is emitted."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from . import emit, index, name, plan, provenance, state
from .options import Options, Progress
from .provenance import BuildError
from .state import UnitRecord

COMMENT = "//"
_WORTH_A_POOL = 64  # units to emit


def render(unit: plan.Unit) -> tuple[str, tuple[dict[str, Any], ...]]:
    """A unit's whole source text and its entries. BuildError names the unit where emission fails."""
    try:
        emitted = emit.emit(unit.kernel, unit.format, unit.target, unit.dtypes)
    except Exception as error:
        raise BuildError(f"{unit.key}: cannot be emitted: {type(error).__name__}: {error}") from error
    first = provenance.header(COMMENT, unit.kernel.name, unit.format_name or name.NO_FORMAT, unit.target.name)
    entries = tuple(
        {"dtype": e.dtype, "options": dict(e.options), "entry": e.to_json()} for e in emitted.entries
    )
    return first + emitted.text, entries


def render_all(units: Sequence[plan.Unit], jobs: int) -> Iterator[tuple[str, tuple[dict[str, Any], ...]]]:
    """`render` of each unit, in order; in several processes where that is worth their start."""
    if jobs == 1 or len(units) < _WORTH_A_POOL:
        yield from map(render, units)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _leave_interrupts_to_the_parent) as pool:
        try:
            yield from pool.map(render, units, chunksize=4)
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def emit_all(
    options: Options, units: Sequence[plan.Unit], digester: state.Digester, progress: Progress
) -> tuple[list[UnitRecord], int]:
    """Write the sources of the units that changed; gives every unit's record, and how many files changed."""
    out = options.out
    known = state.load_units(out)
    inputs = {unit.key: digester.unit(unit) for unit in units}
    records = {
        unit.key: known[unit.key] for unit in units if _is_current(out, known.get(unit.key), inputs[unit.key])
    }
    pending = [unit for unit in units if unit.key not in records]
    changed = 0
    for done, (unit, (text, entries)) in enumerate(zip(pending, render_all(pending, options.jobs)), 1):
        changed += provenance.write(out / unit.source, text)
        paths, digest = tuple(path for _, path in unit.artifacts), index.sha256(text.encode())
        records[unit.key] = UnitRecord(unit.key, inputs[unit.key], unit.source, digest, paths, entries)
        progress("emit", done, len(pending), unit.key)
    current = {path for record in records.values() for path in (record.source, *record.artifacts)}
    stale = {path for record in known.values() for path in (record.source, *record.artifacts)} - current
    _delete(out, stale)
    ordered = [records[unit.key] for unit in units]
    state.save_units(out, ordered)
    return ordered, changed + len(stale)


def _is_current(out: Path, record: UnitRecord | None, inputs: str) -> bool:
    return record is not None and record.inputs == inputs and _hash_of(out / record.source) == record.sha256


def _hash_of(path: Path) -> str:
    try:
        return index.sha256(path.read_bytes())
    except OSError:
        return ""


def _delete(out: Path, paths: Iterable[str]) -> None:
    """Delete files of earlier builds, what their compilers left beside them, and folders that this
    empties."""
    gone = [out / path for path in paths]
    for path in gone:
        for suffix in ("", ".tmp", ".d"):
            provenance.remove(path.with_name(path.name + suffix))
    provenance.prune_folders(out, sorted({path.parent for path in gone}))
