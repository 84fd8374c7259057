"""The check of a kernel: ours by its name, or the file that its artifact folder ships beside it.

A shipped check is code: it is run by `wootz verify`, `bench` and `tune` alone, from the folder that they were
asked about, and only as the bytes that the folder's index names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from . import checks
from .errors import ArgumentError, ArtifactError
from .modules import check_file, read_artifact

__all__ = ["check_of"]

_FUNCTIONS = ("shapes", "operands", "expect")


def check_of(folder: Path | None, record: Mapping[str, Any]) -> checks.Check:
    """record: the kernel's of the index; folder: of the index. Raises ArtifactError for a shipped check that
    is missing, changed or cannot be run, ArgumentError for a kernel that has no check."""
    if record.get("check") is None or folder is None:
        if record["key"] not in checks.known():
            raise ArgumentError(
                f"{record['key']} has no reference: write python/wootz/checks/{record['key']}.py, "
                "or in a project name a file under check"
            )
        return checks.check(record["key"])
    file = check_file(record["check"], "isa")
    data, path = read_artifact(folder, file), str(folder / file["file"])
    module: Any = ModuleType(f"wootz_check_{record['key']}")
    module.__file__ = path
    try:
        exec(compile(data, path, "exec"), module.__dict__)
    except Exception as error:
        raise ArtifactError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    for name in _FUNCTIONS:
        if not callable(getattr(module, name, None)):
            raise ArtifactError(f"{path} has no function {name}; a check has {', '.join(_FUNCTIONS)}")
    return module  # type: ignore[no-any-return]
