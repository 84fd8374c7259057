"""Which variants a cell can do without: those whose every problem another variant of it takes.

Conditions are compared on sample problems: sizes on both sides of every tile's edge, and ragged ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from .formula import evaluate

SIZES = (1, 8, 17, 64, 72, 136, 264, 4096)
"""Values to try of a shape name."""
_OTHERS = {"sms": (1, 132)}
_FLAGS = (0, 1)

Record = Mapping[str, Any]
"""{"dtype", "options", "entry"}, as a unit's record has it."""


def problem(records: Iterable[Record], gone: Collection[str]) -> str | None:
    """Why a unit cannot do without the entries of these symbols, or None."""
    for cell in _cells(records):
        left = [entry for entry in cell if entry["symbol"] not in gone]
        lost = [entry for entry in cell if entry["symbol"] in gone]
        for entry in lost:
            if (job := _untaken(entry, left)) is not None:
                at = " at " + ", ".join(f"{name}={size}" for name, size in job.items()) if job else ""
                return f"no other variant takes the place of {entry['symbol']}{at}"
    return None


def _cells(records: Iterable[Record]) -> list[list[Mapping[str, Any]]]:
    """The entries of each cell."""
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for record in records:
        key = (record["dtype"], tuple(sorted(record["options"].items())))
        found.setdefault(key, []).append(record["entry"])
    return list(found.values())


def _untaken(entry: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """A sample problem that the entry takes and no other does."""
    jobs = (job for job in _jobs([entry, *others]) if _takes(entry, job))
    return next((job for job in jobs if not any(_takes(each, job) for each in others)), None)


def _jobs(entries: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, int]]:
    names = sorted({name for entry in entries for formula in entry["when"] for name in _names(formula)})
    tried = [_OTHERS.get(name, _FLAGS if name.startswith("has_") else SIZES) for name in names]
    for values in product(*tried):
        yield dict(zip(names, values))


def _names(formula: Any) -> Iterator[str]:
    if isinstance(formula, str):
        yield formula
    elif not isinstance(formula, int):
        for part in formula[1:]:
            yield from _names(part)


def _takes(entry: Mapping[str, Any], job: Mapping[str, int]) -> bool:
    return all(evaluate(formula, job) for formula in entry["when"])
