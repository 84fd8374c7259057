"""Installed packages of artifacts, found by their entry points in the group `wootz.artifacts`.

An entry point's name is a library's, or LIBRARY.PART for a part of one: parts are opened as one library. Its
value is a package, of which it means the folder `artifacts`, or package:attribute, which is a folder or a
function that gives one. Nothing of a package is imported before it is asked for, and of the first kind only
what it lies in.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from .errors import ArtifactError, near
from .joined import Part

__all__ = ["FOLDER", "GROUP", "find", "installed", "unknown"]

GROUP = "wootz.artifacts"
FOLDER = "artifacts"


def installed() -> dict[str, list[str]]:
    """The owners of each library that is installed, by its name; nothing of them is opened."""
    found: dict[str, list[str]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        found.setdefault(_library(point), []).append(_owner(point))
    return found


def find(name: str) -> tuple[Part, ...]:
    """The parts of an installed library, in order of their names; () where there is none of that name.

    Case, and "-" or "_", make no difference. Raises ArtifactError: two distributions have an entry point of
    the same name; one that raises, or that leads to no folder.
    """
    wanted = _plain(name)
    mine = [each for each in entry_points(group=GROUP) if wanted in (_plain(each.name), _library(each))]
    mine.sort(key=lambda each: (_plain(each.name), _owner(each)))
    for one, other in itertools.pairwise(mine):
        if _plain(one.name) == _plain(other.name):
            raise ArtifactError(
                f"{_owner(one)} and {_owner(other)} both ship artifacts named {one.name!r}: uninstall one"
            )
    return tuple(Part(_owner(each), _folder(each)) for each in mine)


def unknown(name: str) -> str:
    """What to say of a name that is neither a package nor a folder."""
    known = list(installed())
    return (
        f"no installed package ships artifacts named {name!r}, and there is no folder of that name"
        f"{near(name, known)}; installed: {', '.join(known) or 'none'}"
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_]+", "-", name).lower()


def _library(point: EntryPoint) -> str:
    return _plain(point.name).partition(".")[0]


def _owner(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _folder(point: EntryPoint) -> Path:
    try:
        found = next((each for each in _folders(point) if each.is_dir()), None)
    except (Exception, SystemExit) as error:
        raise ArtifactError(
            f"{_owner(point)}: its entry point {point.name} = {point.value} cannot be used: "
            f"{type(error).__name__}: {error}; reinstall it, or report this to who ships it"
        ) from error
    if found is None:
        raise ArtifactError(
            f"{_owner(point)}: its entry point {point.name} = {point.value} leads to no folder of artifacts; "
            "reinstall it, or report this to who ships it"
        )
    return found


def _folders(point: EntryPoint) -> Iterator[Path]:
    """Where the folder may be: a package may be spread over several, as an editable install does."""
    if point.attr:
        yield _path(point.load())
        return
    spec = importlib.util.find_spec(point.module)
    locations: Iterable[str] = () if spec is None else spec.submodule_search_locations or ()
    yield from (Path(each) / FOLDER for each in locations)


def _path(value: Any) -> Path:
    """Raises TypeError for what is neither a path nor a function that gives one."""
    given = value() if callable(value) else value
    return Path(os.fspath(given))
