"""Finds the headers of CUTLASS, or installs the pinned release where there are none.

The order of the search: the folder named, the package in site-packages, then what an earlier build installed
into the user's cache. Another release than the pinned one is passed over, and said to be: the templates are
written against one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..lower import templates
from .install import cache_folder, install, site_packages
from .tool import Say, ToolchainError, is_readable

_PACKAGE = Path("cutlass_library/source")
_VERSION = Path("include/cutlass/version.h")
_FOLDERS = ("include", "tools/util/include")


@dataclass(frozen=True)
class Headers:
    """The headers of one release: the folders to search, and its version."""

    folders: tuple[str, ...]
    version: str


@cache
def pin() -> str:
    """The release that the templates are written against, from the file beside them."""
    text = (templates.FOLDERS[0] / "requirements.txt").read_text(encoding="utf-8")
    found = re.search(r"^nvidia-cutlass==([0-9.]+)$", text, re.M)
    if found is None:
        raise ToolchainError("cutlass/requirements.txt: pins no nvidia-cutlass==VERSION")
    return found[1]


def _installed() -> Path:
    return cache_folder() / f"cutlass-{pin()}"


def _roots() -> Iterator[Path]:
    yield from (folder / _PACKAGE for folder in site_packages())
    yield _installed() / _PACKAGE


def version_file(root: Path) -> Path:
    """The header that says which release a folder holds."""
    return root / _VERSION


def candidates(named: str = "") -> list[Path]:
    """Every copy of CUTLASS there is, in the order of the search; just the one named, where one is."""
    roots = [Path(named)] if named else _roots()
    return list(dict.fromkeys(root for root in roots if is_readable(root / _VERSION)))


def probe(root: Path) -> Headers:
    """The headers under a folder. ToolchainError where they do not say their version."""
    text = (root / _VERSION).read_text(encoding="utf-8", errors="replace")
    parts = [
        re.search(rf"^#define CUTLASS_{part} +(\d+)", text, re.M) for part in ("MAJOR", "MINOR", "PATCH")
    ]
    if None in parts:
        raise ToolchainError(f"{root / _VERSION}: does not say which CUTLASS it is")
    folders = (str((root / folder).resolve()) for folder in _FOLDERS)
    return Headers(tuple(folders), ".".join(part[1] for part in parts if part))


def _wrong(root: Path, headers: Headers) -> str | None:
    wanted = ".".join(pin().split(".")[:3])
    if headers.version == wanted:
        return None
    return f"{root}: CUTLASS {headers.version}; the templates are written against {wanted}"


def find(named: str, say: Say) -> Headers:
    """The pinned release. ToolchainError, or an installation, where there is none."""
    for root in candidates(named):
        headers = probe(root)
        problem = _wrong(root, headers)
        if problem is None:
            return headers
        if named:
            raise ToolchainError(problem)
        say(f"passed over: {problem}")
    if named:
        raise ToolchainError(f"WOOTZ_CUTLASS={named}: no CUTLASS there (no {_VERSION})")
    final, package = _installed(), f"nvidia-cutlass=={pin()}"
    say(f"no CUTLASS {pin()} on this machine: installing {package} into {final} (headers only)")
    advice = f"name a folder that holds {os.path.join(*_VERSION.parts)} in WOOTZ_CUTLASS"
    install("CUTLASS", package, ("--no-deps",), final, lambda f: is_readable(f / _PACKAGE / _VERSION), advice)
    return probe(final / _PACKAGE)
