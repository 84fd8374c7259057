"""A manifest and those that it extends -> one document, every part of which knows the file it is from.

Entries of targets, formats, kernels, knobs and profiles come together by name, the base's first. What both
have is a problem unless the manifest lists it under `override`; then its own counts, whole. Skips are put
together. The profile `default` is never taken over. A profile that does not say which kernels it has has
those of the manifest that it stands in; all other sections are the manifest's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..manifest.document import Node, read
from ..manifest.problems import Path as At
from ..manifest.problems import Problem, near, path_text, show

_GENERATOR = Path(__file__).resolve().parents[1]
_PLACES = (_GENERATOR / "kernels.yaml", _GENERATOR.parent / "kernels.yaml")
SHIPPED = next((path for path in _PLACES if path.is_file()), _PLACES[-1])
"""Installed inside of the generator (what is beside it there, a build chose), in a checkout beside it."""
WOOTZ = "wootz"
"""In `extends`: the manifest that this generator comes with."""
NAMED = ("targets", "formats", "knobs", "kernels", "profiles")
SKIPS, PROFILES, KERNELS, DEFAULT = "skips", "profiles", "kernels", "default"
_MOST = 16  # manifests in a row
_CONTROL = ("extends", "override")


@dataclass(frozen=True)
class Document:
    """A root node. origins: the file of (section, name or index), where that is not `file`. overridden:
    kernels that replace the base's. files: every manifest read, the first one first."""

    file: str
    root: Node
    origins: Mapping[At, str] = field(default_factory=dict)
    overridden: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()

    def file_of(self, path: At) -> str:
        """Where a part of the document stands."""
        return self.origins.get(path[:2], self.file)


def read_document(path: Path, problems: list[Problem]) -> Document | None:
    """The document at `path`; None, and problems, where none can be made."""
    return _read(str(path), path, problems, ())


def _read(file: str, path: Path, problems: list[Problem], chain: tuple[Path, ...]) -> Document | None:
    root = read(path, problems)
    if root is None:
        return None
    if not isinstance(root.data, dict) or not {*_CONTROL} & set(root.data):
        return Document(file, root, files=(file,))

    def problem(at: At, message: str) -> None:
        problems.append(Problem(file, root.line_at(at), path_text(at), message))

    before = len(problems)
    if "extends" not in root.data:
        problem(("override",), "goes with extends, which is not here")
        return None
    base_path = _base(root.data["extends"][1].plain(), path, chain, problem)
    base = _read(str(base_path), base_path, problems, (*chain, path.resolve())) if base_path else None
    overrides = _overrides(root, problem)
    if base is None or overrides is None:
        return None
    if not isinstance(base.root.data, dict):
        problems.append(Problem(base.file, 1, "", f"is {show(base.root.plain())}, wanted a mapping"))
    return _merge(root, base, file, overrides, problem) if len(problems) == before else None


def _base(given: Any, path: Path, chain: Sequence[Path], problem: Any) -> Path | None:
    if not isinstance(given, str) or not given:
        problem(("extends",), f"is {show(given)}, wanted {WOOTZ} or the path of a manifest")
        return None
    found = SHIPPED if given == WOOTZ else path.parent / given
    round_trip = [*chain, path.resolve()]
    if found.resolve() in round_trip:
        circle = [*round_trip[round_trip.index(found.resolve()) :], found]
        problem(("extends",), f"goes in a circle: {' -> '.join(p.name for p in circle)}")
        return None
    if len(round_trip) > _MOST:
        problem(
            ("extends",), f"is the {len(round_trip)}th in a row; at most {_MOST} manifests extend each other"
        )
        return None
    if not found.is_file():
        beside = [WOOTZ, *sorted(p.name for p in found.parent.glob("*.yaml") if p != path)]
        problem(("extends",), f"no such manifest: {show(given)}{near(given, beside)}")
        return None
    return found


def _overrides(root: Node, problem: Any) -> dict[str, int] | None:
    """section.name, or "skips" -> its place in the list."""
    given = root.data["override"][1].plain() if "override" in root.data else []
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        problem(("override",), f"is {show(given)}, wanted a list of section.name, as kernels.copy")
        return None
    return {each: i for i, each in enumerate(given)}


def _merge(root: Node, base: Document, file: str, overrides: Mapping[str, int], problem: Any) -> Document:
    mine, theirs = root.data, base.root.data
    _explain_overrides(root, base, overrides, problem)
    sections: dict[str, tuple[int, Node]] = {k: v for k, v in mine.items() if k not in _CONTROL}
    origins: dict[At, str] = {(k,): file for k in sections}
    for section in NAMED:
        own, taken = _entries(mine, section), _entries(theirs, section)
        if own is None or taken is None:  # what is no mapping, the schema refuses
            continue
        if section == PROFILES:
            taken = _frozen({n: e for n, e in taken.items() if n != DEFAULT}, theirs)
            own = _frozen({**_default(own, root), **own}, mine)
        for name in (n for n in own if n in taken and f"{section}.{n}" not in overrides):
            where = f"{Path(base.file_of((section, name))).name}:{taken[name][0]}"
            hint = f"choose another name, or list {section}.{name} under override"
            problem((section, name), f"{where} has a {section[:-1]} of this name: {hint}")
        line = mine[section][0] if section in mine else root.line
        sections[section] = (line, Node(line, {**taken, **own}))
        origins |= {(section, n): base.file_of((section, n)) for n in taken if n not in own}
    _join_skips(sections, origins, mine, base, SKIPS in overrides)
    whole = Node(root.line, sections)
    overridden = frozenset(o.partition(".")[2] for o in overrides if o.startswith(f"{KERNELS}."))
    return Document(file, whole, origins, overridden, (file, *base.files))


def _entries(sections: Mapping[str, tuple[int, Node]], section: str) -> dict[str, tuple[int, Node]] | None:
    body = sections[section][1].data if section in sections else {}
    body = {} if body is None else body
    return body if isinstance(body, dict) else None


def _default(own: Mapping[str, Any], root: Node) -> dict[str, tuple[int, Node]]:
    """The profile that a manifest has which names none."""
    return {} if DEFAULT in own else {DEFAULT: (root.line, Node(root.line, {}))}


def _frozen(
    profiles: Mapping[str, tuple[int, Node]], sections: Mapping[str, tuple[int, Node]]
) -> dict[str, tuple[int, Node]]:
    """Profiles that say which kernels they have: all that their own manifest has, where they do not."""
    kernels = list(_entries(sections, KERNELS) or ())
    made = {}
    for name, (line, node) in profiles.items():
        if isinstance(node.data, dict) and KERNELS not in node.data:
            names = Node(node.line, [Node(node.line, kernel) for kernel in kernels])
            node = Node(node.line, {**node.data, KERNELS: (node.line, names)})
        made[name] = (line, node)
    return made


def _join_skips(
    sections: dict[str, tuple[int, Node]], origins: dict[At, str], mine: Mapping[str, Any], base: Document,
    dropped: bool,
) -> None:  # fmt: skip
    theirs = base.root.data.get(SKIPS)
    taken = theirs[1].data if theirs and not dropped and isinstance(theirs[1].data, list) else []
    own = mine[SKIPS][1].data if SKIPS in mine else []
    if isinstance(own, list):
        line = mine[SKIPS][0] if SKIPS in mine else 1
        sections[SKIPS] = (line, Node(line, [*taken, *own]))
        origins.update({(SKIPS, i): base.file_of((SKIPS, i)) for i in range(len(taken))})


def _explain_overrides(root: Node, base: Document, overrides: Mapping[str, int], problem: Any) -> None:
    """What is listed and cannot be meant."""
    known = {SKIPS} | {f"{s}.{n}" for s in NAMED for n in _entries(base.root.data, s) or ()}
    for each, i in overrides.items():
        section, _, name = each.partition(".")
        own = _entries(root.data, section) if section in NAMED else None
        if each not in known:
            problem(("override", i), f"{show(each)} is not in {Path(base.file).name}{near(each, known)}")
        elif each != SKIPS and (own is None or name not in own):
            problem(
                ("override", i), f"{show(each)} is not in this manifest: leave it out, or write the entry"
            )
