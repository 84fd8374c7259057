"""An artifact folder -> wheels that wootz.load finds by name: one, or one a target and one that needs them.

A wheel holds the package NAME, with the folder `artifacts` in it, and an entry point of the group
`wootz.artifacts` that leads there. Of a split one, the part for TARGET is the distribution NAME-TARGET with
the entry point NAME.TARGET, and an index of its own cells only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..build import elf, index
from ..build.index import ArtifactsError
from ..build.lock import lock
from ..emit import provenance
from ..emit.provenance import BuildError
from ..plan import name
from . import archive, inside, naming
from .archive import Wheel
from .tags import ANY, Platform, platform

Index = Mapping[str, Any]
REQUIREMENT = f"wootz~={'.'.join(__version__.split('.')[:2])}"
INSIDE = "artifacts"


@dataclass(frozen=True)
class Request:
    """What to pack. name, version: normalised (naming). extra: further files of the dist-info folder, by
    path, "licenses/NAME" among them. licence: an SPDX expression."""

    artifacts: Path
    name: str
    version: str
    out: Path
    split: bool = False
    sources: bool = True
    licence: str = ""
    extra: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Packed:
    """A wheel that was written. note: why its tag promises no more."""

    path: Path
    bytes: int
    cells: int
    targets: tuple[str, ...]
    note: str = ""


def pack(request: Request) -> tuple[list[Packed], list[str]]:
    """Write the wheels; gives them, and the targets that were left out. Each replaces a file of its name at
    once, and none is written before all is checked. ArtifactsError: the folder holds no whole build, a file
    differs from its index, nothing was built. BuildError: a file cannot be read or written. Each wheel
    carries its bill of materials, and the licences of what others wrote."""
    moment = archive.moment()
    with _unchanging(request.artifacts):
        found = index.read(request.artifacts / name.INDEX)
        _check(request, found)
        kept = _select(found, [cell for cell in found["cells"] if cell["files"]])
        if not kept["cells"]:
            raise ArtifactsError(f"{request.artifacts}: nothing in it was compiled: there is nothing to pack")
        left_out = sorted(_targets(found) - _targets(kept))
        planned = list(_split(request, kept) if request.split else _whole(request, kept))
        provenance.make_folder(request.out)
        return [_write(request.out, *each, moment) for each in planned], left_out


def licence_files(paths: Iterable[Path]) -> dict[str, bytes]:
    """Files as a request's `extra` has them. BuildError where one cannot be read."""
    return {f"licenses/{path.name}": archive.read(path) for path in paths}


@contextlib.contextmanager
def _unchanging(folder: Path) -> Iterator[None]:
    """Keeps builds out of a folder that can be built in. BuildError where one is at work."""
    if os.access(folder / name.WORK, os.W_OK):
        with lock(folder):
            yield
    else:
        yield


def _check(request: Request, found: Index) -> None:
    if found.get("shard"):
        raise ArtifactsError(
            f"{request.artifacts} is one shard of a build: merge them first, see: wootz --help"
        )
    problems = index.validate(request.artifacts, request.sources)
    for cell in found["cells"]:
        if cell["files"] and "file" not in cell.get("stub", {"file": ""}):
            problems.append(f"{cell['key']}: its host stub was not built")
    if problems:
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        lost = request.sources and f": {name.SOURCES}/" in problems[0]
        without = ", or pack with --no-sources" if lost else ""
        raise ArtifactsError(
            f"{request.artifacts} is no whole build: {problems[0]}{more}; run: wootz build --out "
            f"{request.artifacts}{without}"
        )


# ---- indices


def _targets(found: Index) -> set[str]:
    return {cell["target"] for cell in found["cells"]}


def _select(found: Index, cells: Sequence[Mapping[str, Any]]) -> Index:
    """The index of some of its cells: what they are of, and no more."""
    used = {key: {cell.get(key) for cell in cells} for key in ("target", "kernel", "format")}
    kept = {
        f"{key}s": [record for record in found[f"{key}s"] if record["key"] in names or ()]
        for key, names in used.items()
    }
    sections = {**kept, "cells": cells}
    return {**found, **sections, "count": {section: len(sections[section]) for section in found["count"]}}


def _text(found: Index) -> bytes:
    header = {key: found[key] for key in ("generator", "compilers", "nvrtc") if key in found}
    return "".join(index.lines({}, {s: found[s] for s in index.SECTIONS}, header)).encode("ascii")


# ---- wheels

Planned = tuple[Wheel, Index, str]
"""A wheel, the index that it carries (of a meta wheel, that of all parts), a note."""


def _whole(request: Request, found: Index) -> Iterator[Planned]:
    yield _wheel(request, request.name, request.name, found)


def _split(request: Request, found: Index) -> Iterator[Planned]:
    parts: dict[str, str] = {}
    for target in sorted(_targets(found)):
        part = naming.distribution(f"{request.name}-{target}")
        if part in parts:
            raise BuildError(f"targets {parts[part]} and {target} would both be {part}: pack them apart")
        parts[part] = target
        cells = [cell for cell in found["cells"] if cell["target"] == target]
        yield _wheel(request, part, f"{request.name}.{target}", _select(found, cells))
    requires = (REQUIREMENT, *(f"{part}=={request.version}" for part in parts))
    summary = f"Kernels of {request.name}, for {', '.join(parts.values())}"
    licence, extra = request.licence, request.extra
    meta = Wheel(request.name, request.version, ANY, summary, requires, licence=licence, extra=extra)
    yield meta, found, ""


def _wheel(request: Request, distribution: str, point: str, found: Index) -> Planned:
    package = naming.package(distribution)
    paths = {file for cell in found["cells"] for file, _ in index.claims(cell, request.sources)}
    paths |= {file for kernel in found["kernels"] for file, _ in index.check_claims(kernel)}
    made = _platform(request.artifacts, paths)
    document = f'"""Kernels: wootz.load("{request.name}") finds them."""\n'
    files: dict[str, bytes | Path] = {
        f"{package}/__init__.py": document.encode(),
        f"{package}/{INSIDE}/{name.INDEX}": _text(found),
        **{f"{package}/{INSIDE}/{path}": request.artifacts / path for path in paths},
    }
    said = inside.files(found, distribution, request.version, request.licence)
    wheel = Wheel(
        distribution, request.version, made.tag,
        f"Kernels of {request.name}, for {', '.join(sorted(_targets(found)))}",
        (REQUIREMENT,), files, {point: package}, request.licence, {**said, **request.extra},
    )  # fmt: skip
    return wheel, found, made.why


def _platform(folder: Path, paths: Iterable[str]) -> Platform:
    objects = [path for path in paths if path.endswith(".so")]
    try:
        return platform({path: (folder / path).read_bytes() for path in objects})
    except (elf.FileError, OSError) as error:
        raise BuildError(f"{folder}: {error}") from error


def _write(out: Path, wheel: Wheel, found: Index, note: str, moment: archive.Moment) -> Packed:
    path, data = out / wheel.file_name, archive.pack(wheel, moment)
    provenance.rewrite(path, data)
    cells = len(found["cells"]) if wheel.files else 0
    return Packed(path, len(data), cells, tuple(sorted(_targets(found))), note)
