"""What an artifact folder, or a wheel, ships: its index, read where it lies. A wheel is not unpacked."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..build.index import SECTIONS, VERSION
from ..plan import name

_HEAD = b'{"wootz_index":'
_NEEDED = ("key", "target", "files", "source", "source_sha256", "evidence", "entries")


class ShippedError(Exception):
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
    """The index of one folder or wheel. sections: its records by key, in the index' order."""

    where: str
    index: Mapping[str, Any]
    header: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Mapping[str, Any]]]

    @property
    def cells(self) -> Mapping[str, Mapping[str, Any]]:
        """The records of the cells, by key."""
        return self.sections["cells"]


def read(path: Path) -> Shipped:
    """The index in a folder, or in a wheel's file. ShippedError: neither is there, there is no index or more
    than one, or it is damaged."""
    if path.is_dir():
        data = _of_folder(path)
    elif path.is_file():
        data = _of_wheel(path)
    else:
        raise ShippedError(f"{path}: no such folder or wheel")
    return parse(data, str(path))


def parse(data: bytes, where: str) -> Shipped:
    """An index' bytes. ShippedError says in what it is none."""
    try:
        index = json.loads(data)
    except ValueError as error:
        raise ShippedError(f"{where}: its index is damaged: {error}; build or download it again") from error
    return of(index, where)


def of(index: Any, where: str) -> Shipped:
    """An index as it was read from JSON. ShippedError says in what it is none."""
    if not isinstance(index, dict) or "wootz_index" not in index:
        raise ShippedError(f"{where}: its index.json is none of wootz")
    if index["wootz_index"] != VERSION:
        found = index["wootz_index"]
        raise ShippedError(f"{where}: its index has version {found!r}, this wootz reads {VERSION}")
    header = {key: index.get(key) for key in ("generator", "compilers", "nvrtc")}
    if not isinstance(header["compilers"], dict):
        raise ShippedError(f"{where}: its index is damaged: it has no list of compilers")
    return Shipped(where, index, header, {section: _section(index, section, where) for section in SECTIONS})


def files(cell: Mapping[str, Any]) -> tuple[File, ...]:
    """The binaries of a cell's record, its stub last; none of a cell that was emitted only."""
    found = [File(f["file"], f["size"], f["sha256"], f["isa"]) for f in cell["files"]]
    stub = cell.get("stub", {})
    return (*found, *([File(stub["file"], stub["size"], stub["sha256"], "stub")] if "file" in stub else []))


def _section(index: Mapping[str, Any], section: str, where: str) -> dict[str, Mapping[str, Any]]:
    records = index.get(section)
    found: dict[str, Mapping[str, Any]] = {}
    for record in records if isinstance(records, list) else (None,):
        key = record.get("key") if isinstance(record, dict) else None
        if not isinstance(record, dict) or not isinstance(key, str) or key in found:
            raise ShippedError(
                f"{where}: its index is damaged: section {section!r} is no list of records with a key each"
            )
        found[key] = record
    if section == "cells":
        for key, cell in found.items():
            _check(key, cell, where)
    return found


def _check(key: str, cell: Mapping[str, Any], where: str) -> None:
    missing: Sequence[str] = [field for field in _NEEDED if field not in cell]
    try:
        whole = all(isinstance(f.size, int) and isinstance(f.path, str) for f in files(cell))
    except (KeyError, TypeError) as error:
        whole, missing = False, [*missing, str(error)]
    if missing or not whole:
        what = f"lacks {', '.join(missing)}" if missing else "has a file without path or size"
        raise ShippedError(f"{where}: its index is damaged: cell {key} {what}")


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


def _of_wheel(path: Path) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if PurePosixPath(n).name == name.INDEX]
            found = [n for n in names if _begins(archive, n)]
            if len(found) != 1:
                what = f"{len(found)} of them: {', '.join(found)}" if found else "no index of artifacts"
                raise ShippedError(f"{path}: wanted a wheel with one index, there is {what}")
            return archive.read(found[0])
    except zipfile.BadZipFile as error:
        raise ShippedError(f"{path}: is no wheel, or a damaged one: {error}") from error
    except (OSError, EOFError, zlib.error, RuntimeError, NotImplementedError) as error:
        raise ShippedError(f"{path}: cannot be read as a wheel: {error}") from error


def _begins(archive: zipfile.ZipFile, member: str) -> bool:
    with archive.open(member) as file:
        return file.read(len(_HEAD)) == _HEAD
