"""What a build is asked for, whom it talks to, and what it has to report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..plan import cells as plan
from ..scale import costs
from ..scale.shards import Shard
from ..toolchain import find as toolchain
from . import state

Progress = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class Options:
    """What to build and how.

    `evidence`: a folder of reports. `launcher`: words before each compiler call (a compile cache). `costs`: a
    file of what compiles cost; None: the one beside the manifest, if any. `shard`: the part of the plan to
    build; None: all of it. `tuning`: a folder of selection tables, or None.
    """

    manifest: Path
    request: plan.Request
    out: Path
    evidence: Path
    jobs: int = 1
    names: toolchain.Names = field(default_factory=toolchain.Names)
    launcher: tuple[str, ...] = ()
    costs: Path | None = None
    shard: Shard | None = None
    tuning: Path | None = None

    def inputs(self, files: str) -> str:
        """A digest of all that the build depends on, from the digest of its input files."""
        tools = toolchain.fingerprint(self.names)
        part = [str(self.shard), costs.of_manifest(self.manifest, self.costs).digest] if self.shard else []
        return state.digest_of([files, asdict(self.request), tools, list(self.launcher), *part])


@dataclass(frozen=True)
class Output:
    """Where a build talks to: one-line messages, and progress (stage, done, of, what)."""

    say: Callable[[str], None]
    progress: Progress


@dataclass
class Row:
    """One line of the summary, a kernel on a target: counts of cells, bytes and seconds of artifacts."""

    kernel: str
    target: str
    jobs: int = 0
    compiled: int = 0
    current: int = 0
    emitted: int = 0
    skipped: int = 0
    refused: int = 0
    failed: int = 0
    seconds: float = 0.0
    bytes: int = 0


@dataclass
class Summary:
    """What a build did. `failures`: unit key -> what went wrong; `left_out`: artifact -> symbol -> why the
    index does not have that variant."""

    rows: list[Row] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, dict[str, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For --json and for the stamp."""
        rows = [asdict(row) for row in self.rows]
        return {"rows": rows, "failures": self.failures, "left_out": self.left_out}

    @staticmethod
    def unchanged(saved: Mapping[str, Any]) -> Summary:
        """The summary of a build that finds everything as the last one left it."""
        rows = [Row(**row) for row in saved["rows"]]
        for row in rows:
            row.current, row.compiled, row.seconds = row.current + row.compiled, 0, 0.0
        return Summary(rows, left_out=saved["left_out"])
