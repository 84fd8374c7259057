"""Units -> sources on disk, and the record of what each was made from. Only what changed is emitted."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ..build import index, state
from ..build.options import Options, Progress
from ..build.state import UnitRecord
from ..lower import templates
from ..plan import cells as plan
from ..plan import name
from ..project.own import ProjectError
from . import provenance
from . import text as emit
from .provenance import BuildError

COMMENT = "//"
_WORTH_A_POOL = 64  # units to emit
_BUILD = """extern "C" __attribute__((visibility("default"))) const char* wootz_stub_build(void)
{
    return "$SHA";
}
"""


@dataclass(frozen=True)
class Rendered:
    """A unit's source text and entries; stub: its host stub's text, or ""; kind: one of state.KINDS; seconds:
    of a processor, that its emission took."""

    text: str
    entries: tuple[dict[str, Any], ...]
    stub: str = ""
    kind: str = state.DSL
    seconds: float = 0.0


def render(unit: plan.Unit) -> tuple[str, tuple[dict[str, Any], ...]]:
    """A unit's source text and its entries. BuildError names the unit where emission fails."""
    whole = rendered(unit)
    return whole.text, whole.entries


def rendered(unit: plan.Unit) -> Rendered:
    """Everything that is emitted for a unit. BuildError names the unit where emission fails."""
    started = time.process_time()
    try:
        emitted = emit.emit(unit.kernel, unit.format, unit.target, unit.dtypes, unit.tiles)
    except ProjectError as error:
        raise BuildError(f"{unit.key}: {error}") from error
    except Exception as error:
        raise BuildError(f"{unit.key}: cannot be emitted: {type(error).__name__}: {error}") from error
    first = provenance.header(COMMENT, unit.kernel.name, unit.format_name or name.NO_FORMAT, unit.target.name)
    noted = f"{COMMENT} Host stub: {index.sha256(emitted.stub.encode())}\n" if emitted.stub else ""
    text = first + noted + emitted.text  # a stub is part of what evidence is about
    entries, stub = tuple(map(_entry, emitted.entries)), _stub(first, emitted.stub, text)
    return Rendered(text, entries, stub, _kind(emitted), round(time.process_time() - started, 6))


def _entry(entry: emit.Entry) -> dict[str, Any]:
    types = {"types": dict(entry.types)} if entry.types else {}
    return {"dtype": entry.dtype, "options": dict(entry.options), **types, "entry": entry.to_json()}


def _stub(first: str, text: str, source: str) -> str:
    """A host stub, which knows the source that its cubin is made from."""
    return text and f"{first}{text}\n{_BUILD.replace('$SHA', index.sha256(source.encode()))}"


def _kind(emitted: emit.Emitted) -> str:
    if not emitted.instances:
        return state.DSL
    return state.CUTLASS if templates.uses_cutlass(emitted.text) else state.LEAN


def render_all(units: Sequence[plan.Unit], jobs: int) -> Iterator[Rendered]:
    """`rendered` of each unit, in order; in several processes where that is worth their start."""
    if jobs == 1 or len(units) < _WORTH_A_POOL:
        yield from map(rendered, units)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _leave_interrupts_to_the_parent) as pool:
        try:
            yield from pool.map(rendered, units, chunksize=4)
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
    for done, (unit, made) in enumerate(zip(pending, render_all(pending, options.jobs)), 1):
        changed += provenance.write(out / unit.source, made.text)
        changed += provenance.write(out / unit.stub_source, made.stub) if made.stub else 0
        records[unit.key] = record(unit, inputs[unit.key], made)
        progress("emit", done, len(pending), unit.key)
    current = {path for record in records.values() for path in record.files}
    stale = {path for record in known.values() for path in record.files} - current
    _delete(out, stale)
    ordered = [records[unit.key] for unit in units]
    state.save_units(out, ordered)
    return ordered, changed + len(stale)


def record(unit: plan.Unit, inputs: str, made: Rendered) -> UnitRecord:
    """What the build remembers of a unit that was emitted. inputs: the digest of what it depends on."""
    paths = tuple(path for _, path in unit.artifacts)
    data = made.text.encode()
    stub = (unit.stub_source, index.sha256(made.stub.encode()), unit.stub) if made.stub else ("", "", "")
    emitted = (unit.source, index.sha256(data), paths, made.entries, made.kind)
    return UnitRecord(unit.key, inputs, *emitted, *stub, len(data), made.seconds)


def _is_current(out: Path, record: UnitRecord | None, inputs: str) -> bool:
    if record is None or record.inputs != inputs or _hash_of(out / record.source) != record.sha256:
        return False
    return not record.stub or _hash_of(out / record.stub_source) == record.stub_sha256


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
