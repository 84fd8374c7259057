"""What an artifact folder, or a wheel, ships: its index and its files, read where they lie. A wheel is not
unpacked."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..build import index
from ..build.index import ArtifactsError, inside
from ..plan import name
from ..scale.weights import deflated

_HEAD = b'{"wootz_index":'
_UNREADABLE = (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError)
"""What a damaged archive raises."""


class ShippedError(ArtifactsError):
    """A folder or file that cannot be read as artifacts: the message names it, and what was found there."""


@dataclass(frozen=True)
class File:
    """A binary of a cell. isa: "" where the target has one instruction set, "stub" for a host stub."""

    path: str
    size: int
    sha256: str
    isa: str


@dataclass(frozen=True)
class Shipped:
    """The index of one folder or wheel. sections: its records by key, in the index' order. content: a file's
    bytes by its path in the index, None where it is not there. stored: of a wheel's files, bytes in it."""

    where: str
    index: Mapping[str, Any]
    header: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Mapping[str, Any]]]
    content: Callable[[str], bytes | None] = lambda _: None
    stored: Mapping[str, int] | None = None

    @property
    def cells(self) -> Mapping[str, Mapping[str, Any]]:
        """The records of the cells, by key."""
        return self.sections["cells"]

    def compressed(self, paths: Iterable[str]) -> dict[str, int]:
        """Bytes of files in a wheel, without the headers of the archive: of those that are there."""
        ordered = sorted(paths)
        if self.stored is not None:
            return {path: self.stored[path] for path in ordered if path in self.stored}

        def one(path: str) -> int | None:
            data = self.content(path)
            return None if data is None else deflated(data)

        with ThreadPoolExecutor() as pool:  # zlib works without the lock
            return {path: size for path, size in zip(ordered, pool.map(one, ordered)) if size is not None}


def read(path: Path) -> Shipped:
    """The index in a folder, or in a wheel's file. ArtifactsError: neither is there, there is no index or
    more than one, or it is damaged."""
    if path.is_dir():
        return parse(_of_folder(path), str(path), lambda file: _in_folder(path, file))
    if path.is_file():
        data, members = _of_wheel(path)
        stored = {file: info.compress_size for file, info in members.items()}
        return parse(data, str(path), lambda file: _in_wheel(path, members.get(file)), stored)
    raise ShippedError(f"{path}: no such folder or wheel")


def parse(data: bytes, where: str, *more: Any) -> Shipped:
    """An index' bytes; more: content, stored. ArtifactsError says in what they are none."""
    return of(index.parse(data, where), where, *more)


def of(found: Any, where: str, *more: Any) -> Shipped:
    """An index as it was read from JSON; more: content, stored. ArtifactsError says in what it is none."""
    checked = index.checked(found, where)
    header = {key: checked.get(key) for key in ("generator", "compilers", "nvrtc")}
    sections = {s: {record["key"]: record for record in checked[s]} for s in index.SECTIONS}
    return Shipped(where, checked, header, sections, *more)


def files(cell: Mapping[str, Any]) -> tuple[File, ...]:
    """The binaries of a cell's record, its stub last; none of a cell that was emitted only."""
    found = [File(f["file"], f["size"], f["sha256"], f["isa"]) for f in cell["files"]]
    stub = cell.get("stub", {})
    return (*found, *([File(stub["file"], stub["size"], stub["sha256"], "stub")] if "file" in stub else []))


def _of_folder(folder: Path) -> bytes:
    path = folder / name.INDEX
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ShippedError(
            f"{folder}: holds no {name.INDEX}; name an artifact folder (wootz build --out) or a wheel"
        ) from None
    except OSError as error:
        raise ShippedError(f"{path}: cannot be read: {error.strerror or error}") from error


def _in_folder(folder: Path, file: str) -> bytes | None:
    try:
        return (folder / file).read_bytes() if inside(file) else None
    except OSError:
        return None


def _of_wheel(path: Path) -> tuple[bytes, dict[str, zipfile.ZipInfo]]:
    """The index, and the members by their paths in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if PurePosixPath(n).name == name.INDEX]
            found = [n for n in names if _begins(archive, n)]
            if len(found) != 1:
                what = f"{len(found)} of them: {', '.join(found)}" if found else "no index of artifacts"
                raise ShippedError(f"{path}: wanted a wheel with one index, there is {what}")
            root = found[0].removesuffix(name.INDEX)
            members = [info for info in archive.infolist() if info.filename.startswith(root)]
            return archive.read(found[0]), {info.filename[len(root) :]: info for info in members}
    except zipfile.BadZipFile as error:
        raise ShippedError(f"{path}: is no wheel, or a damaged one: {error}") from error
    except _UNREADABLE as error:
        raise ShippedError(f"{path}: cannot be read as a wheel: {error}") from error


def _in_wheel(path: Path, member: zipfile.ZipInfo | None) -> bytes | None:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(member) if member else None
    except _UNREADABLE:
        return None


def _begins(archive: zipfile.ZipFile, member: str) -> bool:
    with archive.open(member) as file:
        return file.read(len(_HEAD)) == _HEAD
