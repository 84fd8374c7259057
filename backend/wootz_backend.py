"""The build backend: scikit-build-core's, and then the wheel's metadata in the order of names.

scikit-build-core writes what is in .dist-info/licenses and .dist-info/sboms as the file system lists it, so
that the same wheel would have other bytes on another file system.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from scikit_build_core.build import *  # noqa: F403  (the other hooks)
from scikit_build_core.build import build_wheel as _build_wheel

RECORD = "RECORD"


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, list[str] | str] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """PEP 517's hook; gives the wheel's file name."""
    name = _build_wheel(wheel_directory, config_settings, metadata_directory)
    put_in_order(Path(wheel_directory) / name)
    return name


def put_in_order(path: Path) -> None:
    """Rewrite a wheel with its files in the order of their names, .dist-info after all others and RECORD
    last; RECORD's lines have that order too."""

    def place(name: str) -> tuple[bool, bool, str]:
        folder, _, rest = name.partition("/")
        metadata = folder.endswith(".dist-info")
        return metadata, metadata and rest == RECORD, name

    temporary = path.with_suffix(".tmp")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(temporary, "w") as new:
        for info in sorted(old.infolist(), key=lambda info: place(info.filename)):
            data = old.read(info)
            if place(info.filename)[1]:
                lines = data.decode().splitlines(keepends=True)
                data = "".join(sorted(lines, key=lambda line: place(line.rsplit(",", 2)[0]))).encode()
            new.writestr(info, data)
    temporary.replace(path)
