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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from .. import __version__
from ..emit.provenance import BuildError
from ..formats.axes import Format
from ..formats.fragment import fragment
from ..manifest.target import Target
from ..toolchain import nvrtc

VERSION = 2
SECTIONS = ("targets", "kernels", "formats", "cells")
EMITTED, COMPILED, EXECUTED = "emitted", "compiled", "executed:"  # and on which device
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


def read(path: Path) -> dict[str, Any]:
    """A whole index as one object. BuildError where it is missing or is none."""
    try:
        index = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise BuildError(f"{path}: there is no index; run: wootz build --out {path.parent}") from error
    except (OSError, ValueError) as error:
        raise BuildError(f"{path}: cannot be read: {error}") from error
    if not isinstance(index, dict) or index.get("wootz_index") != VERSION:
        raise BuildError(f"{path}: is no wootz index of version {VERSION}")
    return index


def validate(folder: Path, sources: bool = True) -> list[str]:
    """Everything that is wrong with an artifact folder, without `sources` but for those; empty where it is
    whole. Raises BuildError as `read` does."""
    path = folder / "index.json"
    index = read(path)
    found = list(_structure(path.read_text(encoding="utf-8").split("\n"), index))
    for cell in index["cells"]:
        found += _cell_problems(folder, cell, sources)
    for kernel in index["kernels"]:
        found += _file_problems(folder, kernel["key"], check_claims(kernel))
    return found


def claims(cell: Mapping[str, Any], sources: bool = True) -> Iterator[tuple[str, str]]:
    """(path, sha256) of every file of a cell; without `sources`, of its binaries."""
    stub = cell.get("stub", {})
    for file in (*cell["files"], *([stub] if "file" in stub else [])):
        yield file["file"], file["sha256"]
    if sources:
        for source in (cell, *([stub] if stub else [])):
            yield source["source"], source["source_sha256"]


def _structure(text: Sequence[str], index: Mapping[str, Any]) -> Iterator[str]:
    for section in SECTIONS:
        keys = [record["key"] for record in index[section]]
        if keys != sorted(set(keys)):
            yield f"{section}: keys are not sorted and unique"
        if index["count"][section] != len(keys):
            yield f"{section}: count says {index['count'][section]}, there are {len(keys)}"
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
        if not inside(file):
            yield f"{key}: {file} is outside the folder"
        elif not (folder / file).is_file():
            yield f"{key}: {file} is missing"
        elif sha256((folder / file).read_bytes()) != expected:
            yield f"{key}: {file} is not the file that was indexed (its sha256 differs)"


def cell_keys(cells: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Cells by key."""
    return {cell["key"]: cell for cell in cells}
