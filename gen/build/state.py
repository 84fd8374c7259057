"""What an artifact folder remembers between builds, so that only what changed is emitted, compiled and
audited.

units.jsonl: what each unit was emitted from and to. artifacts.json: size, time and hash of each audited
artifact, and of what wraps it. stamp.json: a digest of every input, and the size and time of every file read
or made; where all of it still holds, there is nothing to do. All three live in the work folder, which is not
shipped; losing them costs time only.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..emit import provenance
from ..formats.axes import Format
from ..lower import templates
from ..manifest.reader import KernelSpec
from ..manifest.target import Target
from ..plan import name
from ..plan.cells import Unit

DSL, LEAN, CUTLASS = "dsl", "lean", "cutlass"
KINDS = (DSL, LEAN, CUTLASS)
"""What a unit's text is made of, which decides how it is compiled: the DSL alone; device templates too; such
that include CUTLASS."""

UNITS, ARTIFACTS, STAMP = (f"{name.WORK}/{file}" for file in ("units.jsonl", "artifacts.json", "stamp.json"))
_PACKAGE = Path(__file__).resolve().parents[1]
Stat = tuple[int, int]


def stat_of(path: Path) -> Stat | None:
    """(size, time in ns), or None where there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class UnitRecord:
    """One emitted unit. `entries`: {"dtype", "options", "entry"} of each entry point, and "types" where it
    has any. `size`: bytes of the source. The three before it are of its host stub, where it has one.
    `seconds`: of a processor, that its emission took."""

    unit: str
    inputs: str
    source: str
    sha256: str
    artifacts: tuple[str, ...]
    entries: tuple[dict[str, Any], ...]
    kind: str = DSL
    stub_source: str = ""
    stub_sha256: str = ""
    stub: str = ""
    size: int = 0
    seconds: float = 0.0

    @property
    def compiled(self) -> tuple[str, ...]:
        """What compilers make of it, but the host stub: its artifacts, or what they wrap."""
        return tuple(map(name.compiled, self.artifacts))

    @property
    def files(self) -> tuple[str, ...]:
        """Everything in the folder that is the unit's."""
        stub = (self.stub_source, self.stub) if self.stub else ()
        return (self.source, *self.artifacts, *self.compiled, *stub)

    @property
    def symbols(self) -> frozenset[str]:
        """Every entry point of the file."""
        launches = (launch for e in self.entries for launch in (e["entry"], *e["entry"].get("prologue", ())))
        return frozenset(str(launch["symbol"]) for launch in launches)


@dataclass(frozen=True)
class ArtifactRecord:
    """One audited artifact, and the source it was compiled from; of one that wraps another, a digest of that
    and of the tool. left_out: why entries of it may not be used, by symbol."""

    size: int
    time: int
    sha256: str
    source_sha256: str
    left_out: dict[str, str] = field(default_factory=dict, hash=False)

    def describes(self, path: Path) -> bool:
        """Whether the file is still as it was."""
        return stat_of(path) == (self.size, self.time)


Known = dict[str, ArtifactRecord]
"""By path."""


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def load_units(out: Path) -> dict[str, UnitRecord]:
    """By unit key; empty where nothing usable is there."""
    found = {}
    try:
        for line in (out / UNITS).read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            record["artifacts"], record["entries"] = tuple(record["artifacts"]), tuple(record["entries"])
            found[record["unit"]] = UnitRecord(**record)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found


def save_units(out: Path, records: Iterable[UnitRecord]) -> None:
    """Replace the list."""
    provenance.write_lines(out / UNITS, (json.dumps(vars(r), separators=(",", ":")) + "\n" for r in records))


def load_artifacts(out: Path) -> Known:
    """By path; empty where nothing usable is there."""
    rows = _load(out / ARTIFACTS)
    try:
        return {path: ArtifactRecord(*row) for path, row in rows.items()}
    except (AttributeError, TypeError):
        return {}


def save_artifacts(out: Path, records: Mapping[str, ArtifactRecord]) -> None:
    """Replace the list."""
    rows = {path: list(vars(record).values()) for path, record in sorted(records.items())}
    provenance.write(out / ARTIFACTS, json.dumps(rows))


# Digests


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    found = (Path(root) / file for root, _, files in os.walk(folder) for file in files)
    return sorted(path for path in found if path.suffix in suffixes)


def generator_digest() -> str:
    """Of everything in the generator, and in the templates beside it, that emitted text may depend on."""
    digest = hashlib.sha256(__version__.encode())
    cutlass, csrc = templates.FOLDERS  # of csrc, only what is C: the rest is the loader
    for folder, kinds in ((_PACKAGE, (".py", ".json")), (cutlass, (".cuh", ".h", ".hpp")), (csrc, (".h",))):
        for path in _files(folder, kinds):
            digest.update(f"\0{path.relative_to(folder.parent)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _devices() -> list[str]:
    """What tells this machine's GPUs apart, without running anything (`native` depends on it)."""
    return sorted(p.name for p in Path("/proc/driver/nvidia/gpus").glob("*"))


def digest_of(parts: Any) -> str:
    """Of plain data and of the host."""
    host = [platform.system(), platform.machine(), _devices()]
    return hashlib.sha256(json.dumps([parts, host], sort_keys=True).encode()).hexdigest()


def files_digest(generator: str, manifest: Path, evidence: Path, tables: Iterable[Path] = ()) -> str:
    """Of every file that a build reads itself. tables: of selections. BuildError where one cannot be read."""
    digest = hashlib.sha256(generator.encode())
    for path in [manifest, *sorted(evidence.glob("*.json")), *tables]:
        try:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise provenance.BuildError(f"{path}: cannot be read: {error.strerror}") from error
    return digest.hexdigest()


@dataclass
class Digester:
    """Digests of units. The parts that many units share are turned to text once."""

    generator: str
    _texts: dict[int, tuple[object, str]] = field(default_factory=dict)

    def _text(self, part: KernelSpec | Format | Target | None) -> str:
        known = self._texts.get(id(part))
        if known is None:
            text = repr(part)
            if isinstance(part, Target):
                fields = {**asdict(part), "features": sorted(part.features)}
                text = repr(sorted((key, value) for key, value in fields.items() if key != "kernels"))
            known = self._texts[id(part)] = (part, text)  # the part is kept: its id stays its own
        return known[1]

    def unit(self, unit: Unit) -> str:
        """Of everything that a unit's text depends on."""
        texts = map(self._text, (unit.kernel, unit.format, unit.target))
        parts = (self.generator, *texts, repr(unit.dtypes), repr(unit.tiles))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# The stamp


def write_stamp(
    out: Path, inputs: str, files: Iterable[str], read: Iterable[str], summary: Mapping[str, Any]
) -> None:
    """Record a finished build: `files` made (relative), `read` by the compilers (relative or absolute)."""
    paths = sorted({*files, *read})
    stats = [[path, *(stat_of(out / path) or (-1, -1))] for path in paths]
    provenance.write(out / STAMP, json.dumps({"inputs": inputs, "files": stats, "summary": summary}))


def fresh(out: Path, inputs: str) -> dict[str, Any] | None:
    """The summary of the last build where nothing has changed since; None where there is something to do."""
    stamp = _load(out / STAMP)
    try:
        if stamp is None or stamp["inputs"] != inputs:
            return None
        if any(stat_of(out / path) != (size, time) for path, size, time in stamp["files"]):
            return None
        return dict(stamp["summary"])
    except (KeyError, TypeError, ValueError):
        return None
