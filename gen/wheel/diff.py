"""What has changed between two builds: cells, their sources, code, sizes and evidence, and the compilers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .shipped import Shipped, files

Record = Mapping[str, Any]
Pair = tuple[int, int]
"""The old and the new number."""


def _stub(cell: Record) -> Record:
    return cell.get("stub") or {}


def _size(cell: Record) -> int:
    return sum(file.size for file in files(cell))


_OF_ITS_OWN = ("files", "stub", "source_sha256", "source_size", "evidence")


def _rest(cell: Record) -> Any:
    kept = {key: value for key, value in cell.items() if key not in _OF_ITS_OWN}
    return kept, [(file.isa, file.path) for file in files(cell)], _stub(cell).get("source")


ASPECTS: Mapping[str, Callable[[Record], Any]] = {
    "source": lambda cell: (cell["source_sha256"], _stub(cell).get("source_sha256")),
    "code": lambda cell: [(file.isa, file.sha256) for file in files(cell)],
    "size": _size,
    "evidence": lambda cell: sorted(cell["evidence"]),
    "record": _rest,
}
"""What of a cell may change. record: all that the loader reads beside, as entries, launch formulas, paths."""


@dataclass(frozen=True)
class Change:
    """A cell that both have. aspects: which of ASPECTS differ. size: bytes of its binaries, which other cells
    of its unit may share."""

    cell: str
    aspects: tuple[str, ...]
    size: Pair
    gained: tuple[str, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True)
class Keys:
    """Records of one section that only one side has, or that differ."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True)
class Total:
    """Old and new number of cells, of distinct binaries and of their bytes."""

    cells: Pair
    files: Pair
    size: Pair


@dataclass(frozen=True)
class Difference:
    """All of it. tools: what built it, by name, where that differs; "" is: not used. sections: targets,
    kernels and formats. totals: by target, of both sides."""

    tools: Mapping[str, tuple[str, str]]
    sections: Mapping[str, Keys]
    added: Mapping[str, int]
    removed: Mapping[str, int]
    changed: tuple[Change, ...]
    unchanged: int
    totals: Mapping[str, Total]

    @property
    def same(self) -> bool:
        """Whether the two indexes say the same of everything."""
        sections = any(k.added or k.removed or k.changed for k in self.sections.values())
        return not (self.tools or sections or self.added or self.removed or self.changed)


def compare(old: Shipped, new: Shipped) -> Difference:
    """Everything that differs. Pure: what the indexes say is believed, no binary is read."""
    both = [key for key in new.cells if key in old.cells]
    changes = [change for key in both if (change := _change(old.cells[key], new.cells[key]))]
    return Difference(
        tools=_tools(old, new),
        sections={s: _keys(old.sections[s], new.sections[s]) for s in ("targets", "kernels", "formats")},
        added={key: _size(cell) for key, cell in new.cells.items() if key not in old.cells},
        removed={key: _size(cell) for key, cell in old.cells.items() if key not in new.cells},
        changed=tuple(changes),
        unchanged=len(both) - len(changes),
        totals=_totals(old, new),
    )


def _change(old: Record, new: Record) -> Change | None:
    aspects = tuple(name for name, of in ASPECTS.items() if of(old) != of(new))
    if not aspects:
        return None
    before, after = set(old["evidence"]), set(new["evidence"])
    gained, lost = tuple(sorted(after - before)), tuple(sorted(before - after))
    return Change(new["key"], aspects, (_size(old), _size(new)), gained, lost)


def _tools(old: Shipped, new: Shipped) -> dict[str, tuple[str, str]]:
    def said(side: Shipped) -> dict[str, str]:
        rest = {"wootz": side.header["generator"], "nvrtc": side.header["nvrtc"]}
        return {key: str(value) for key, value in {**rest, **side.header["compilers"]}.items()}

    before, after = said(old), said(new)
    pairs = {key: (before.get(key, ""), after.get(key, "")) for key in sorted({*before, *after})}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _keys(old: Mapping[str, Record], new: Mapping[str, Record]) -> Keys:
    return Keys(
        tuple(key for key in new if key not in old),
        tuple(key for key in old if key not in new),
        tuple(key for key in new if key in old and old[key] != new[key]),
    )


def _totals(old: Shipped, new: Shipped) -> dict[str, Total]:
    sides = (_by_target(old), _by_target(new))
    found = {}
    for target in sorted({*sides[0], *sides[1]}):
        before, after = (side.get(target, (0, 0, 0)) for side in sides)
        found[target] = Total(*zip(before, after))
    return found


def _by_target(side: Shipped) -> dict[str, tuple[int, int, int]]:
    cells: dict[str, list[Record]] = {}
    for cell in side.cells.values():
        cells.setdefault(cell["target"], []).append(cell)
    found = {}
    for target, members in cells.items():
        sizes = {file.path: file.size for cell in members for file in files(cell)}
        found[target] = (len(members), len(sizes), sum(sizes.values()))
    return found


# Shown


def percent(pair: Pair) -> float | None:
    """The growth in per cent; None from nothing."""
    return 100.0 * (pair[1] - pair[0]) / pair[0] if pair[0] else None


def _grown(pair: Pair) -> str:
    if pair[0] == pair[1]:
        return f"{pair[0]:,}"
    by = percent(pair)
    return f"{pair[0]:,} -> {pair[1]:,}" + (f" ({by:+.1f}%)" if by is not None else "")


def as_json(difference: Difference) -> dict[str, Any]:
    """The difference as plain data; sizes in bytes, pairs as [old, new]."""
    d = difference
    return {
        "same": d.same,
        "tools": {key: list(pair) for key, pair in d.tools.items()},
        **{section: vars(keys) for section, keys in d.sections.items()},
        "added": dict(d.added),
        "removed": dict(d.removed),
        "changed": [{**vars(change), "percent": percent(change.size)} for change in d.changed],
        "unchanged": d.unchanged,
        "totals": {key: {**vars(total), "percent": percent(total.size)} for key, total in d.totals.items()},
    }


def as_text(difference: Difference) -> Iterator[str]:
    """Lines: what built it, records, a line a cell (+, -, ~), totals by target."""
    d = difference
    yield from (f"{tool}: {old or 'none'} -> {new or 'none'}\n" for tool, (old, new) in d.tools.items())
    for section, keys in d.sections.items():
        for sign, names in (("+", keys.added), ("-", keys.removed), ("~", keys.changed)):
            yield from (f"{sign} {section.removesuffix('s')} {name}\n" for name in names)
    for sign, cells in (("+", d.added), ("-", d.removed)):
        yield from (f"{sign} {key}  {size:,}\n" for key, size in cells.items())
    yield from (f"~ {change.cell}  {', '.join(_said(change))}\n" for change in d.changed)
    yield from _table(d.totals)
    counts = f"{len(d.added)} added, {len(d.removed)} removed, {len(d.changed)} changed"
    yield f"# cells: {counts}, {d.unchanged} the same\n"


def _said(change: Change) -> Iterator[str]:
    for aspect in change.aspects:
        if aspect == "size":
            yield f"size {_grown(change.size)}"
        elif aspect == "evidence":
            moved = (*(f"+{label}" for label in change.gained), *(f"-{label}" for label in change.lost))
            yield f"evidence {' '.join(moved)}"
        else:
            yield aspect


def _table(totals: Mapping[str, Total]) -> Iterator[str]:
    def pair(numbers: Iterable[int]) -> str:
        old, new = numbers
        return f"{old}" if old == new else f"{old} -> {new}"

    rows = [("target", "cells", "files", "bytes")]
    rows += [(key, pair(t.cells), pair(t.files), _grown(t.size)) for key, t in totals.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() + "\n"
