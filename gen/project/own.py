"""What a project's manifest says of a kernel that is its own. Plain data, which travels between processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..manifest.problems import Path as At
from ..plan import name

if TYPE_CHECKING:
    from ..manifest.reader import Declared, KernelSpec


class ProjectError(ValueError):
    """A project's own file, or code of it, that cannot be used: file, line, what was wanted, what came."""


@dataclass(frozen=True)
class Source:
    """A hand-written source of one backend, and how its entry points are launched. text: with the project's
    headers in it. symbol: a pattern with {dtype}, {format} and options in braces. args: (name, type,
    role)."""

    file: str
    text: str
    symbol: str
    args: tuple[tuple[str, str, str], ...]
    block: tuple[int, int, int]
    grid: tuple[Any, Any, Any]
    shared: Any = 0
    when: tuple[Any, ...] = ()
    workspace: Any = 0


@dataclass(frozen=True)
class Written:
    """A hand-written kernel: what it takes and gives, as the manifest declares it, and a source for each
    backend that it has."""

    body: Mapping[str, Any]
    sources: Mapping[str, Source]


@dataclass(frozen=True)
class Own:
    """The files of a kernel. root: folder of the manifest, absolute; file: the kernel's in the DSL, relative
    to it, or "". check: text of the reference. digest: of the entry and of every file; equal digests of one
    root are equal kernels. files: absolute paths of what was read."""

    root: str
    file: str
    digest: str
    check: str = field(default="", repr=False, compare=False)
    files: tuple[str, ...] = field(default=(), repr=False, compare=False)
    written: Written | None = field(default=None, repr=False, compare=False)

    @property
    def path(self) -> Path:
        """The kernel's file in the DSL."""
        return Path(self.root) / self.file

    def check_record(self, kernel: str) -> dict[str, Any]:
        """The reference, as the index has files: path in the artifact folder, bytes, sha256."""
        data = self.check.encode()
        return {
            "file": name.check(kernel),
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }


Say = Callable[[At, str], None]
"""Takes a problem: path inside the kernel's entry, message."""


@dataclass(frozen=True)
class Readers:
    """What reads a project's own kernels. own(kernel, its entry, the manifest that has it, say) -> Own;
    declared(kernel) -> what its file declares, or ProjectError."""

    own: Callable[[KernelSpec, Mapping[str, Any], Path, Say], Own | None]
    declared: Callable[[KernelSpec], Declared]
