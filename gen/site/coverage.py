"""Which rungs the cells of an index have reached, counted by unit, kernel, format and target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

from ..build import index
from ..build.index import EXECUTED
from ..plan import cells as plan
from ..plan import name


class Rung(IntFlag):
    """What is known of a cell. TEXT: its text was executed on a CPU; DEVICE: it ran on the device that it is
    for."""

    EMITTED = 1
    COMPILED = 2
    TEXT = 4
    DEVICE = 8


WORDS = {
    Rung.EMITTED: "emitted",
    Rung.COMPILED: "compiled",
    Rung.TEXT: "text executed on a CPU",
    Rung.DEVICE: "executed on its device",
}
LETTERS = {Rung.EMITTED: "E", Rung.COMPILED: "C", Rung.TEXT: "T", Rung.DEVICE: "D"}


@dataclass(frozen=True)
class Cell:
    """A row of `wootz list`: state and reason as the plan has them, evidence as the index has it."""

    key: str
    kernel: str
    format: str
    dtype: str
    target: str
    state: str = plan.JOB
    reason: str = ""
    evidence: tuple[str, ...] = ()
    built: bool = True


@dataclass(frozen=True)
class Unit:
    """kernel x format x target: the cells of one source."""

    kernel: str
    format: str
    target: str
    backend: str
    cells: tuple[Cell, ...]

    @property
    def key(self) -> str:
        """As in messages and in the build state."""
        return name.unit_key(self.kernel, self.format, self.target)

    @property
    def jobs(self) -> tuple[Cell, ...]:
        """The cells that the plan wants built."""
        return tuple(cell for cell in self.cells if cell.state == plan.JOB)

    @property
    def built(self) -> bool:
        """Whether the index has any of its cells."""
        return any(cell.built for cell in self.cells)

    @property
    def rungs(self) -> Rung:
        """Those that every job has reached."""
        reached = [rungs(cell, self.backend) for cell in self.jobs]
        return reduce(lambda a, b: a & b, reached) if reached else Rung(0)

    @property
    def refused(self) -> bool:
        """Whether it has cells, and none of them is a job."""
        return bool(self.cells) and not self.jobs


def rungs(cell: Cell, backend: str) -> Rung:
    """Of one cell. What ran on a CPU ran on its device where the CPU is the target."""
    found = Rung(0)
    for label in cell.evidence:
        if label == index.EMITTED:
            found |= Rung.EMITTED
        elif label == index.COMPILED:
            found |= Rung.COMPILED
        elif label == f"{EXECUTED}cpu" and backend != "cpu":
            found |= Rung.TEXT
        elif label.startswith(EXECUTED):
            found |= Rung.DEVICE
    return found


def top(reached: Rung) -> Rung:
    """The highest of some rungs; none of none."""
    return max((rung for rung in Rung if rung & reached), default=Rung(0))


@dataclass(frozen=True)
class Count:
    """Cells of one target, by state, and by the rungs that they have reached. devices: cells by device."""

    states: Counter[str] = field(default_factory=Counter)
    rungs: Counter[Rung] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    built: int = 0

    @property
    def cells(self) -> int:
        """All of them."""
        return self.states.total()


@dataclass(frozen=True)
class Coverage:
    """kernels: in families, in order. formats, targets: in order. units: by key."""

    families: Mapping[str, tuple[str, ...]]
    formats: Mapping[str, tuple[str, ...]]
    targets: tuple[str, ...]
    units: Mapping[tuple[str, str, str], Unit]

    def count(self, target: str | None = None) -> Count:
        """Of one target, or of all."""
        units = [u for u in self.units.values() if target in (None, u.target)]
        cells = [(cell, rungs(cell, unit.backend), unit.backend) for unit in units for cell in unit.cells]
        devices = Counter(
            label.removeprefix(EXECUTED)
            for cell, _, backend in cells
            for label in cell.evidence
            if label.startswith(EXECUTED) and (label != f"{EXECUTED}cpu" or backend == "cpu")
        )
        return Count(
            Counter(cell.state for cell, _, _ in cells),
            Counter(rung for _, reached, _ in cells for rung in Rung if rung & reached),
            devices,
            sum(cell.built for cell, _, _ in cells),
        )


def of_index(cells: Iterable[Mapping[str, Any]]) -> Iterator[Cell]:
    """The cells of an index, which are jobs."""
    for cell in cells:
        kernel, fmt, target = index.unit_of(cell)
        evidence = tuple(map(str, cell["evidence"]))
        yield Cell(cell["key"], kernel, fmt, cell["dtype"], target, evidence=evidence)


def joined(found: Iterable[Cell], rows: Iterable[Mapping[str, Any]]) -> Iterator[Cell]:
    """The cells of an index and the rows of `wootz list`: a row that the index has not is not built."""
    known = {cell.key: cell for cell in found}
    for row in rows:
        if row["state"] == plan.JOB and row["key"] in known:
            yield known.pop(row["key"])
        else:
            kernel, fmt, target = index.unit_of(row)
            yield Cell(row["key"], kernel, fmt, row["dtype"], target, row["state"], row["reason"], (), False)
    yield from known.values()


Records = Mapping[str, Mapping[str, Any]]
"""Records of an index' section, by key."""


def coverage(cells: Iterable[Cell], targets: Records, formats: Records) -> Coverage:
    """Cells in families. `targets`, `formats`: those that cells may name."""
    backends = {key: str(record["backend"]) for key, record in targets.items()}
    grouped: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.kernel, cell.format, cell.target), []).append(cell)
    units = {key: Unit(*key, backends[key[2]], tuple(grouped[key])) for key in sorted(grouped)}
    order = sorted({t for _, _, t in units}, key=lambda t: (_BACKENDS.get(backends[t], 9), _natural(t)))
    return Coverage(
        _families({kernel for kernel, _, _ in units}),
        _kinds({fmt for _, fmt, _ in units} - {name.NO_FORMAT}, formats),
        tuple(order),
        units,
    )


_BACKENDS = {"cpu": 0, "cuda": 1, "metal": 2}


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """sm_90 before sm_100a."""
    digits = "".join(c if c.isdigit() else " " for c in text).split()
    return (*((int(d), "") for d in digits), (0, text))


FAMILIES = (
    ("Elements", ("copy", "binary*", "unary", "cast", "compare", "where")),
    ("Rows", ("reduce*", "cum*", "*softmax", "*norm", "*glu", "rope", "sample", "sort*", "topk*")),
    ("Moves", ("gather", "scatter*", "transpose", "copy_*", "pad*", "concat*")),
    ("States", ("gated_*", "selective_*", "*scan*")),
    ("Convolutions", ("*conv*", "*patch*", "*pool*")),
    ("Attention and caches", ("*attention*", "kv_*")),
    ("Groups of rows", ("grouped_*", "moe_*", "scaled_grouped_*")),
    ("A few rows", ("*gemv*",)),
    ("Matrix products", ("*gemm*", "*qmm*")),
    ("Quantising and packing", ("*quant*", "prepack*", "unpack*")),
)
"""Where a kernel stands on the page: the first pattern that its name matches. Any other is under OTHERS."""
OTHERS = "Others"


def _families(kernels: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {title: [] for title in (*(title for title, _ in FAMILIES), OTHERS)}
    for kernel in sorted(kernels):
        hits = (title for title, patterns in FAMILIES if any(fnmatchcase(kernel, p) for p in patterns))
        found[next(hits, OTHERS)].append(kernel)
    return {title: tuple(names) for title, names in found.items() if names}


KINDS = {"float": "floats", "int": "integers", "codebook": "codebooks"}


def _kinds(formats: Iterable[str], records: Records) -> dict[str, tuple[str, ...]]:
    """Formats by the kind of their elements, narrow ones first."""
    elements = {key: record.get("element") or {} for key, record in records.items()}
    grouped: dict[str, list[str]] = {title: [] for title in (*KINDS.values(), "others")}
    for fmt in sorted(formats, key=lambda f: (elements.get(f, {}).get("bits", 0), f)):
        grouped[KINDS.get(elements.get(fmt, {}).get("kind", ""), "others")].append(fmt)
    return {title: tuple(names) for title, names in grouped.items() if names}
