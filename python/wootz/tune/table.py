"""A selection table: one JSON file a target, a line a row. What a row holds, and who wins."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from ..errors import ArtifactError

__all__ = ["TIE", "VERSION", "Row", "Table", "best"]

VERSION = 1
TIE = 1.02
"""Times within this ratio of the least are equal: the earlier variant wins."""

Key = tuple[str, str, str, tuple[tuple[str, int], ...], str]


@dataclass(frozen=True)
class Row:
    """The fastest variant of a cell at one shape on one device.

    kernel: with its options, as cell keys have it. format: "-" for none. variant: the suffix of its symbol,
    "-" for none. us: median microseconds of a launch; next, next_us: the runner-up, None where no other
    variant takes the shape. tried: variants that were timed. source: sha256 of the text that was timed.
    """

    kernel: str
    format: str
    dtype: str
    shape: Mapping[str, int]
    variant: str
    us: float
    next: str | None
    next_us: float | None
    tried: int
    device: str
    source: str

    @property
    def key(self) -> Key:
        """What no two rows of a table share."""
        return self.kernel, self.format, self.dtype, tuple(self.shape.items()), self.device


_TYPES: dict[str, Any] = {
    "kernel": str, "format": str, "dtype": str, "shape": dict, "variant": str, "us": (int, float),
    "next": (str, type(None)), "next_us": (int, float, type(None)), "tried": int, "device": str,
    "source": str,
}  # fmt: skip


class Table:
    """The rows of one target, in memory and on disk.

    path: the file; one that is not there is an empty table. Raises ArtifactError for one that is damaged, of
    another version or of another target.
    """

    def __init__(self, path: Path, target: str) -> None:
        self.path, self.target = path, target
        self.rows: dict[Key, Row] = {row.key: row for row in _read(path, target)}

    def has(self, key: Key, source: str) -> bool:
        """Whether this very text was timed before."""
        row = self.rows.get(key)
        return row is not None and row.source == source

    def add(self, rows: Iterable[Row]) -> None:
        """Takes rows, in place of older ones of their keys, and writes the file: whole, or not at all. Raises
        ArgumentError when it cannot be written.
        """
        self.rows.update((row.key, row) for row in rows)
        lines = [json.dumps(vars(self.rows[key])) for key in sorted(self.rows)]
        head = json.dumps({"wootz_tuning": VERSION, "target": self.target})[:-1]
        text = f'{head}, "rows": [\n' + ",\n".join(lines) + "\n]}\n"
        with contextlib.suppress(OSError):  # writing says what is wrong
            self.path.parent.mkdir(parents=True, exist_ok=True)
        files.write(self.path, text)


def _read(path: Path, target: str) -> list[Row]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{path} is no selection table ({error}): move it away, or name another"
        ) from None
    version = table.get("wootz_tuning") if isinstance(table, dict) else None
    if version != VERSION:
        raise ArtifactError(
            f"{path} has table version {version!r}, this wootz writes {VERSION}: name another"
        )
    if table.get("target") != target:
        raise ArtifactError(
            f"{path} is the table of {table.get('target')!r}, the device runs the kernels of {target}: "
            "name another --out"
        )
    rows = table.get("rows")
    if not isinstance(rows, list):
        raise ArtifactError(f"{path} has {type(rows).__name__} where rows are wanted: name another --out")
    return [_row(row, f"{path}:{line}") for line, row in enumerate(rows, 2)]


def _row(row: Any, where: str) -> Row:
    wrong = next(
        (k for k, t in _TYPES.items() if not isinstance(row, dict) or not isinstance(row.get(k), t)), ""
    )
    if wrong or set(row) != set(_TYPES) or not all(type(v) is int for v in row["shape"].values()):
        what = f"its {wrong} is {row.get(wrong)!r}" if wrong and isinstance(row, dict) else "it is none"
        raise ArtifactError(f"{where}: a damaged row ({what}): delete its line, and measure the shape again")
    return Row(**row)


def best(times: Mapping[str, float], order: Sequence[str]) -> tuple[str, str | None]:
    """The winner and the runner-up. times: microseconds of each variant that was timed; order: all variants,
    as the index has them."""
    least = min(times.values())
    ranked = [name for name in order if name in times]
    winner = next(name for name in ranked if times[name] <= TIE * least)
    others = [name for name in ranked if name != winner]
    return winner, min(others, key=times.__getitem__, default=None)
