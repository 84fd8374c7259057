"""The cases of a run: cells of a library x shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from ..errors import ArgumentError, near
from .table import Key

__all__ = ["Case", "cases", "parse_shapes", "suffix"]

NONE = "-"
"""For no format in cell keys, and for a variant without a suffix."""


@dataclass(frozen=True)
class Case:
    """One cell at one shape. cell: its key. head: the kernel with its options. format: "-" for none. source:
    sha256 of the cell's text."""

    cell: str
    head: str
    kernel: str
    options: tuple[tuple[str, str], ...]
    format: str
    dtype: str
    shape: tuple[tuple[str, int], ...]
    source: str

    def key(self, device: str) -> Key:
        """Of its row in a table."""
        return self.head, self.format, self.dtype, self.shape, device

    def __str__(self) -> str:
        extents = " ".join(f"{name}={extent}" for name, extent in self.shape)
        return f"{self.head}/{self.format}/{self.dtype} {extents}"


def suffix(case: Case, symbol: str) -> str:
    """The name of a variant: what its symbol has behind that of the cell."""
    parts = (*case.head.split("."), "" if case.format == NONE else case.format, case.dtype)
    stem = "_".join(part for part in ("wootz", *parts) if part)
    return symbol.removeprefix(stem).removeprefix("_") or NONE if symbol.startswith(stem) else symbol


_SHAPE = re.compile(r"[a-z]\w*=\d+(:\d+)*(,[a-z]\w*=\d+(:\d+)*)*")


def parse_shapes(texts: Iterable[str]) -> list[tuple[tuple[str, int], ...]]:
    """ "m=1:8,n=4096,k=4096": extents by name, each of those that colons separate. Raises ArgumentError."""
    found: dict[tuple[tuple[str, int], ...], None] = {}
    for text in texts:
        if not _SHAPE.fullmatch(text):
            raise ArgumentError(
                f"--shapes: {text!r} is no shape; want extents by name, as m=1:8,n=4096,k=4096"
            )
        axes = [part.split("=") for part in text.split(",")]
        names = [name for name, _ in axes]
        if len(set(names)) < len(names):
            raise ArgumentError(f"--shapes: {text!r} names an extent twice")
        if not all(int(value) for _, values in axes for value in values.split(":")):
            raise ArgumentError(f"--shapes: {text!r} has an extent of 0; want 1 or more")
        for values in product(*([int(value) for value in values.split(":")] for _, values in axes)):
            found[tuple(zip(names, values))] = None
    return list(found)


def cases(
    cells: Sequence[Mapping[str, Any]],
    shapes: Sequence[tuple[tuple[str, int], ...]],
    kernels: Sequence[str],
    formats: Sequence[str],
    dtypes: Sequence[str],
) -> list[Case]:
    """Those cells whose kernel (with or without options), format and dtype match a pattern, at each shape; no
    pattern is all. Raises ArgumentError for a pattern that matches nothing."""
    found = list(cells)
    for what, patterns, names_of in (
        ("kernel", kernels, lambda cell: (cell["kernel"], _head(cell))),
        ("format", formats, lambda cell: (cell.get("format") or NONE,)),
        ("dtype", dtypes, lambda cell: (cell["dtype"],)),
    ):
        for pattern in patterns:
            known = sorted({name for cell in cells for name in names_of(cell)})
            if not any(fnmatchcase(name, pattern) for name in known):
                hint = near(pattern, known) or f"; there are {', '.join(known)}"
                raise ArgumentError(f"no {what} {pattern!r} on this device{hint}")
        found = [c for c in found if not patterns or any(_matches(names_of(c), p) for p in patterns)]
    return [_case(cell, shape) for cell, shape in product(found, shapes)]


def _matches(names: Iterable[str], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _head(cell: Mapping[str, Any]) -> str:
    return str(cell["key"]).split("/", 1)[0]


def _case(cell: Mapping[str, Any], shape: tuple[tuple[str, int], ...]) -> Case:
    options = tuple((cell.get("options") or {}).items())
    fixed = (cell["key"], _head(cell), cell["kernel"], options, cell.get("format") or NONE, cell["dtype"])
    return Case(*fixed, shape, str(cell.get("source_sha256") or ""))


def targets(cells: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Those of the cells, each once."""
    yield from dict.fromkeys(str(cell["target"]) for cell in cells)
