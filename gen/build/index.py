"""Artifacts -> index.json, the one file that the loader reads. A record is a line; every section is sorted by
key.

{"wootz_index":1,"generator":..,"compilers":{..},"nvrtc":{..},"count":{..},
"targets":[
{"key":..},
..],"kernels":[
..],"formats":[
..],"cells":[
..],"spans":{"targets":[first,end],..}}
A cell may have "measured", rows of selection tables (tuning/table.py); a loader that does not know them takes
variants in their order, as where there are none, so that the version is the same.
The last line has the bytes of the file at which each section's records begin and end. The loader splits the
bytes into lines and bisects, so neither the line structure nor the order is a matter of taste. The text
depends on the plan, the sources, the artifacts and the evidence: not on the folder, the time or the machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import Any

from .. import __version__
from ..emit.provenance import BuildError
from ..formats.axes import Format
from ..formats.fragment import fragment
from ..manifest.target import Target
from ..plan.name import NO_FORMAT
from ..toolchain import nvrtc

VERSION = 2
ADVICE = "build or download it again"
SECTIONS = ("targets", "kernels", "formats", "cells")
EMITTED, COMPILED, EXECUTED = "emitted", "compiled", "executed:"  # and on which device
_NEEDED: Mapping[str, type] = {
    "key": str,
    "kernel": str,
    "dtype": str,
    "target": str,
    "files": list,
    "source": str,
    "source_sha256": str,
    "evidence": list,
    "entries": list,
}
"""What every cell has."""
_FILE: Mapping[str, type] = {"file": str, "size": int, "sha256": str, "isa": str}
_STUB: Mapping[str, type] = {"source": str, "source_sha256": str}
_BUILT: Mapping[str, type] = {"file": str, "size": int, "sha256": str}
"""What a binary has; a host stub; a stub that was built, beside that."""
Proved = tuple[str, str]
"""sha256 of a cell's source, and of the check that its kernel ships, or "" for one of ours."""
Evidence = Mapping[str, Sequence[tuple[Proved, str]]]
"""Cell key -> (what was run, label) of each run that passed."""


def dump(record: Mapping[str, Any]) -> str:
    """Compact JSON on one line, keys in the order given."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256(data: bytes) -> str:
    """Hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_evidence(folder: Path) -> dict[str, list[tuple[Proved, str]]]:
    """Every passed cell in folder/*.json, files of the form
    {"device":..,"cells":[{"cell","source_sha256","pass"}]}, with "check_sha256" where the kernel ships one.

    BuildError names a file that is not of that form. A folder that is not there holds no evidence.
    """
    found: dict[str, list[tuple[Proved, str]]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            label = f"{EXECUTED}{report['device']}"
            passed = [(str(c["cell"]), _proved(c)) for c in report["cells"] if c["pass"] is True]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BuildError(f"{path}: is no evidence file: {type(error).__name__}: {error}") from error
        for cell, proved in passed:
            found.setdefault(cell, []).append((proved, label))
    return found


def _proved(record: Mapping[str, Any]) -> Proved:
    return str(record["source_sha256"]), str(record.get("check_sha256", ""))


def evidence_of(key: str, proved: Proved, compiled: bool, evidence: Evidence) -> list[str]:
    """The rungs that a cell has reached: what a run proved counts while source and check are the same."""
    runs = {label for run, label in evidence.get(key, ()) if run == proved}
    return [EMITTED, *([COMPILED] if compiled else []), *sorted(runs)]


def format_record(fmt: Format) -> dict[str, Any]:
    """A format's line: its descriptor, and its packed layout."""
    return {"key": fmt.name, **fmt.descriptor(), "packed": fragment(fmt).record()}


def target_record(target: Target) -> dict[str, Any]:
    """What the loader needs to choose a target."""
    return {
        "key": target.name,
        "backend": target.backend,
        "arch": target.arch,
        "capability": list(target.capability) if target.capability else None,
        "suffix": target.suffix,
        "features": sorted(target.features),
        "isa": list(target.isa),
        "min_os": target.min_os,
        "extension": target.extension,
        "simd": target.simd,
        "max_threads": target.max_threads,
        "shared_bytes": target.shared_bytes,
    }


def lines(
    compilers: Mapping[str, str],
    sections: Mapping[str, Sequence[Mapping[str, Any]]],
    header: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """The index, line by line. Each record has a "key", which is unique in its section and comes first.
    header: what more it says of itself: of the index that the records are of, where it is another build's; of
    the part of a build that it is."""
    count = {section: len(sections[section]) for section in ("formats", "kernels", "targets", "cells")}
    meta = {
        "wootz_index": VERSION,
        "generator": __version__,
        "compilers": dict(compilers),
        "nvrtc": nvrtc.KINDS,
        **(header or {}),
        "count": count,
    }
    written, spans = 0, dict[str, list[int]]()

    def counted(line: str) -> str:
        nonlocal written
        written += len(line)  # ASCII
        return line

    yield counted(dump(meta)[:-1] + ",\n")
    for number, section in enumerate(SECTIONS):
        yield counted(f'{"]," if number else ""}"{section}":[\n')
        records = sorted(sections[section], key=lambda record: str(record["key"]))
        start = written
        for i, record in enumerate(records):
            yield counted(dump(record) + (",\n" if i + 1 < len(records) else "\n"))
        spans[section] = [start, written]
    yield f'],"spans":{dump(spans)}}}\n'


class ArtifactsError(BuildError):
    """What is given as artifacts is none, or is damaged: the message names it, and what was found there."""


def read(path: Path) -> dict[str, Any]:
    """A whole index as one object. ArtifactsError where it is missing, is none, or is damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ArtifactsError(f"{path}: there is no index; run: wootz build --out {path.parent}") from error
    except OSError as error:
        raise ArtifactsError(f"{path}: cannot be read: {error.strerror or error}") from error
    return checked(parse(data, path), path)


def parse(data: bytes, where: object) -> Any:
    """An index' bytes as JSON. ArtifactsError, naming `where`, where they are none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArtifactsError(f"{where}: its index is damaged: {error}; {ADVICE}") from error


def checked(index: Any, where: object) -> dict[str, Any]:
    """An index as it was read from JSON, whose structure every reader may rely on. ArtifactsError says in
    what it is none, and names `where`."""
    if not isinstance(index, dict) or "wootz_index" not in index:
        raise ArtifactsError(f"{where}: its index.json is none of wootz")
    if index["wootz_index"] != VERSION:
        found = index["wootz_index"]
        raise ArtifactsError(f"{where}: its index has version {found!r}, this wootz reads {VERSION}")
    if problem := next(_structure(index), None):
        raise ArtifactsError(f"{where}: its index is damaged: {problem}; {ADVICE}")
    return index


def validate(folder: Path, sources: bool = True) -> list[str]:
    """Everything that is wrong with an artifact folder, without `sources` but for those; empty where it is
    whole. Raises ArtifactsError as `read` does."""
    path = folder / "index.json"
    index = read(path)
    found = list(_heads(path.read_text(encoding="utf-8").split("\n"), index))
    for cell in index["cells"]:
        found += _cell_problems(folder, cell, sources)
    for kernel in index["kernels"]:
        found += _file_problems(folder, kernel["key"], check_claims(kernel))
    return found


def unit_of(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """(kernel, format, target) of a cell's record, or of a row of a plan; NO_FORMAT where it has none."""
    return record["kernel"], record.get("format") or NO_FORMAT, record["target"]


def claims(cell: Mapping[str, Any], sources: bool = True) -> Iterator[tuple[str, str]]:
    """(path, sha256) of every file of a cell whose index was checked; without `sources`, of its binaries."""
    stub = cell.get("stub", {})
    for file in (*cell["files"], *([stub] if "file" in stub else [])):
        yield file["file"], file["sha256"]
    if sources:
        for source in (cell, *([stub] if stub else [])):
            yield source["source"], source["source_sha256"]


def _structure(index: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with an object that should be an index; what follows a problem relies on its absence."""
    if not isinstance(index.get("compilers"), dict):
        yield "it has no list of compilers"
    count = index.get("count")
    for section in SECTIONS:
        records = index.get(section)
        if not isinstance(records, list) or not all(_has(each, {"key": str}) for each in records):
            yield f"section {section!r} is no list of records with a key each"
            return
        keys = [record["key"] for record in records]
        if keys != sorted(set(keys)):
            yield f"section {section!r}: keys are not sorted and unique"
        said = count.get(section) if isinstance(count, dict) else None
        if said != len(keys):
            yield f"section {section!r}: count says {said}, there are {len(keys)}"
    targets = {target["key"] for target in index["targets"]}
    for cell in index["cells"]:
        yield from (f"cell {cell['key']} {problem}" for problem in _cell_structure(cell, targets))
    for kernel in index["kernels"]:
        yield from (f"kernel {kernel['key']} {problem}" for problem in _check_structure(kernel))


def _cell_structure(cell: Mapping[str, Any], targets: Set[str]) -> Iterator[str]:
    parts = [(cell, _NEEDED, ""), *((file, _FILE, "a file that ") for file in _listed(cell, "files"))]
    if "stub" in cell:
        parts.append((cell["stub"], _STUB, "a host stub that "))
        if _has(cell["stub"], {"file": object}):
            parts.append((cell["stub"], _BUILT, "a host stub that "))
    for record, wanted, what in parts:
        if problem := _lack(record, wanted):
            yield f"{'has ' if what else ''}{what}{problem}"
            return
    if cell["target"] not in targets:
        yield f"is for {cell['target']}, which is no target of it"
    yield from (f"names {file}, which is outside the folder" for file, _ in claims(cell) if not inside(file))


def _check_structure(kernel: Mapping[str, Any]) -> Iterator[str]:
    if "check" not in kernel:
        return
    if problem := _lack(kernel["check"], {"file": str, "sha256": str}):
        yield f"has a check that {problem}"
    elif not inside(kernel["check"]["file"]):
        yield f"names {kernel['check']['file']}, which is outside the folder"


def _listed(record: Mapping[str, Any], field: str) -> list[Any]:
    found = record.get(field)
    return found if isinstance(found, list) else []


def _has(record: Any, wanted: Mapping[str, type]) -> bool:
    return not _lack(record, wanted)


def _lack(record: Any, wanted: Mapping[str, type]) -> str:
    """What a record lacks of fields and their types; "" where it has them."""
    if not isinstance(record, dict):
        return f"is {type(record).__name__}, no record"
    for field, kind in wanted.items():
        if field not in record:
            return f"lacks {field}"
        if not isinstance(record[field], kind):
            return f"has {field} of type {type(record[field]).__name__}, wanted {kind.__name__}"
    return ""


def _heads(text: Sequence[str], index: Mapping[str, Any]) -> Iterator[str]:
    heads = sum(line.startswith('{"key":"') for line in text)
    if heads != sum(index["count"].values()):
        yield f"{heads} lines begin a record, the counts add up to {sum(index['count'].values())}"


def _cell_problems(folder: Path, cell: Mapping[str, Any], sources: bool) -> Iterator[str]:
    key = cell["key"]
    yield from _file_problems(folder, key, claims(cell, sources))
    if not cell["entries"]:
        yield f"{key}: has no entry"


def check_claims(kernel: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(file, sha256) of the reference that a kernel's record names: of a project's own."""
    return [(kernel["check"]["file"], kernel["check"]["sha256"])] if "check" in kernel else []


def inside(file: str) -> bool:
    """Whether a path that an index names stays in its folder."""
    pure = PurePosixPath(file)
    return not (pure.is_absolute() or ".." in pure.parts)


def _file_problems(folder: Path, key: str, claimed: Iterable[tuple[str, str]]) -> Iterator[str]:
    """claimed: (file, sha256) that the index has."""
    for file, expected in claimed:
        if not (folder / file).is_file():
            yield f"{key}: {file} is missing"
        elif sha256((folder / file).read_bytes()) != expected:
            yield f"{key}: {file} is not the file that was indexed (its sha256 differs)"


def cell_keys(cells: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Cells by key."""
    return {cell["key"]: cell for cell in cells}
