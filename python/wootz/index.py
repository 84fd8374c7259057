"""The index of an artifact folder: one JSON object whose records stand one a line, sorted, so that none need
be parsed to find one.

A section is searched by bisection over the bytes of the file: opening costs one read, whatever the number of
records, and finding parses one line.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import ArtifactError

__all__ = ["FILE_NAME", "SECTIONS", "Index"]

FILE_NAME = "index.json"
VERSION = 2
SECTIONS = ("targets", "kernels", "formats", "cells")

_KEY = b'{"key":"'
_FENCES = 1024
_REBUILD = "rebuild the artifacts, or reinstall the package that ships them"


@dataclass(frozen=True, eq=False, repr=False)
class Span:
    """The bytes of one section's records: whole lines, from `start` to before `stop`."""

    start: int
    stop: int


@dataclass(frozen=True, eq=False, repr=False)
class Index:
    """A parsed header and the unparsed records behind it."""

    where: str
    header: Mapping[str, Any]
    data: bytes = field(repr=False)
    spans: Mapping[str, Span]
    fences: dict[str, tuple[list[bytes], list[int]]] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, folder: Path) -> Index:
        """Reads folder/index.json. Raises ArtifactError: missing, truncated, or of another version."""
        path = folder / FILE_NAME
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise ArtifactError(f"{path} does not exist; build the artifacts, or name their folder") from None
        except OSError as error:
            raise ArtifactError(f"{path} cannot be read: {error.strerror}") from error
        return cls.parse(data, str(path))

    @classmethod
    def parse(cls, data: bytes, where: str) -> Index:
        """Checks the header and where the sections are. Raises ArtifactError."""
        return cls(where, _header(data, where), data, _spans(data, where))

    def count(self, section: str) -> int:
        return int(self.header["count"][section])

    def find(self, section: str, key: str) -> dict[str, Any] | None:
        """The record of `key`, or None. Raises ArtifactError when the record is damaged or there are two of
        it.
        """
        wanted, span = key.encode(), self.spans[section]
        start = self._first_not_below(section, wanted)
        if start == span.stop or self._key(start) != wanted:
            return None
        after = self._next(start)
        if after < span.stop and self._key(after) == wanted:
            raise ArtifactError(f"{self.where}: {section} has {key!r} twice; {_REBUILD}")
        return self._record(start, after)

    def records(self, section: str, prefix: str = "") -> Iterator[dict[str, Any]]:
        """The records whose key begins with `prefix`, in order of their keys."""
        for start, after in self._lines(section, prefix):
            yield self._record(start, after)

    def keys(self, section: str, prefix: str = "") -> Iterator[str]:
        """The keys that begin with `prefix`, in order."""
        for start, _ in self._lines(section, prefix):
            yield self._key(start).decode()

    def lines(self, section: str) -> Iterator[tuple[str, bytes]]:
        """The key and the unparsed record of each, in order."""
        for start, after in self._lines(section, ""):
            yield self._key(start).decode(), self.data[start:after].rstrip(b",\n")

    def _lines(self, section: str, prefix: str) -> Iterator[tuple[int, int]]:
        span, wanted, previous = self.spans[section], prefix.encode(), b""
        start = self._first_not_below(section, wanted)
        while start < span.stop:
            key = self._key(start)
            if not key.startswith(wanted):
                return
            if key <= previous:
                raise ArtifactError(f"{self.where}: {section} has {key.decode()!r} out of order; {_REBUILD}")
            after = self._next(start)
            yield start, after
            start, previous = after, key

    def _first_not_below(self, section: str, key: bytes) -> int:
        """Offset of the first line whose key is >= `key`; the section's end if there is none."""
        data, skip = self.data, len(_KEY)
        keys, offsets = self.fences.get(section) or self._make_fences(section)
        place = bisect_left(keys, key)
        low, high = offsets[max(place - 1, 0)], offsets[place]
        while low < high:
            start = data.rfind(b"\n", low, (low + high) // 2) + 1 or low
            if data[start + skip : data.find(b'"', start + skip)] < key:
                low = data.find(b"\n", start) + 1
            else:
                high = start
        return low

    def _make_fences(self, section: str) -> tuple[list[bytes], list[int]]:
        """Some lines' keys and offsets, evenly spread, and the section's end: a first, fast step of the
        bisection.
        """
        span = self.spans[section]
        step = max((span.stop - span.start) // _FENCES, 1)
        offsets = sorted({self._line_start(span, at) for at in range(span.start, span.stop, step)})
        keys = [self._key(start) for start in offsets]
        made = self.fences[section] = keys, [*offsets, span.stop]
        return made

    def _line_start(self, span: Span, at: int) -> int:
        return self.data.rfind(b"\n", span.start, at) + 1 or span.start

    def _next(self, start: int) -> int:
        return self.data.index(b"\n", start) + 1

    def _key(self, start: int) -> bytes:
        begin = start + len(_KEY)
        if not self.data.startswith(_KEY, start):
            raise ArtifactError(f"{self._line(start)}: a record does not begin with its key; {_REBUILD}")
        return self.data[begin : self.data.find(b'"', begin)]

    def _record(self, start: int, after: int) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads(self.data[start:after].rstrip(b",\n"))
        except ValueError as error:
            raise ArtifactError(f"{self._line(start)}: not a JSON record ({error}); {_REBUILD}") from None
        if not isinstance(record, dict):
            raise ArtifactError(f"{self._line(start)}: not a JSON object; {_REBUILD}")
        return record

    def _line(self, start: int) -> str:
        number = self.data.count(b"\n", 0, start) + 1
        return f"{self.where}:{number}"


def _header(data: bytes, where: str) -> dict[str, Any]:
    line = data[: data.find(b"\n")] if b"\n" in data else data
    try:
        header: dict[str, Any] = json.loads(line.rstrip(b",\r") + b"}")
    except ValueError:
        raise ArtifactError(f"{where} is no index of wootz; {_REBUILD}") from None
    version = header.get("wootz_index")
    if version != VERSION:
        raise ArtifactError(f"{where} has index version {version!r}, this wootz reads {VERSION}; {_REBUILD}")
    if shard := header.get("shard"):
        number, of = (shard.get(key) for key in ("number", "of")) if isinstance(shard, dict) else (shard, "?")
        raise ArtifactError(
            f"{where} is of shard {number} of {of} of a build, which lacks what the others have; "
            "merge them: wootz merge SHARD... --out DIR"
        )
    count = header.get("count")
    for section in SECTIONS:
        found = count.get(section) if isinstance(count, dict) else None
        if type(found) is not int or found < 0:
            raise ArtifactError(f"{where}: the header has no count of {section}, but {found!r}; {_REBUILD}")
    return header


def _spans(data: bytes, where: str) -> dict[str, Span]:
    """Where each section lies: the last line says it. A section begins after its opening line, `"name":[`,
    and ends with its last record; nothing is between them, so that each end is checked by what follows.
    """
    last = data.rfind(b"\n", 0, len(data) - 1) + 1
    try:
        said: dict[str, list[int]] = json.loads(b"{" + data[last + 2 :])["spans"]
        spans = {section: Span(*map(int, said[section])) for section in SECTIONS}
    except (ValueError, TypeError, KeyError, OverflowError):
        raise ArtifactError(
            f"{where} is truncated: its last line does not say where its sections are; {_REBUILD}"
        ) from None
    position, opening = data.find(b"\n") + 1, b""
    for section, span in spans.items():
        marker = opening + b'"' + section.encode() + b'":[\n'
        if span.start != position + len(marker) or not data.startswith(marker, position):
            raise ArtifactError(
                f"{where} is damaged: section {section!r} is not where its last line says; {_REBUILD}"
            )
        position, opening = span.stop, b"],"
    if position != last or not data.startswith(opening, last):
        raise ArtifactError(
            f"{where} is damaged: its sections end at byte {position}, its last line is at {last}; {_REBUILD}"
        )
    return spans
