"""The shards of one build -> one folder, byte for byte what one machine would have built."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..build import index
from ..emit import provenance
from ..emit.provenance import BuildError
from ..plan import name
from ..toolchain import find as toolchain
from . import budgets, overweight

_SAME = {
    "of": "of a build of another number of shards",
    "sources": "from another manifest, request or generator",
    "split": "of another split: its machine had another cost file",
    "evidence": "with other evidence",
    "tuning": "with other selection tables",
    "budgets": "from a manifest with other budgets",
}
"""What all shards agree in, and what it means where one does not."""


class MergeError(BuildError):
    """Folders that are not the shards of one build: it names them."""


@dataclass(frozen=True)
class Part:
    """A shard's folder, its whole index, and what that says of the shard."""

    folder: Path
    index: Mapping[str, Any]
    shard: Mapping[str, Any]


def merge(folders: Sequence[Path], out: Path) -> int:
    """Put shards together in `out`, which must not hold anything yet; gives the number of cells.

    MergeError for shards that do not belong together, one that is missing, damaged or given twice, and a cell
    or file that two have differently; BuildError as `index.read` does, and where `out` cannot be written.
    A merge that fails, or is interrupted, leaves nothing in `out`, and there is no index before its end.
    """
    parts = [_part(folder) for folder in folders]
    _agree(parts)
    compilers = _compilers(parts)
    sections = {section: _records(parts, section) for section in index.SECTIONS}
    files = _files(parts)
    lines = list(index.lines(compilers, sections))
    provenance.require_empty(out)
    limits, _ = budgets.read(parts[0].shard["budgets"])
    if over := overweight.check(limits, lambda path: files[path] / path, sections, lines):
        raise MergeError("; ".join(f"{what}: {problem}" for what, problem in over.items()))
    with _all_or_nothing(out, (*files, name.INDEX)):
        for path, folder in files.items():
            provenance.copy(folder / path, out / path)
        provenance.write_lines(out / name.INDEX, lines)
    return len(sections["cells"])


def _part(folder: Path) -> Part:
    found = index.read(folder / name.INDEX)
    shard = found.get("shard")
    if shard is None:
        raise MergeError(f"{folder}: is a whole build, not a shard of one; build it with --shard i/n")
    if not _says_which(shard):
        raise MergeError(f"{folder}: its index does not say which shard it is; build it again")
    if found.get("generator") != __version__:
        raise MergeError(f"{folder}: was built by wootz {found.get('generator')}, this is {__version__}")
    try:
        problems = index.validate(folder)
    except (KeyError, TypeError, AttributeError) as error:
        problems = [f"its index lacks {error}"]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise MergeError(f"{folder}: is damaged: {problems[0]}{more}; build this shard again")
    return Part(folder, found, shard)


def _says_which(shard: Any) -> bool:
    if not isinstance(shard, dict) or not {"number", *_SAME} <= shard.keys():
        return False
    number, of = shard["number"], shard["of"]
    return type(number) is type(of) is int and 1 <= number <= of and isinstance(shard["budgets"], dict)


def _agree(parts: Sequence[Part]) -> None:
    """All shards of one build, each once."""
    if not parts:
        raise MergeError("no shard was given; wanted the folder of each")
    first = parts[0]
    for part in parts[1:]:
        for key, meaning in _SAME.items():
            if part.shard[key] != first.shard[key]:
                raise MergeError(f"{part.folder}: was built {meaning} than {first.folder}; build both alike")
    seen: dict[int, Path] = {}
    for part in parts:
        number = part.shard["number"]
        if number in seen:
            raise MergeError(
                f"{part.folder}: is shard {number}, which {seen[number]} is, too; give each once"
            )
        seen[number] = part.folder
    of = first.shard["of"]
    missing = [str(number) for number in range(1, of + 1) if number not in seen]
    if missing:
        raise MergeError(
            f"of {of} shards {', '.join(missing)} {_are(missing)} missing; give the folders of all"
        )


def _are(things: Sequence[str]) -> str:
    return "are" if len(things) > 1 else "is"


def _compilers(parts: Sequence[Part]) -> dict[str, str]:
    """Of all shards; not every shard needs every compiler."""
    found: dict[str, tuple[str, Path]] = {}
    for part in parts:
        for tool, version in part.index["compilers"].items():
            known, where = found.setdefault(tool, (version, part.folder))
            if known != version:
                raise MergeError(
                    f"{part.folder}: was compiled by {tool} {version}, {where} by {known}; "
                    "build both with the same compiler"
                )
    return {tool: found[tool][0] for tool in toolchain.VERSIONED if tool in found}


def _records(parts: Sequence[Part], section: str) -> list[Mapping[str, Any]]:
    """The union, which agrees."""
    found: dict[str, tuple[Mapping[str, Any], Path]] = {}
    for part in parts:
        for record in part.index[section]:
            known, where = found.setdefault(record["key"], (record, part.folder))
            if known != record:
                raise MergeError(
                    f"{section[:-1]} {record['key']}: differs between {where} and {part.folder}; "
                    "build both shards again"
                )
    return [record for record, _ in found.values()]


def _files(parts: Iterable[Part]) -> dict[str, Path]:
    """The folder that each file is taken from. Shards share no unit, but kernels, and so their references."""
    found: dict[str, tuple[str, Path]] = {}
    for part in parts:
        claims = [claim for cell in part.index["cells"] for claim in index.claims(cell)]
        claims += [claim for kernel in part.index["kernels"] for claim in index.check_claims(kernel)]
        for path, digest in claims:
            known, where = found.setdefault(path, (digest, part.folder))
            if known != digest:
                raise MergeError(
                    f"{path}: differs between {where} and {part.folder}; build both shards again"
                )
    return {path: folder for path, (_, folder) in found.items()}


@contextlib.contextmanager
def _all_or_nothing(out: Path, paths: Sequence[str]) -> Iterator[None]:
    """Removes these files of `out`, which was empty, where what writes them does not come to its end."""
    try:
        yield
    except BaseException:  # KeyboardInterrupt among them
        with contextlib.suppress(BuildError):
            for path in paths:
                provenance.remove(out / path)
        provenance.prune_folders(out, {(out / path).parent for path in paths})
        raise
