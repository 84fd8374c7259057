"""What a wheel's .dist-info says of its artifacts: the bill of materials, and the licences of what others
wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..emit.provenance import BuildError
from . import archive, sbom, shipped

FOLDER = Path(__file__).resolve().parents[2] / "LICENSES"
"""In a checkout, and in an installed wheel, where it lies in the package."""

_TEXTS = {sbom.CUTLASS.name: "CUTLASS.txt"}


def files(index: Mapping[str, Any], name: str, version: str, licence: str = "") -> dict[str, bytes]:
    """Path in the .dist-info folder -> content, for a wheel that carries the artifacts of this index. Raises
    as `sbom.document` and `archive.epoch` do."""
    document = sbom.document(index, name, version, licence, time=archive.epoch())
    licences = {f"licenses/{file}": text for file, text in texts(index).items()}
    return {sbom.PATH.format(name=name): document, **licences}


def texts(index: Mapping[str, Any]) -> dict[str, bytes]:
    """File name -> licence text, of what the binaries of an index hold. BuildError where one is not there."""
    groups = sbom.groups(shipped.of(index, "the index"))
    inside = {part.name for group in groups for part in group.parts}
    names = [file for part, file in sorted(_TEXTS.items()) if part in inside]
    try:
        return {name: (FOLDER / name).read_bytes() for name in names}
    except OSError as error:
        raise BuildError(f"{error.filename}: {error.strerror}; install wootz again") from error
