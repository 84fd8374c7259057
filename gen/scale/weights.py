"""What the files of an artifact folder weigh: as they lie, and as a wheel has them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..build.index import ArtifactsError, check_claims, claims, unit_of
from ..plan import name

T = TypeVar("T")
Place = Callable[[str], Path]
"""Where the file lies that an index names: of a folder, its joinpath."""
BINARY, SOURCE, INDEX = KINDS = ("binaries", "sources", "index")
_ENTRY = 30 + 46  # bytes of a file's two headers in a zip archive, beside its name, which both have


@dataclass(frozen=True)
class Item:
    """One file that is shipped. kind: BINARY (host stubs too), SOURCE or INDEX; the index belongs to no
    kernel. raw, wheel: bytes as it lies, and deflated in a zip archive as wheels are."""

    path: str
    kind: str
    kernel: str
    format: str
    target: str
    raw: int
    wheel: int


@dataclass(frozen=True)
class Total:
    """Sums of some items."""

    files: int
    raw: int
    wheel: int


def weigh(place: Place, sections: Mapping[str, Any], index: bytes) -> list[Item]:
    """Every file that the sections of an index name, and the index, whose bytes are given. ArtifactsError for
    one that is not there."""
    owners = {path: owner for cell in sections["cells"] for path, owner in _files(cell)}
    for kernel in sections["kernels"]:
        owners |= {path: (SOURCE, kernel["key"], "", "") for path, _ in check_claims(kernel)}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # zlib works without the lock
        sizes = pool.map(lambda path: _sizes(place(path), path), owners)
        items = [Item(path, *owner, *size) for (path, owner), size in zip(owners.items(), sizes)]
    return [*items, Item(name.INDEX, INDEX, "", "", "", len(index), _entry(name.INDEX, index))]


def _files(cell: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """(path, (kind, kernel, format, target)) of a cell's files."""
    for path, _ in claims(cell):
        kind = SOURCE if path.startswith(f"{name.SOURCES}/") else BINARY
        yield path, (kind, *unit_of(cell))


def _sizes(place: Path, path: str) -> tuple[int, int]:
    try:
        data = place.read_bytes()
    except OSError as error:
        raise ArtifactsError(f"{place}: cannot be read: {error.strerror}; build again") from error
    return len(data), _entry(path, data)


def _entry(path: str, data: bytes) -> int:
    """Bytes of a file in a wheel, with its headers."""
    return deflated(data) + _ENTRY + 2 * len(path)


def deflated(data: bytes) -> int:
    """Bytes of a file's data in a wheel: as Python's zipfile has them at its default level."""
    squeeze = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
    return len(squeeze.compress(data)) + len(squeeze.flush())


def total(items: Iterable[Item]) -> Total:
    """Their sums."""
    items = list(items)
    return Total(len(items), sum(i.raw for i in items), sum(i.wheel for i in items))


def by(items: Sequence[Item], axis: str) -> dict[str, Total]:
    """Sums for each kernel, format or target, heaviest in a wheel first; files of none are left out."""
    sums = {key: total(group) for key, group in grouped(items, axis).items()}
    return dict(sorted(sums.items(), key=lambda pair: (-pair[1].wheel, pair[0])))


def grouped(items: Iterable[T], axis: str) -> dict[str, list[T]]:
    """Items by an attribute; those where it is empty are left out."""
    groups: dict[str, list[T]] = {}
    for item in items:
        if key := getattr(item, axis):
            groups.setdefault(key, []).append(item)
    return groups
