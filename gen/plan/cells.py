"""Manifest x profile x filters -> units of cells, each cell with a state. Lazy, and cheap enough for 10^6
cells.

No kernel is built here: a cell's state comes from the manifest's skips and from `emit.refusal`, which looks
at declared features only.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase, translate
from pathlib import Path

from ..emit import text as emit
from ..formats.axes import Format
from ..manifest import reader
from ..manifest.problems import near
from ..manifest.reach import meets
from ..manifest.reader import NATIVE, KernelSpec, Manifest, Profile, Skip
from ..manifest.target import Target
from ..project.declared import own_of
from ..project.lookup import family_of
from ..project.own import Readers
from ..variants import family
from . import name

JOB, SKIP, REFUSED = "job", "skip", "refused"
"""States of a cell."""

ALL = emit.ALL
"""In place of a unit's tiles: every one that its templates can have."""


def load(path: Path) -> Manifest:
    """A manifest, checked against the kernels that this generator has. Raises ManifestError."""
    known = {name: _declared(family.family(name)) for name in family.known()}
    own = Readers(own_of, lambda kernel: _declared(family_of(kernel)))
    return reader.load(path, known_kernels=known, refusal=emit.refusal, readers=own)


def _declared(of: family.Family) -> reader.Declared:
    return reader.Declared(of.quantised, of.options, of.knobs)


class PlanError(ValueError):
    """A request that the manifest cannot serve: it names what is not there."""


@dataclass(frozen=True)
class Cell:
    """One point of the product. `options` in the kernel's order; `reason` is "" for a job."""

    kernel: str
    options: tuple[tuple[str, str], ...]
    format: str | None
    dtype: str
    target: str
    state: str
    reason: str

    @property
    def key(self) -> str:
        """The cell's name everywhere: index, evidence, messages."""
        return name.cell_key(self.kernel, dict(self.options), self.format, self.dtype, self.target)

    @property
    def symbol(self) -> str:
        """The symbol of the cell's first entry."""
        return name.symbol(self.kernel, dict(self.options), self.format, self.dtype)


@dataclass(frozen=True)
class Unit:
    """One source file: every cell of kernel x format x target. tiles: symbols of the further variants that
    it has (see Family.tiles), or (ALL,)."""

    kernel: KernelSpec
    format: Format | None
    target: Target
    cells: tuple[Cell, ...]
    tiles: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The unit's name in messages and in the build state."""
        return name.unit_key(self.kernel.name, self.format_name, self.target.name)

    @property
    def format_name(self) -> str | None:
        """None where the kernel takes no format."""
        return self.format.name if self.format else None

    @property
    def jobs(self) -> tuple[Cell, ...]:
        """The cells to build."""
        return tuple(cell for cell in self.cells if cell.state == JOB)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes to emit, in the kernel's order."""
        wanted = {cell.dtype for cell in self.jobs}
        return tuple(dtype for dtype in self.kernel.dtypes if dtype in wanted)

    @property
    def source(self) -> str:
        """Path of the emitted source, relative to the artifact folder."""
        return name.source(self.kernel.name, self.format_name, self.target)

    @property
    def stub_source(self) -> str:
        """Path of the emitted host stub, where the unit has one."""
        return name.stub_source(self.kernel.name, self.format_name, self.target)

    @property
    def stub(self) -> str:
        """Path of the compiled host stub, where the unit has one."""
        return name.stub(self.kernel.name, self.format_name, self.target)

    @property
    def artifacts(self) -> tuple[tuple[str, str], ...]:
        """(instruction set, path) of each artifact, relative to the artifact folder."""
        return name.artifacts(self.kernel.name, self.format_name, self.target)


@dataclass(frozen=True)
class Request:
    """What a command line asks for. A filter is a list of names or globs; empty means all. tiles: "all":
    every tile that templates can have, for tuning; "": the default ones and those that selection tables name.
    """

    profile: str = "default"
    targets: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    knobs: tuple[str, ...] = ()
    tiles: str = ""


@dataclass(frozen=True)
class Selection:
    """The axes of a plan, in the manifest's order. `formatless`: kernels that take no format are in. knobs:
    values built beside the defaults, as "knob=value"."""

    kernels: tuple[str, ...]
    formats: tuple[str, ...]
    targets: tuple[str, ...]
    formatless: bool = True
    notes: tuple[str, ...] = ()
    native: bool = False
    knobs: tuple[str, ...] = ()


def _unknown(what: str, wanted: str, known: Iterable[str]) -> PlanError:
    return PlanError(f"{what} {wanted!r}: not in the manifest{near(wanted, known)}")


def _pick(what: str, patterns: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    """The known names that match any pattern, in their own order. PlanError for a pattern that matches
    none."""
    known = tuple(known)
    exact = set(known)
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern in exact:
            chosen.add(pattern)
            continue
        match = re.compile(translate(pattern)).match
        hits = [n for n in known if match(n)] if any(c in pattern for c in "*?[") else []
        if not hits:
            raise _unknown(what, pattern, known)
        chosen.update(hits)
    return tuple(n for n in known if n in chosen)


def _profile_names(entry: str | Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    return tuple(known) if entry == "all" else tuple(entry)


Capabilities = Callable[[], "tuple[tuple[int, int], ...]"]


def device_capabilities() -> tuple[tuple[int, int], ...]:
    """Compute capabilities of this machine's devices, best first; empty with no driver tool."""
    command = ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.findall(r"^(\d+)\.(\d+)$", done.stdout, re.M) if done.returncode == 0 else []
    return tuple(sorted({(int(major), int(minor)) for major, minor in found}, reverse=True))


def fit(target: Target, device: tuple[int, int]) -> int:
    """How well a target's code suits a device: 3 made for it, 2 its family, 1 same major and not newer, 0 not
    at all."""
    if target.capability is None or target.capability[0] != device[0] or target.capability[1] > device[1]:
        return 0
    return {"a": 3 if target.capability == device else 0, "f": 2}.get(target.suffix, 1)


def _best(rows: Iterable[Target], device: tuple[int, int]) -> list[str]:
    """The best target for a device; where it is for some kernels only, the best for all of them as well."""
    fitting = [t for t in rows if fit(t, device)]
    fitting.sort(key=lambda t: (fit(t, device), t.capability or (0, 0)), reverse=True)
    whole = [t for t in fitting if t.kernels == "all"][:1]
    return [t.name for t in dict.fromkeys((*fitting[:1], *whole))]


def _native(manifest: Manifest, capabilities: Capabilities) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The targets of this machine, and notes about what was found."""
    rows = list(manifest.targets.values())
    chosen = [
        t.name for t in rows if t.backend == "cpu" or (t.backend == "metal" and platform.system() == "Darwin")
    ]
    notes = []
    devices = capabilities() if platform.system() != "Darwin" else ()
    for device in devices:
        best = _best(rows, device)
        label = f"{device[0]}.{device[1]}"
        if best:
            chosen += best
            notes.append(f"native: device of compute capability {label}, target {' and '.join(best)}")
        else:
            notes.append(f"native: no target in the manifest fits the device of compute capability {label}")
    if not devices:
        notes.append("native: no NVIDIA device found (nvidia-smi); targets of this host only")
    return tuple(chosen), tuple(notes)


def select(
    manifest: Manifest, request: Request, capabilities: Capabilities = device_capabilities
) -> Selection:
    """Resolve a profile and filters. PlanError for an unknown name, with a near miss."""
    profile = manifest.profiles.get(request.profile)
    if profile is None:
        raise _unknown("profile", request.profile, manifest.profiles)
    targets, notes, native = _targets(manifest, profile, request.targets, capabilities)
    formats = _profile_names(profile.formats, manifest.formats)
    if wanted := [f for f in request.formats if f != name.NO_FORMAT]:
        formats = _pick("format", wanted, manifest.formats)
    elif request.formats:
        formats = ()
    kernels = _profile_names(profile.kernels, manifest.kernels)
    if request.kernels:
        kernels = _pick("kernel", request.kernels, manifest.kernels)
    formatless = not request.formats or name.NO_FORMAT in request.formats
    values = [f"{knob.name}={value}" for knob in manifest.knobs.values() for value in knob.values]
    others = [v for v in values if v.partition("=")[2] != manifest.knobs[v.partition("=")[0]].default]
    knobs = _profile_names(profile.knobs, others)
    if request.knobs:
        knobs = _pick("knob", request.knobs, values)
    return Selection(kernels, formats, targets, formatless, notes, native, knobs)


def _targets(
    manifest: Manifest, profile: Profile, wanted: Sequence[str], capabilities: Capabilities
) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    names = tuple(wanted) or _profile_names(profile.targets, manifest.targets)
    if NATIVE not in names or NATIVE in manifest.targets:
        return _pick("target", names, manifest.targets), (), False
    found, notes = _native(manifest, capabilities)
    return _pick("target", [*(n for n in names if n != NATIVE), *found], manifest.targets), notes, True


def _kernel_formats(kernel: KernelSpec, selection: Selection, manifest: Manifest) -> Iterator[Format | None]:
    if not kernel.formats:
        if selection.formatless:
            yield None
        return
    allowed = None if kernel.formats == "all" else frozenset(kernel.formats)
    for n in selection.formats:
        if allowed is None or n in allowed:
            yield manifest.formats[n]


def _matches(pattern: str, value: str) -> bool:
    return pattern == "*" or fnmatchcase(value, pattern)


def _cells(
    kernel: KernelSpec, fmt: Format | None, target: Target, skips: Sequence[Skip], options: _Options
) -> Iterator[Cell]:
    format_name = fmt.name if fmt else None
    here = [s for s in skips if _matches(s.format, format_name or name.NO_FORMAT)]
    for dtype in kernel.dtypes:
        skip = next((s for s in here if _matches(s.dtype, dtype)), None)
        for chosen in options:
            refused = None if skip else emit.refusal(kernel, fmt, dtype, target, dict(chosen))
            state = SKIP if skip else REFUSED if refused else JOB
            reason = skip.reason if skip else refused or ""
            yield Cell(kernel.name, chosen, format_name, dtype, target.name, state, reason)


_Options = tuple[tuple[tuple[str, str], ...], ...]


def _options(kernel: KernelSpec) -> _Options:
    return tuple(tuple(chosen.items()) for chosen in reader.choices(kernel.options, kernel.knobs))


def _tuned(kernel: KernelSpec, knobs: Sequence[str]) -> KernelSpec:
    """The kernel with those values of its knobs that are asked for."""
    if not kernel.knobs:
        return kernel
    asked = {
        name: (values[0], *(v for v in values[1:] if f"{name}={v}" in knobs))
        for name, values in kernel.knobs.items()
    }
    return replace(kernel, knobs=asked)


def units(manifest: Manifest, selection: Selection) -> Iterator[Unit]:
    """Every unit of the plan, one at a time: kernels, then formats, then targets, in the manifest's order."""
    for kernel in (_tuned(manifest.kernels[n], selection.knobs) for n in selection.kernels):
        targets = [manifest.targets[n] for n in selection.targets if meets(kernel, manifest.targets[n])]
        options = _options(kernel)
        near = [s for s in manifest.skips if _matches(s.kernel, kernel.name)]
        skips = {t.name: [s for s in near if _matches(s.target, t.name)] for t in targets}
        for fmt in _kernel_formats(kernel, selection, manifest):
            for target in targets:
                yield Unit(
                    kernel, fmt, target, tuple(_cells(kernel, fmt, target, skips[target.name], options))
                )
