"""A report on disk: the page, a script for each unit, and the list of these files, by which a later report
knows what it may replace."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ..emit import provenance
from ..emit.provenance import BuildError

PAGE, LIST = "index.html", "files.txt"
_OWN = re.compile(rf"{re.escape(PAGE)}|units/(?!.*(?:^|/)\.)[^\\\0]+\.js")


def write(out: Path, files: Mapping[str, Callable[[], str]]) -> int:
    """Make `out` hold exactly these files (path -> what makes its text) and their list; gives how many
    changed. The page is the last. BuildError where `out` holds anything that no report wrote: nothing is
    written then."""
    before = _before(out)
    _list(out, before | set(files))
    ordered = sorted(files, key=lambda path: (path == PAGE, path))
    changed = sum(provenance.write(out / path, files[path]()) for path in ordered)
    stale = [out / path for path in sorted(before - set(files))]
    changed += sum(map(provenance.remove, stale))
    provenance.prune_folders(out, [path.parent for path in stale])
    _list(out, set(files))
    return changed


def _list(out: Path, paths: set[str]) -> None:
    provenance.write(out / LIST, "".join(f"{path}\n" for path in sorted(paths)))


def _before(out: Path) -> set[str]:
    """The files of an earlier report."""
    if out.exists() and not out.is_dir():
        raise BuildError(f"{out}: is no folder; choose another --out")
    there = {
        (Path(root) / file).relative_to(out).as_posix() for root, _, files in os.walk(out) for file in files
    }
    try:
        lines = (out / LIST).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, ValueError) as error:
        raise BuildError(f"{out / LIST}: cannot be read: {error}; choose another --out") from error
    own = {line for line in lines if _OWN.fullmatch(line)}
    if foreign := sorted(there - own - {LIST}):
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise BuildError(f"{out}: holds {foreign[0]}{more}, which no report wrote; choose another --out")
    return own & there
