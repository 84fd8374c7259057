"""Which part of a plan a machine builds: a split by expected cost that every machine works out alike.

Shards know nothing of each other. Each one's index says which part it is, and of what; `wootz merge` takes
them together, and the loader takes no part for the whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from heapq import heapify, heapreplace
from typing import Any

from ..build import index, state
from ..plan.cells import PlanError, Unit
from ..tuning.table import Row, Tables
from .costs import Costs

MOST = 4096  # shards of one build


@dataclass(frozen=True)
class Shard:
    """Part `number` of `of`, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @staticmethod
    def parse(text: str) -> Shard:
        """ "2/3". PlanError for anything else."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
        number, of = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1 <= number <= of <= MOST:
            raise PlanError(f"--shard {text}: wanted i/n with 1 <= i <= n <= {MOST}, as 2/3")
        return Shard(number, of)


def milliseconds(unit: Unit, costs: Costs) -> int:
    """What a unit's emission and all its compiles are expected to take, one after the other."""
    return costs.emission(unit) + sum(task.milliseconds for task in costs.tasks(unit))


def split(units: Sequence[Unit], costs: Costs, of: int) -> list[list[Unit]]:
    """`of` parts of about the same cost: each unit, the longest first, goes to the part that has the least so
    far (Graham 1969). Ties go by key and by number, and costs are whole milliseconds, so that it is the same
    everywhere. The units of a part keep the plan's order."""
    loads = [(0, part) for part in range(of)]
    heapify(loads)
    chosen: dict[str, int] = {}
    for cost, key in sorted((-milliseconds(unit, costs), unit.key) for unit in units):
        load, part = loads[0]
        heapreplace(loads, (load - cost, part))
        chosen[key] = part
    parts: list[list[Unit]] = [[] for _ in range(of)]
    for unit in units:
        parts[chosen[unit.key]].append(unit)
    return parts


def record(
    shard: Shard,
    parts: Sequence[Sequence[Unit]],
    generator: str,
    evidence: index.Evidence,
    tables: Tables,
) -> dict[str, Any]:
    """What a shard's index says of itself. sources: a digest of everything that the whole plan's texts depend
    on; split: of who builds what; evidence: of the reports; tuning: of the selection tables."""
    digester = state.Digester(generator)
    units = sorted((unit.key, digester.unit(unit), _jobs(unit)) for part in parts for unit in part)
    return {
        "number": shard.number,
        "of": shard.of,
        "sources": _digest(units),
        "split": _digest([[unit.key for unit in part] for part in parts]),
        "evidence": _digest(sorted((cell, sorted(runs)) for cell, runs in evidence.items())),
        "tuning": _digest([target, *map(_measured, rows)] for target, rows in sorted(tables.items())),
    }


def _measured(row: Row) -> dict[str, Any]:
    """Wherever it was read."""
    return asdict(replace(row, where=""))


def _jobs(unit: Unit) -> list[str]:
    return [cell.key for cell in unit.jobs]


def _digest(parts: Iterable[Any]) -> str:
    return index.sha256(json.dumps(list(parts), sort_keys=True).encode())
