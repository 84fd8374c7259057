"""Which variant a problem gets, where shapes of its cell were measured (`wootz tune`). Pure functions over
the rows that the index has of a cell; the devices and the clock are elsewhere.

The rules, first to last; a row whose variant does not take the problem is passed over:
    1. a row of exactly this shape;
    2. rows that differ in m alone, by a factor of 4 at most: the nearest one (by ratio; of two, the lower);
    3. rows in which no extent differs by more than a factor of 2: the one whose factors' product is least;
    4. the order of the index, as without rows.
Rows measured on a device of this very name count before all others, which count where it has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

from .errors import ArtifactError

__all__ = ["DEFAULT", "Choice", "Measured", "choose", "parse"]

ROWS = "m"
"""The extent that calls of one model vary: rows of activations."""

FAR_ROWS, FAR = 2.0, 1.0
"""How far apart shapes of rules 2 and 3 may be, in octaves of an extent."""

DEFAULT = "default order"
"""The reason where no row speaks."""


@dataclass(frozen=True)
class Measured:
    """One row: the variant, by its symbol, that was fastest at a shape on a device."""

    shape: Mapping[str, int]
    symbol: str
    device: str = ""

    def __str__(self) -> str:
        extents = " ".join(f"{name}={extent}" for name, extent in self.shape.items())
        return f"{extents} on {self.device or 'a device without a name'}"


@dataclass(frozen=True)
class Choice:
    """symbol: "" where no row speaks. reason: in words, for people."""

    symbol: str = ""
    reason: str = DEFAULT


def parse(rows: Any, symbols: Collection[str]) -> tuple[Measured, ...]:
    """The rows of a cell's record, whose entries have these symbols. Raises ArtifactError."""
    try:
        found = tuple(
            Measured({str(k): int(v) for k, v in row["shape"].items()}, row["symbol"], str(row["device"]))
            for row in rows or ()
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"the index has measured shapes that cannot be read: {type(error).__name__}: {error}; "
            "build it again"
        ) from error
    for row in found:
        if row.symbol not in symbols:
            raise ArtifactError(f"the index has a measured shape of {row.symbol}, no entry: build it again")
    return found


def choose(
    rows: Sequence[Measured], values: Mapping[str, Any], device: str, takes: Collection[str]
) -> Choice:
    """The choice for a problem. values: its extents, and whatever else a call has. device: the name of the
    device that runs it. takes: symbols of the variants that take the problem."""
    own = [row for row in rows if row.device == device] or rows
    usable = [row for row in own if row.symbol in takes and all(values.get(n) is not None for n in row.shape)]
    for words, order in ((_EXACT, _exact), (_NEAREST, _near_rows), (_RATIO, _near)):
        best = min(_scored(usable, values, order), key=lambda pair: pair[0], default=None)
        if best is not None:
            return Choice(best[1].symbol, words.format(best[1]))
    return Choice()


_EXACT, _NEAREST, _RATIO = "tuned: {}", "rule: nearest m, of {}", "rule: nearest shape, of {}"

Score = tuple[float, int]
"""The less, the nearer: octaves, then what settles ties."""


def _scored(
    rows: Iterable[Measured], values: Mapping[str, Any], order: Any
) -> Iterable[tuple[Score, Measured]]:
    for row in rows:
        apart = {name: _octaves(extent, values[name]) for name, extent in row.shape.items()}
        score = order(apart)
        if score is not None:
            yield score, row


def _octaves(known: int, wanted: int) -> float:
    """log2(known / wanted); an extent of 0 is like no other."""
    if known == wanted:
        return 0.0
    return log2(known / wanted) if known > 0 and wanted > 0 else float("inf")


def _exact(apart: Mapping[str, float]) -> Score | None:
    return None if any(apart.values()) else (0.0, 0)


def _near_rows(apart: Mapping[str, float]) -> Score | None:
    others = any(octaves for name, octaves in apart.items() if name != ROWS)
    m = apart.get(ROWS, 0.0)
    return None if others or abs(m) > FAR_ROWS else (abs(m), int(m > 0))


def _near(apart: Mapping[str, float]) -> Score | None:
    far = [abs(octaves) for octaves in apart.values()]
    return None if max(far, default=0.0) > FAR else (sum(far), 0)
