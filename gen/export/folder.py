"""Where an export goes: a folder that holds nothing of others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from ..emit import provenance
from .cell import ExportError


def write(out: Path, texts: Mapping[str, str], own: Collection[str]) -> None:
    """Write the files of an export. own: the names that an earlier one of the same kind may have left.

    Raises ExportError, before anything is written, where the folder holds another file, or is none.
    """
    if out.exists() and not out.is_dir():
        raise ExportError(f"--out {out}: is a file; name a folder")
    foreign = sorted(path.name for path in out.iterdir() if path.name not in own) if out.is_dir() else []
    if foreign:
        raise ExportError(f"--out {out}: holds {foreign[0]}, which no export wrote; name an empty folder")
    for name, text in texts.items():
        provenance.write(out / name, text)
