"""Small artifact folders for tests of the report, and what its page says, read back."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from gen.build import index

ENTRY = {
    "symbol": "wootz_f",
    "args": [["x", "ptr", "in"], ["n", "u32", "shape"]],
    "block": [256, 1, 1],
    "grid": [["ceildiv", "n", 256], 1, 1],
    "shared": 0,
    "static_shared": 0,
    "when": [["lt", "n", 4096]],
}
FORMATS = {
    "int4": {"kind": "int", "bits": 4},
    "int8": {"kind": "int", "bits": 8},
    "fp4": {"kind": "float", "bits": 4},
}
BACKENDS = {"cpu": "cpu", "sm_80": "cuda", "sm_90a": "cuda", "metal3.1": "metal"}


def cell(
    kernel: str,
    fmt: str | None,
    dtype: str,
    target: str,
    evidence: Sequence[str],
    files: Mapping[str, bytes],
    source: bytes = b"",
) -> dict[str, Any]:
    """A record of an index. The source is named after the unit."""
    return {
        "key": f"{kernel}/{fmt or '-'}/{dtype}/{target}",
        "kernel": kernel,
        "format": fmt,
        "dtype": dtype,
        "target": target,
        "options": {},
        "files": [
            {"file": path, "size": len(data), "sha256": index.sha256(data), "isa": ""}
            for path, data in files.items()
        ],
        "source": f"src/{hashlib.sha256(f'{kernel} {fmt} {target}'.encode()).hexdigest()[:8]}.cu",
        "source_size": len(source),
        "source_sha256": index.sha256(source),
        "source_kind": "dsl",
        "evidence": list(evidence),
        "entries": [ENTRY],
    }


def write(folder: Path, cells: Sequence[Mapping[str, Any]], files: Mapping[str, bytes]) -> Path:
    """An artifact folder of these cells, with these files."""
    backends = {**BACKENDS, **{c["target"]: "cuda" for c in cells if c["target"] not in BACKENDS}}
    elements = {**FORMATS, **{c["format"]: {} for c in cells if c["format"] not in FORMATS}}
    sections = {
        "targets": [{"key": t, "backend": backends[t]} for t in sorted({c["target"] for c in cells})],
        "kernels": [],
        "formats": [
            {"key": f, "element": elements[f]} for f in sorted({c["format"] for c in cells if c["format"]})
        ],
        "cells": list(cells),
    }
    folder.mkdir(exist_ok=True)
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / "index.json").write_text("".join(index.lines({"c++": "c++ 12"}, sections)))
    return folder


class Page(HTMLParser):
    """A page, read strictly: AssertionError for a tag that is not closed, or closed twice."""

    EMPTY = frozenset({"meta", "link", "input", "line", "rect", "path", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.tables: list[list[list[str]]] = []
        self._open: list[str] = []
        self._cell: list[str] | None = None
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag}: an attribute twice"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.EMPTY:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.EMPTY and (not self._open or self._open[-1] != tag):
            return
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1] == tag, f"</{tag}> closes {self._open[-3:]}"
        self._open.pop()
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append("".join(self._cell).strip())
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def all(self, tag: str) -> Iterator[dict[str, str]]:
        """Attributes of every element of a kind."""
        return (attributes for name, attributes in self.elements if name == tag)

    def table(self, head: str) -> dict[str, dict[str, str]]:
        """The first table whose first column has that head: row -> column -> text."""
        found = next(t for t in self.tables if t and t[0][0] == head)
        return {row[0]: dict(zip(found[0][1:], row[1:])) for row in found[1:]}


def number(text: str) -> int:
    """Of "12,345"."""
    return int(text.replace(",", ""))


def unit(path: Path) -> Any:
    """The data of a unit's script."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("wootz(")
    assert text.endswith(")\n")
    return json.loads(text[len("wootz(") : -2])


def source(data: Mapping[str, Any]) -> bytes:
    """A source as a unit's script has it."""
    return zlib.decompress(base64.b64decode(data["data"]))
