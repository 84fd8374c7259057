"""kernels.yaml -> a typed Manifest, or one ManifestError with everything that is wrong, by line.

Grammar: `manifest.schema.json`. Reading: `document`. Formats: `grammar`. Here: names, targets, kernels,
profiles, skips, and what one section says about another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path as FilePath
from typing import Any, Literal

from ..formats.axes import AxesError, Format
from ..formats.grammar import errors_in, format_of
from ..project.extends import Document, read_document
from ..project.own import Own, ProjectError, Readers
from ..scale import budgets
from ..scale.budgets import Budgets
from .problems import ManifestError, Path, Problem, near, path_text, show
from .reach import Reach, Refusal
from .schema import Checker
from .target import BACKENDS, Target
from .words import collisions, name_problem

__all__ = ["KernelSpec", "Knob", "Manifest", "ManifestError", "Problem", "Profile", "Skip", "load"]

NATIVE = "native"
PROFILE_NAMES = ("default", NATIVE)  # reserved words elsewhere
NO_FORMAT = "-"
Subset = Literal["all"] | tuple[str, ...]
_NEAR_MISSES = 20  # near misses are worked out for this many unknown names of a list


@dataclass(frozen=True)
class KernelSpec:
    """A kernel's entry. formats: "all", or names; () for a kernel that takes no quantised operand. knobs: the
    values of each, its default first. targets: those that it is built for. own: of a project's own kernel."""

    name: str
    dtypes: tuple[str, ...]
    formats: Subset = ()
    options: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    knobs: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    targets: Subset = "all"
    own: Own | None = None


def choices(
    options: Mapping[str, tuple[str, ...]], knobs: Mapping[str, tuple[str, ...]]
) -> Iterator[dict[str, str]]:
    """Every combination of a kernel's options and knobs, in manifest order; a knob's default, which is its
    first value, goes without saying."""
    defaults = {(name, values[0]) for name, values in knobs.items()}
    axes = {**options, **knobs}
    for values in product(*axes.values()):
        yield {name: value for name, value in zip(axes, values) if (name, value) not in defaults}


@dataclass(frozen=True)
class Knob:
    """What a call may choose. values: the default's trade-off (""), then those of the others. same_bits:
    whether all values give the same bits."""

    name: str
    default: str
    values: dict[str, str] = field(hash=False)
    same_bits: bool = False


@dataclass(frozen=True)
class Profile:
    """A named subset. The target "native" is the GPUs of the building machine, which the build resolves.
    knobs: values built beside the defaults, as "knob=value"."""

    name: str
    targets: Subset = "all"
    formats: Subset = "all"
    kernels: Subset = "all"
    knobs: Subset = ()


@dataclass(frozen=True)
class Skip:
    """Cells left out on purpose. Globs; a kernel without a format has the format "-"."""

    kernel: str = "*"
    format: str = "*"
    dtype: str = "*"
    target: str = "*"
    reason: str = ""

    def matches(self, kernel: str, format: str, dtype: str, target: str) -> bool:
        """Whether the cell is left out."""
        cell = ((kernel, self.kernel), (format, self.format), (dtype, self.dtype), (target, self.target))
        return all(fnmatchcase(name, glob) for name, glob in cell)


@dataclass(frozen=True)
class Manifest:
    """Everything that a build is told. Mappings keep the file's order. files: all that was read, the manifest
    first."""

    path: str
    version: int
    targets: dict[str, Target]
    formats: dict[str, Format]
    kernels: dict[str, KernelSpec]
    profiles: dict[str, Profile]
    skips: tuple[Skip, ...]
    knobs: dict[str, Knob] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    budgets: Budgets = field(default_factory=Budgets)


@dataclass(frozen=True)
class Declared:
    """What a kernel's file says of it: whether it takes a quantised operand, the values of its options, and
    those of its knobs, defaults first."""

    quantised: bool
    options: dict[str, tuple[str, ...]]
    knobs: dict[str, tuple[str, ...]] = field(default_factory=dict)


def load(
    path: str | FilePath,
    known_kernels: Mapping[str, Declared] | None = None,
    refusal: Refusal | None = None,
    readers: Readers | None = None,
) -> Manifest:
    """Read and check a manifest. With `known_kernels`, a kernel of another name, and one that asks for what
    its file does not declare, is a problem; with `refusal`, names that no cell comes of. readers: of kernels
    that are the project's own, which are no kernels without.

    Raises ManifestError, with every problem found.
    """
    problems: list[Problem] = []
    document = read_document(FilePath(path), problems)
    if document is None:
        raise ManifestError(problems)
    reader = _Reader(document, problems, readers)
    manifest = reader.manifest(known_kernels or {})
    if manifest is not None and refusal is not None and not problems:
        reader.reach(manifest, refusal)
    if manifest is None or problems:
        raise ManifestError(problems)
    return manifest


_SECTIONS = ("targets", "formats", "kernels", "profiles", "knobs")


class _Reader:
    """One document on its way to a Manifest; problems gather on the side."""

    def __init__(self, document: Document, problems: list[Problem], readers: Readers | None) -> None:
        self.document, self.root, self.problems = document, document.root, problems
        self.readers = readers
        self.plain: Any = document.root.plain()
        self.bad: set[Path] = (
            set()
        )  # what the schema refused: (section, name or index) and, one deeper, the key

    def problem(self, path: Path, message: str) -> None:
        file = self.document.file_of(path)
        self.problems.append(Problem(file, self.root.line_at(path), path_text(path), message))

    def manifest(self, known_kernels: Mapping[str, Declared]) -> Manifest | None:
        """The manifest, or None where nothing can be made of the document."""
        if not self.schema():
            return None
        for section in _SECTIONS:
            self.names(section)
        for name, body in self.section("kernels").items():
            if known_kernels:
                self.known(name, body, known_kernels)
        targets = {n: self.target(n, b) for n, b in self.good("targets")}
        formats = {n: f for n, b in self.good("formats") if (f := self.format(n, b))}
        for name, body in self.section("formats").items():
            if ("formats", name) in self.bad and isinstance(body, dict):
                self.told(
                    name, errors_in({k: v for k, v in body.items() if ("formats", name, k) not in self.bad})
                )
        kernels = {n: self.kernel(n, b) for n, b in self.good("kernels")}
        for name, kernel in kernels.items():
            if kernel.own is not None:
                self.own_declared(kernel)
            elif name in known_kernels:
                self.declared(kernel, known_kernels[name])
        profiles = {n: self.profile(n, b) for n, b in self.good("profiles")}
        skips = self.plain.get("skips")
        entries = enumerate(skips) if isinstance(skips, list) else ()
        good = tuple(self.skip(i, s) for i, s in entries if ("skips", i) not in self.bad)
        knobs = {n: self.knob(n, b) for n, b in self.good("knobs")}
        owned = (path for kernel in kernels.values() if kernel.own for path in kernel.own.files)
        files = tuple(dict.fromkeys((*self.document.files, *owned)))
        first = self.document.file, self.plain["version"], targets, formats, kernels, profiles
        return Manifest(*first, good, knobs, files, self.budgets())

    def schema(self) -> bool:
        """Check the document's shape; whether there is anything to go on with."""
        plain = self.plain
        if not isinstance(plain, dict):
            self.problem((), f"is {show(plain)}, wanted a mapping that begins with version: 1")
            return False
        if "version" in plain and (plain["version"] != 1 or isinstance(plain["version"], bool)):
            self.problem(("version",), f"is {show(plain['version'])}; this generator reads version 1")
            return False
        given = {
            k: v
            for k, v in plain.items()
            if v is not None or k not in ("formats", "profiles", "knobs", "skips", "budgets")
        }
        for path, message in Checker().check("manifest", given):
            self.problem(path, message)
            self.bad.update((path[:2], path[:3]))
        return "version" in plain

    def section(self, name: str) -> dict[str, Any]:
        """A section's entries, good or bad; none where the section is left out or no mapping."""
        body = self.plain.get(name)
        return body if isinstance(body, dict) else {}

    def good(self, section: str) -> list[tuple[str, dict[str, Any]]]:
        """The entries that the schema let pass."""
        return [(n, b) for n, b in self.section(section).items() if (section, n) not in self.bad]

    def names(self, section: str) -> None:
        for name in self.section(section):
            wrong = name_problem(name, target=section == "targets")
            if wrong and not (section == "profiles" and name in PROFILE_NAMES):
                self.problem((section, name), wrong)
        for name, first in collisions(self.section(section)):
            self.problem((section, name), f"the name differs from {show(first)} in letter case or dots only")

    def target(self, name: str, row: dict[str, Any]) -> Target:
        backend = BACKENDS[row["backend"]]
        arch = row.get("arch", name if backend.has_arch else "")
        self.check_target(name, row, arch)
        limits = row.get("limits", {})
        shared = limits.get("shared", backend.shared_bytes)
        return Target(
            name=name,
            backend=row["backend"],
            arch=arch,
            features=frozenset(row.get("features", ())),
            simd=limits.get("simd", backend.simd),
            max_threads=limits.get("max_threads", backend.max_threads),
            shared_bytes=shared,
            shared_max=limits.get("shared_max", shared),
            grid=tuple(limits.get("grid", backend.grid)),
            registers=limits.get("registers", 0),
            isa=tuple(row.get("isa", backend.isa)),
            min_os=row.get("min_os", ""),
            extension=row.get("extension", backend.extension),
            capability=tuple(row["capability"]) if "capability" in row else None,
            suffix=row.get("suffix", ""),
            kernels=self.subset(("targets", name, "kernels"), row.get("kernels", "all"), "kernels"),
        )

    def check_target(self, name: str, row: dict[str, Any], arch: str) -> None:
        path: Path = ("targets", name)
        allowed = BACKENDS[row["backend"]].axes
        for key in ("arch", "capability", "suffix", "isa", "min_os"):
            if key in row and key not in allowed:
                self.problem(
                    (*path, key), f"is not for backend {row['backend']}; that has {', '.join(allowed)}"
                )
        for key in ("features", "isa"):
            self.unique((*path, key), row.get(key, ()))
        if "capability" not in allowed:
            return
        if "capability" not in row:
            self.problem(path, f"capability is missing; backend {row['backend']} needs [major, minor]")
            return
        wanted = "sm_{}{}{}".format(*row["capability"], row.get("suffix", ""))
        if arch != wanted:
            where = (*path, "arch") if "arch" in row else path
            self.problem(where, f"arch {show(arch)} and capability + suffix ({wanted}) disagree")

    def format(self, name: str, body: dict[str, Any]) -> Format | None:
        found, errors = format_of(name, body)
        self.told(name, errors)
        return found

    def told(self, name: str, errors: Iterable[AxesError]) -> None:
        for e in errors:
            self.problem(("formats", name, *e.path), e.message)

    def kernel(self, name: str, body: dict[str, Any]) -> KernelSpec:
        path: Path = ("kernels", name)
        self.unique((*path, "dtypes"), body["dtypes"])
        options = {key: tuple(values) for key, values in body.get("options", {}).items()}
        for key, values in options.items():
            if wrong := name_problem(key, target=False):
                self.problem((*path, "options", key), wrong)
            self.unique((*path, "options", key), values)
        formats = body.get("formats", "none")
        chosen = () if formats == "none" else self.subset((*path, "formats"), formats, "formats")
        targets = self.subset((*path, "targets"), body.get("targets", "all"), "targets")
        knobs = self.knobs_of((*path, "knobs"), body.get("knobs", {}), options)
        spec = KernelSpec(name, tuple(body["dtypes"]), chosen, options, knobs, targets)
        return replace(spec, own=self.own(spec, body))

    def own(self, spec: KernelSpec, body: dict[str, Any]) -> Own | None:
        """The files of a project's own kernel."""
        if self.readers is None:
            return None
        path: Path = ("kernels", spec.name)
        return self.readers.own(
            spec,
            body,
            FilePath(self.document.file_of(path)),
            lambda at, message: self.problem((*path, *at), message),
        )

    def known(self, name: str, body: Any, known_kernels: Mapping[str, Declared]) -> None:
        """A name is a kernel of the generator's, or of the project's own files, and not of both."""
        own = isinstance(body, dict) and {"file", "source"} & set(body)
        if not own and name not in known_kernels:
            hint = near(name, known_kernels) or "; a kernel of your own names its file, or source"
            self.problem(("kernels", name), f"no such kernel{hint}")
        elif own and name in known_kernels and name not in self.document.overridden:
            advice = f"choose another name, or extend wootz and list kernels.{name} under override"
            self.problem(("kernels", name), f"is a kernel of wootz: {advice}")

    def own_declared(self, kernel: KernelSpec) -> None:
        assert self.readers is not None
        try:
            self.declared(kernel, self.readers.declared(kernel))
        except ProjectError as error:
            self.problem(("kernels", kernel.name, "file"), str(error))

    def knobs_of(
        self, path: Path, given: dict[str, list[str]], options: dict[str, tuple[str, ...]]
    ) -> dict[str, tuple[str, ...]]:
        """A kernel's knobs, against the section of that name and the kernel's own options."""
        declared = {n: b for n, b in self.good("knobs") if isinstance(b, dict)}
        words = {value: f"option {name}" for name, values in options.items() for value in values}
        found = {}
        for name, values in given.items():
            if name not in declared:
                self.problem((*path, name), f"no knob is named {show(name)}{near(name, declared)}")
                continue
            if name in options:
                self.problem((*path, name), "is an option of the kernel, too")
            known, default = declared[name]["values"], declared[name]["default"]
            for i, value in enumerate(values):
                if value not in known:
                    why = "the default, which is always there" if value == default else f"no value of {name}"
                    self.problem((*path, name, i), f"{show(value)} is {why}{near(value, known)}")
                elif value in words:
                    self.problem((*path, name, i), f"{show(value)} is a value of the {words[value]}, too")
                words[value] = f"knob {name}"
            self.unique((*path, name), values)
            found[name] = (default, *values)
        return found

    def knob(self, name: str, body: dict[str, Any]) -> Knob:
        if body["default"] in body["values"]:
            self.problem(("knobs", name, "values", body["default"]), "is the default: it has no trade-off")
        for value in body["values"]:
            if wrong := name_problem(value, target=False):
                self.problem(("knobs", name, "values", value), wrong)
        return Knob(
            name, body["default"], {body["default"]: "", **body["values"]}, body.get("same_bits", False)
        )

    def budgets(self) -> Budgets:
        """What artifacts may weigh; nothing of it where the schema refused some."""
        if any(path[0] == "budgets" for path in self.bad if path):
            return Budgets()
        found, problems = budgets.read(self.section("budgets"))
        known = self.section("targets")
        for name in found.targets:
            if name not in known:
                self.problem(
                    ("budgets", "targets", name), f"no target is named {show(name)}{near(name, known)}"
                )
        for path, message in problems:
            self.problem(("budgets", *path), message)
        return found

    def declared(self, kernel: KernelSpec, known: Declared) -> None:
        """What a manifest asks of a kernel, against what the kernel's file declares."""
        path: Path = ("kernels", kernel.name)
        for key, values in kernel.options.items():
            if key not in known.options:
                self.problem((*path, "options", key), f"no option of {kernel.name}{near(key, known.options)}")
                continue
            for i, value in enumerate(values):
                if value not in known.options[key]:
                    hint = near(value, known.options[key]) or f"; known: {', '.join(known.options[key])}"
                    self.problem((*path, "options", key, i), f"{show(value)} is no value of {key}{hint}")
        for key in [k for k in known.options if k not in kernel.options]:
            wanted = ", ".join(known.options[key])
            self.problem(path, f"the option {key} is missing; give some of: {wanted}")
        for key, values in kernel.knobs.items():
            if key not in known.knobs:
                self.problem((*path, "knobs", key), f"{kernel.name} has no such knob{near(key, known.knobs)}")
            elif strange := [value for value in values if value not in known.knobs[key]]:
                took = ", ".join(known.knobs[key])
                self.problem((*path, "knobs", key), f"{kernel.name} takes {took}; got {strange[0]}")
        if known.quantised and not kernel.formats:
            self.problem(path, f"{kernel.name} takes a quantised operand: give formats, all or a list")
        if kernel.formats and not known.quantised:
            self.problem((*path, "formats"), f"{kernel.name} takes no quantised operand: leave formats out")

    def reach(self, manifest: Manifest, refusal: Refusal) -> None:
        """What is asked for and no cell comes of."""
        reach = Reach(manifest.targets, manifest.formats, manifest.skips, refusal, NO_FORMAT)
        for target in manifest.targets.values():
            for path, message in reach.unmet(target, manifest.kernels):
                self.problem(("targets", target.name, *path), message)
        for kernel in manifest.kernels.values():
            for path, message in reach.unreached(kernel):
                self.problem(("kernels", kernel.name, *path), message)

    def profile(self, name: str, body: dict[str, Any]) -> Profile:
        path: Path = ("profiles", name)
        targets, formats, kernels = (
            self.subset((*path, s), body.get(s, "all"), s, (NATIVE,) if s == "targets" else ())
            for s in ("targets", "formats", "kernels")
        )
        knobs = self.asked((*path, "knobs"), body.get("knobs", "none"))
        return Profile(name, targets, formats, kernels, knobs)

    def asked(self, path: Path, given: Any) -> Subset:
        """Values of knobs, as knob=value."""
        if given in ("all", "none"):
            return "all" if given == "all" else ()
        known = {f"{n}={v}": None for n, b in self.good("knobs") for v in b["values"]}
        for i, each in enumerate(given):
            if each not in known:
                self.problem((*path, i), f"no value of a knob is {show(each)}{near(each, known)}")
        self.unique(path, given)
        return tuple(given)

    def subset(self, path: Path, given: Any, section: str, extra: tuple[str, ...] = ()) -> Subset:
        """ "all", or names that must be in a section (or be one of `extra`)."""
        if given == "all":
            return "all"
        known = {**self.section(section), **dict.fromkeys(extra)}
        unknown = [(i, name) for i, name in enumerate(given) if name not in known]
        for count, (i, name) in enumerate(unknown):
            hint = near(name, known) if count < _NEAR_MISSES else ""
            self.problem((*path, i), f"no {section[:-1]} is named {show(name)}{hint}")
        self.unique(path, given)
        return tuple(given)

    def unique(self, path: Path, given: Iterable[Any]) -> None:
        seen: set[Any] = set()
        for i, entry in enumerate(given):
            if entry in seen:
                self.problem((*path, i), f"{show(entry)} is listed twice")
            seen.add(entry)

    def skip(self, index: int, body: dict[str, Any]) -> Skip:
        known = {
            "kernel": list(self.section("kernels")),
            "format": [*self.section("formats"), NO_FORMAT],
            "dtype": sorted({d for _, k in self.good("kernels") for d in k["dtypes"]}),
            "target": list(self.section("targets")),
        }
        for key, names in known.items():
            glob = body.get(key, "*")
            if not any(fnmatchcase(name, glob) for name in names):
                self.problem(("skips", index, key), f"{show(glob)} matches no {key}{near(glob, names)}")
        if not set(known) & set(body):
            self.problem(("skips", index), f"names nothing to skip; give one or more of {', '.join(known)}")
        return Skip(**body)
