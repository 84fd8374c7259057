"""A kernel's entry in a project's manifest -> Own: its files read, and checked as far as nothing is run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..manifest.problems import Path as At
from ..manifest.problems import near, show
from ..manifest.reader import KernelSpec, choices
from ..variants.family import Family
from ..variants.formula import OPERATORS
from . import handwritten
from .check_file import check_problem
from .own import Own, ProjectError, Say, Source, Written
from .signature import constant, default_problem, formula_names, formula_problem, names_of, wrong_with

MAX_BYTES = 4 << 20
_SUFFIXES = {"cuda": ".cu", "cpu": ".cpp", "metal": ".metal"}
_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*"([^"]+)"')
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBERS = ("u32", "u64")


def own_of(spec: KernelSpec, body: Mapping[str, Any], manifest: Path, say: Say) -> Own | None:
    """The kernel's own files; None where the entry names none, or something is wrong with them."""
    given = [key for key in ("file", "source") if key in body]
    if not given:
        for key in (k for k in ("check", "operands", "output") if k in body):
            say((key,), f"goes with file or source: {spec.name} has neither")
        return None
    if len(given) == 2:
        say(("source",), "stands beside file: a kernel is written in the DSL, or by hand")
        return None
    reader = _Files(manifest.resolve().parent, say)
    check = reader.text(("check",), body["check"], ".py")
    beside = (reader.root / body["check"]).parent
    if check is not None and (wrong := check_problem(check, body["check"], beside)):
        reader.say(("check",), wrong)
    written = _written(reader, spec, body) if given == ["source"] else None
    if given == ["file"]:
        _read_beside(reader, body["file"])
    if reader.wrong or check is None:
        return None
    files = tuple(sorted(reader.read))
    return Own(str(reader.root), body.get("file", ""), reader.digest(body), check, files, written)


class _Files:
    """Reads the files of one kernel, inside the manifest's folder."""

    def __init__(self, root: Path, say: Say) -> None:
        self.root, self._say = root, say
        self.read: dict[str, bytes] = {}
        self.wrong = False

    def say(self, at: At, message: str) -> None:
        """A problem, after which there is no Own."""
        self.wrong = True
        self._say(at, message)

    def text(self, at: At, given: str, suffix: str) -> str | None:
        """The text of a file; None, and a problem, where there is none to be had."""
        if not given.isprintable() or {'"', "\\"} & {*given}:
            self.say(at, f"{show(given)} holds a character that a #line cannot have: rename the file")
            return None
        path = (self.root / given).resolve()
        if Path(given).is_absolute() or not path.is_relative_to(self.root):
            self.say(
                at, f"{show(given)} is outside of the manifest's folder {self.root}: give a path below it"
            )
        elif not path.is_file():
            beside = sorted(p.name for p in path.parent.glob(f"*{suffix}")) if path.parent.is_dir() else []
            self.say(at, f"{show(given)}: no such file in {self.root}{near(path.name, beside)}")
        elif path.suffix != suffix:
            self.say(at, f"{show(given)} ends in {show(path.suffix)}, wanted {suffix}")
        else:
            return self._decoded(at, given, path)
        return None

    def _decoded(self, at: At, given: str, path: Path) -> str | None:
        try:
            data = path.read_bytes()
            if len(data) > MAX_BYTES:
                self.say(at, f"{show(given)} has {len(data)} bytes, at most {MAX_BYTES} are read")
                return None
            self.read[str(path)] = data
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.say(at, f"{show(given)} is not UTF-8: byte {error.start}; save it as UTF-8")
        except OSError as error:
            self.say(at, f"{show(given)} cannot be read: {error.strerror}")
        return None

    def digest(self, body: Mapping[str, Any]) -> str:
        """Of the entry and of everything read."""
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode())
        for path, data in sorted(self.read.items()):
            digest.update(f"\0{Path(path).relative_to(self.root)}\0".encode() + data)
        return digest.hexdigest()


def _read_beside(reader: _Files, file: str) -> None:
    """A kernel file, and those that it may import."""
    if reader.text(("file",), file, ".py") is None:
        return
    for beside in sorted((reader.root / file).resolve().parent.glob("*.py")):
        reader.text(("file",), str(beside.relative_to(reader.root)), ".py")


# Hand-written


def _written(reader: _Files, spec: KernelSpec, body: Mapping[str, Any]) -> Written | None:
    """What is declared and written; None, and problems, where the two do not go together."""
    declared = handwritten.declared(Written(body, {}), spec.name, tuple(spec.options.items()))
    for scalar in declared.scalars:
        if wrong := default_problem(scalar):
            reader.say(("scalars", scalar.name, "default"), wrong)
            return None
    if wrong := wrong_with(declared):
        reader.say((), wrong)
        return None
    numbers = names_of(declared) | {scalar.name for scalar in declared.scalars}
    for name, formula in declared.extents.items():
        if wrong := formula_problem(formula, numbers):
            reader.say(("extents", name), wrong)
    sources = {}
    for backend, entry in body["source"].items():
        at = ("source", backend, "file")
        text = reader.text(at, entry["file"], _SUFFIXES[backend])
        whole = "".join(_inlined(reader, at, entry["file"], text or "", set()))
        sources[backend] = _source(declared, spec, body, backend, whole, reader.say)
    return Written(body, sources)


def _inlined(reader: _Files, at: At, file: str, text: str, seen: set[str]) -> Iterator[str]:
    """The lines of a file, each header of the project in place of the first line that includes it."""
    seen.add(file)
    yield f'#line 1 "{file}"\n'
    for number, line in enumerate(text.splitlines(), 1):
        included = _INCLUDE.match(line)
        beside = (reader.root / file).parent / included[1] if included else None
        if included is None or beside is None or not beside.is_file():
            once = re.match(r"[ \t]*#[ \t]*pragma[ \t]+once\b", line)
            yield "\n" if once else line + "\n"
            continue
        path = beside.resolve()
        if not path.is_relative_to(reader.root):
            reader.text(at, included[1], path.suffix)
            yield line + "\n"
            continue
        header = str(path.relative_to(reader.root))
        if header not in seen:
            inner = reader.text(at, header, path.suffix)
            yield from _inlined(reader, at, header, inner or "", seen)
        yield f'#line {number + 1} "{file}"\n'


def _source(
    declared: Family, spec: KernelSpec, body: Mapping[str, Any], backend: str, text: str, say: Say
) -> Source:
    entry, at = body["source"][backend], ("source", backend)
    known = formula_names(declared)
    block = _three(entry.get("block", 1))
    grid = _three(entry["grid"])
    formulas: dict[At, Any] = {
        **{("grid", i): each for i, each in enumerate(grid)},
        **{("when", i): each for i, each in enumerate(entry.get("when", ()))},
        ("shared",): entry.get("shared", 0),
        ("workspace",): entry.get("workspace", 0),
    }
    for where, formula in formulas.items():
        if wrong := formula_problem(formula, known) or _launch_problem(formula, _LEAST[str(where[0])]):
            say((*at, *where[:1]), wrong)
    where = (*at, "args") if "args" in entry else ("args",)
    args = tuple(
        _args(declared, entry.get("args", body.get("args")), bool(entry.get("workspace")), where, say)
    )
    pattern = entry.get("symbol", body.get("symbol", "{kernel}_{dtype}"))
    _check_symbols(spec, pattern, (*at, "symbol") if "symbol" in entry else ("symbol",), say)
    if backend == "cpu" and block != (1, 1, 1):
        say((*at, "block"), "is for GPUs: on the CPU the function is called once a block")
    return Source(
        entry["file"], text, pattern, args, block, grid, entry.get("shared", 0),
        tuple(entry.get("when", ())), entry.get("workspace", 0),
    )  # fmt: skip


_LEAST = {"grid": 1, "when": 1, "shared": 0, "workspace": 0}
"""The least value of each launch formula with which anything is launched."""


def _launch_problem(formula: Any, least: int) -> str | None:
    value = constant(formula)
    return None if value is None or value >= least else f"is always {value}, wanted {least} or more"


def _three(given: Any) -> tuple[Any, Any, Any]:
    """One extent, or up to three."""
    if not isinstance(given, list) or (len(given) == 3 and given[0] in OPERATORS):
        given = [given]  # one formula
    x, y, z = (*given, 1, 1, 1)[:3]
    return x, y, z


def _args(declared: Family, given: Any, workspace: bool, at: At, say: Say) -> Iterator[tuple[str, str, str]]:
    """(name, type, role) of each parameter: as declared, or operands, output, extents, scalars in order."""
    operands = {each.name: each for each in declared.operands}
    scalars = {each.name: each.type for each in declared.scalars}
    written = {declared.output.name} | {n for n, each in operands.items() if each.updated}
    tensors = {
        n for n, each in {**operands, declared.output.name: declared.output}.items() if each.kind != "array"
    }
    extents = [*dict.fromkeys(a for o in declared.operands for a in o.shape if isinstance(a, str))]
    numbers = {
        *extents,
        *declared.extents,
        *(n for n in formula_names(declared) if n.startswith("has_")),
        "sms",
    }
    if given is None:
        if tensors:
            say(
                (),
                f"args is missing: {sorted(tensors)[0]} is a tensor; say which fields are passed, as w.codes",
            )
            return
        given = [*dict.fromkeys((*operands, declared.output.name)), *extents, *scalars]
    names = [next(iter(each)) if isinstance(each, dict) else each for each in given]
    needed = [n for n, each in operands.items() if not each.optional] + [declared.output.name]
    if left_out := [n for n in needed if n not in {name.partition(".")[0] for name in names}]:
        say(
            at,
            f"leaves {left_out[0]} out: pass {'a field of it' if left_out[0] in tensors else 'it'}",
        )
    for i, each in enumerate(given):
        name, kind = next(iter(each.items())) if isinstance(each, dict) else (each, "")
        base, _, part = name.partition(".")
        if name in names[:i]:
            say((*at, i), f"{name} is there twice")
        elif base in {*operands, declared.output.name} and bool(part) == (base in tensors) and not kind:
            yield name, "ptr", "out" if base in written else "in"
        elif name == "workspace" and workspace and not kind:
            yield name, "ptr", "workspace"
        elif name in scalars and kind in ("", scalars[name]):
            yield name, scalars[name], "scalar"
        elif name in numbers and kind in ("", *_NUMBERS):
            yield name, kind or "u32", "shape"
        else:
            say(
                (*at, i),
                _no_argument(
                    name, kind, base in tensors, [*operands, declared.output.name, *sorted(numbers), *scalars]
                ),
            )


def _no_argument(name: str, kind: str, tensor: bool, known: list[str]) -> str:
    if tensor:
        return f"{show(name)} is a tensor: pass a field of it, as {name.partition('.')[0]}.codes"
    if name in known:
        return (
            f"{name} cannot be of type {show(kind)}: extents are u32 or u64, a scalar is what it is declared"
        )
    return f"no operand, extent or scalar is named {show(name)}{near(name, known)}"


def _check_symbols(spec: KernelSpec, pattern: str, at: At, say: Say) -> None:
    """Every cell has a symbol of its own, which C takes."""
    seen: dict[str, str] = {}
    for dtype in spec.dtypes:
        for chosen in choices(spec.options, {}):
            try:
                found = handwritten.spelt(pattern, spec, "format", dtype, chosen)
            except ProjectError as error:
                say(at, str(error))
                return
            cell = ".".join((dtype, *chosen.values()))
            if not _SYMBOL.fullmatch(found) or found.startswith("wootz_"):
                say(at, f"gives {show(found)}, wanted an identifier that does not begin with wootz_")
                return
            if found in seen:
                say(at, f"gives {found} for {seen[found]} and for {cell}: put {{dtype}} and options into it")
                return
            seen[found] = cell
