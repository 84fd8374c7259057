"""The files of a folder of selection tables, one a target: TARGET.json, a line a row.

{"wootz_tuning":1,"target":"sm_90a","rows":[
{"kernel":"qgemv","format":"int4","dtype":"bf16","shape":{"m":1,"n":14336,"k":4096},"variant":"m1",
"us":9.1,"next":"m2","next_us":9.4,"tried":31,"device":"NVIDIA H200","source":".."},
..]}

kernel: with its options, as cell keys have it. format: "-" for none; a glob is a class of formats, whose rows
come after those of a format's own. variant: the suffix of its symbol, "-" for a variant without one. source:
sha256 of the text that was timed. A text of the variants that a table names is not the text of all variants
that was timed, so a build does not compare it: a row counts while its variant exists, and the suffix of a
tile says all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..emit.provenance import BuildError
from ..manifest.problems import near
from ..plan import name
from ..plan.cells import ALL, Cell, Unit
from ..variants.family import known

VERSION = 1
_KINDS: dict[str, Any] = {
    "kernel": str, "format": str, "dtype": str, "shape": dict, "variant": str, "us": (int, float),
    "device": str, "source": str,
}  # fmt: skip
"""What a row needs to have."""


@dataclass(frozen=True)
class Row:
    """One measured shape, of a cell or of a class of cells. where: the file and its line."""

    kernel: str
    format: str
    dtype: str
    shape: tuple[tuple[str, int], ...]
    variant: str
    us: float
    device: str
    source: str
    where: str
    next: str = ""
    next_us: float | None = None

    def is_for(self, cell: Cell) -> bool:
        head = name.cell_key(cell.kernel, dict(cell.options), None, cell.dtype, "").split("/")[0]
        return (self.kernel, self.dtype) == (head, cell.dtype) and fnmatchcase(
            cell.format or name.NO_FORMAT, self.format
        )

    def symbol(self, cell: Cell) -> str:
        """The entry that it names."""
        suffix = "" if self.variant == name.NO_FORMAT else self.variant
        return name.symbol(cell.kernel, dict(cell.options), cell.format, cell.dtype, suffix)

    def record(self, symbol: str) -> dict[str, Any]:
        """For the index."""
        return {"shape": dict(self.shape), "symbol": symbol, "us": self.us, "device": self.device,
                "source_sha256": self.source}  # fmt: skip


Tables = Mapping[str, Sequence[Row]]
"""The rows of each target, by its name."""


def paths(folder: Path | None) -> list[Path]:
    """The tables of a folder; none of one that is not there."""
    return sorted(folder.glob("*.json")) if folder else []


def read(folder: Path | None) -> dict[str, tuple[Row, ...]]:
    """Every table. BuildError names the file, and the line of a row that is none."""
    found: dict[str, tuple[Row, ...]] = {}
    for path in paths(folder):
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BuildError(f"{path}: cannot be read: {error}") from error
        if not isinstance(table, dict) or table.get("wootz_tuning") != VERSION:
            raise BuildError(f"{path}: is no selection table of version {VERSION}; make it with: wootz tune")
        if table.get("target") != path.stem or not isinstance(table.get("rows"), list):
            raise BuildError(f"{path}: wanted rows of the target {path.stem}; got {table.get('target')!r}")
        found[path.stem] = tuple(_row(row, f"{path}:{i}") for i, row in enumerate(table["rows"], 2))
    return found


def _row(row: Any, where: str) -> Row:
    if not isinstance(row, dict):
        raise BuildError(f"{where}: a row is an object; got {row!r}")
    for key, kind in _KINDS.items():
        if not isinstance(row.get(key), kind):
            raise BuildError(f"{where}: {key} is {row.get(key)!r}; measure the shape again: wootz tune")
    shape = tuple(row["shape"].items())
    if not shape or not all(type(extent) is int and extent >= 0 for _, extent in shape):
        raise BuildError(f"{where}: shape is {row['shape']!r}; want extents by name")
    kernel = row["kernel"].partition(".")[0]
    if kernel not in known():
        raise BuildError(f"{where}: there is no kernel {kernel!r}{near(kernel, known())}")
    kept = {key: row[key] for key in _KINDS if key != "shape"}
    beside = {"next": row["next"], "next_us": row.get("next_us")} if row.get("next") is not None else {}
    return Row(shape=shape, where=where, **kept, **beside)


def rows_of(tables: Tables, cell: Cell) -> list[Row]:
    """Those of a cell, first those of its own format."""
    mine = [row for row in tables.get(cell.target, ()) if row.is_for(cell)]
    return sorted(mine, key=lambda row: row.format != (cell.format or name.NO_FORMAT))


@dataclass(frozen=True)
class Tuning:
    """What a build is told: the tables, and whether units have every tile, or those that rows name."""

    tables: Tables = field(default_factory=dict)
    every: bool = False

    def apply(self, unit: Unit) -> Unit:
        """The unit with its tiles, by their symbols, sorted."""
        named = {row.symbol(cell) for cell in unit.jobs for row in rows_of(self.tables, cell)}
        return replace(unit, tiles=(ALL,) if self.every else tuple(sorted(named)))


def records(tables: Tables, cell: Cell, entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the index has of a cell's rows: those whose variant is one of its entries; of two of a shape on a
    device the first."""
    there, found = {entry["symbol"] for entry in entries}, dict[Any, dict[str, Any]]()
    for row in rows_of(tables, cell):
        if row.symbol(cell) in there:
            found.setdefault((row.shape, row.device), row.record(row.symbol(cell)))
    return list(found.values())


def stale(tables: Tables, cells: Iterable[Mapping[str, Any]], jobs: Mapping[str, Cell]) -> Iterator[str]:
    """Messages about rows of these cells' records whose variant is not there."""
    for record in cells:
        cell, there = jobs[record["key"]], {entry["symbol"] for entry in record["entries"]}
        for row in rows_of(tables, cell):
            if row.symbol(cell) not in there:
                yield f"{row.where}: {cell.key} has no variant {row.variant!r}: the row does not count"
