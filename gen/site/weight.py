"""What weighs what, and what took how long: artifacts by kernel, format and target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..build.index import unit_of
from ..plan import name
from ..scale import costs
from ..scale.weights import grouped
from ..wheel.shipped import Shipped, files

AXES = ("kernel", "format", "target")


@dataclass(frozen=True)
class Artifact:
    """A file, and whose it is. compressed, seconds: None where nobody recorded them."""

    path: str
    kernel: str
    format: str
    target: str
    size: int
    compressed: int | None
    seconds: float | None


@dataclass(frozen=True)
class Weight:
    """A sum. compressed, seconds: None where any, or every, file lacks them."""

    files: int
    size: int
    compressed: int | None
    seconds: float | None


def artifacts(shipped: Shipped) -> tuple[Artifact, ...]:
    """Every binary and host stub of an index, each once, by path."""
    found = {
        file.path: (*unit_of(cell), file.size) for cell in shipped.cells.values() for file in files(cell)
    }
    compressed, took = shipped.compressed(found), costs.compiled(Path(shipped.where))
    seconds = {path: row.wall for path in found if (row := took.get(name.compiled(path)))}
    return tuple(
        Artifact(path, *found[path], compressed.get(path), seconds.get(path)) for path in sorted(found)
    )


def total(found: Iterable[Artifact]) -> Weight:
    """The sum of some files."""
    found = tuple(found)
    packed = [a.compressed for a in found if a.compressed is not None]
    took = [a.seconds for a in found if a.seconds is not None]
    return Weight(
        len(found),
        sum(a.size for a in found),
        sum(packed) if len(packed) == len(found) else None,
        sum(took) if took else None,
    )


def by(axis: str, found: Iterable[Artifact]) -> Mapping[str, Weight]:
    """Sums by one of AXES, the heaviest first."""
    sums = {key: total(members) for key, members in grouped(found, axis).items()}
    return dict(sorted(sums.items(), key=lambda item: (-item[1].size, item[0])))
