"""The indices of a library's parts as one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import ArtifactError
from .index import SECTIONS, Index

__all__ = ["Part", "join"]


@dataclass(frozen=True)
class Part:
    """An artifact folder, and what ships it, for messages: a distribution and its version. The folder says
    what it is."""

    owner: str = field(compare=False)
    folder: Path


Owned = tuple[Part, Index]
_CELLS = "cells"


def join(parts: Sequence[Part]) -> tuple[Index, dict[str, Path]]:
    """The index of all records, and, where there are several parts, the folder of each cell by its key.

    Raises ArtifactError: an index that cannot be used; a cell that two parts have; a kernel, a format or a
    target that two define differently, or sources that they compile differently.
    """
    opened = [(part, Index.read(part.folder)) for part in parts]
    if len(opened) == 1:
        return opened[0][1], {}
    homes: dict[str, Path] = {}
    sections = {section: _records(section, opened, homes) for section in SECTIONS}
    where = ", ".join(index.where for _, index in opened)
    return Index.parse(_text(_header(opened), sections), where), homes


def _records(section: str, opened: Iterable[Owned], homes: dict[str, Path]) -> list[bytes]:
    """The records of a section, in order of their keys; notes where each cell is."""
    found: dict[str, tuple[bytes, str]] = {}
    for part, index in opened:
        for key, record in index.lines(section):
            known, other = found.setdefault(key, (record, part.owner))
            if key in homes and section == _CELLS:
                raise ArtifactError(f"{other} and {part.owner} both ship the cell {key}: uninstall one")
            if known != record:
                raise ArtifactError(
                    f"{other} and {part.owner} define {section[:-1]} {key!r} differently: install both in "
                    "the same version"
                )
            if section == _CELLS:
                homes[key] = part.folder
    return [found[key][0] for key in sorted(found)]


def _header(opened: Sequence[Owned]) -> dict[str, Any]:
    """The first part's, with the compilers of all."""
    (first, index), *others = opened
    for part, other in others:
        if other.header.get("nvrtc") != index.header.get("nvrtc"):
            raise ArtifactError(
                f"{first.owner} and {part.owner} compile their sources differently: install both in the same "
                "version"
            )
    compilers: dict[str, str] = {}
    for _, each in opened:
        for name, version in (each.header.get("compilers") or {}).items():
            known = compilers.setdefault(name, version)
            if version not in known.split(", "):
                compilers[name] = f"{known}, {version}"
    return {**index.header, "compilers": compilers}


def _text(header: Mapping[str, Any], sections: Mapping[str, Sequence[bytes]]) -> bytes:
    """As the build writes an index: see Index.parse."""
    counted = {**header, "count": {section: len(records) for section, records in sections.items()}}
    text, spans, opening = _dump(counted)[:-1] + b",\n", {}, b""
    for section, records in sections.items():
        text += opening + f'"{section}":[\n'.encode()
        start = len(text)
        text += b"".join(record + (b"," if i + 1 < len(records) else b"") + b"\n"
                         for i, record in enumerate(records))  # fmt: skip
        spans[section], opening = [start, len(text)], b"],"
    return text + b'],"spans":' + _dump(spans) + b"}\n"


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
