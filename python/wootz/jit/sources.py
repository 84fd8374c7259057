"""Which source of an artifact folder is compiled for a device that no binary fits: rules over the rows and
cells of the index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ArtifactError, NoKernelError
from ..modules import check_file
from ..select import Device, rank_sources

if TYPE_CHECKING:
    from ..kernel import Request
    from ..library import Library
    from .engine import Jit

__all__ = ["advice", "compilable", "find"]

Cell = Mapping[str, Any]
_AGAIN = "the index was built without what compiling needs: build it again"
_ADVICE = "wootz.load(jit=True) compiles {} with NVRTC (pip install 'wootz[jit]')"


def find(library: Library, request: Request, device: Device) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The cell whose source fits the device best, and, in place of a file of its own, the source's record
    with a recipe. Raises NoKernelError: jit is off, or there is no such source, or none that NVRTC takes;
    ArtifactError.
    """
    refused = []
    for cell, arch in _candidates(library, request, device):
        if why := _refusal(library, cell):
            refused.append(f"{cell['source']} is not compiled here: {why}")
        elif library.jit is None:
            raise NoKernelError(f"{_unserved(library, request, device)}; {_ADVICE.format(cell['source'])}")
        else:
            return cell, _record(library, library.jit, cell, arch)
    if library.jit is not None and not refused and device.kind == "cuda":
        refused.append("no source is for it either")
    raise NoKernelError("; ".join([_unserved(library, request, device), *refused]))


def compilable(library: Library, cell: Cell) -> bool:
    """Whether a cell's source is there and NVRTC takes it."""
    backends = {row["key"]: row["backend"] for row in library.targets}
    return backends.get(cell["target"]) == "cuda" and not _refusal(library, cell)


def advice(library: Library, cells: Sequence[Cell]) -> str:
    """For a message about cells without a binary: that their sources can be compiled, or nothing."""
    found = next((cell for cell in cells if compilable(library, cell)), None)
    return "" if found is None or library.jit else f"; {_ADVICE.format(found['source'])}"


def _candidates(library: Library, request: Request, device: Device) -> Iterator[tuple[dict[str, Any], str]]:
    for row, arch in rank_sources(library.targets, device):
        cell = library.index.find("cells", request.cell(row["key"]))
        if cell is not None and cell.get("source"):
            yield cell, arch


def _unserved(library: Library, request: Request, device: Device) -> str:
    return (
        f"{request.stem} has no binary for {device.describe()}; it is shipped for: "
        f"{library.shipped(request.stem)}"
    )


def _kind(library: Library, cell: Cell) -> Mapping[str, Any] | str:
    """The options of a cell's kind of source, or why it is not compiled."""
    kinds = library.index.header.get("nvrtc")
    found = kinds.get(cell.get("source_kind")) if isinstance(kinds, Mapping) else None
    return found if isinstance(found, (Mapping, str)) else _AGAIN


def _refusal(library: Library, cell: Cell) -> str:
    kind = _kind(library, cell)
    if isinstance(kind, str):
        return kind
    if cell.get("stub"):
        return "it is launched by a host stub"
    if not (library.folder(cell) / str(cell.get("source"))).exists():
        return f"{library.folder(cell)} was packed without sources"
    return ""


def _record(library: Library, jit: Jit, cell: Cell, arch: str) -> dict[str, Any]:
    from .compiler import OPTIONS
    from .engine import Recipe

    options = _kind(library, cell)
    if not isinstance(options, Mapping) or not {*options} <= OPTIONS:
        raise ArtifactError(
            f"{library.index.where} asks NVRTC for {options!r}, which this wootz does not know"
        )
    sizes = {"size": cell.get("source_size"), "sha256": cell.get("source_sha256")}
    file = check_file({"file": cell["source"], **sizes, "isa": ""})
    return {**file, "recipe": Recipe(jit, library.folder(cell), file, arch, options)}
