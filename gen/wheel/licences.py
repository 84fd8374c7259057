"""The licence texts that go into a wheel with what others wrote."""

from __future__ import annotations

from pathlib import Path

from ..provenance import BuildError
from . import sbom
from .shipped import Shipped

FOLDER = Path(__file__).resolve().parents[2] / "LICENSES"
"""In a checkout, and in an installed wheel, where it lies in the package."""

_TEXTS = {sbom.CUTLASS.name: "CUTLASS.txt"}


def texts(shipped: Shipped) -> dict[str, bytes]:
    """File name -> text, of what the binaries of an index hold: for `.dist-info/licenses` of a data wheel.
    BuildError where a text is not there."""
    inside = {part.name for group in sbom.groups(shipped) for part in group.parts}
    names = [file for part, file in sorted(_TEXTS.items()) if part in inside]
    try:
        return {name: (FOLDER / name).read_bytes() for name in names}
    except OSError as error:
        raise BuildError(f"{error.filename}: {error.strerror}; install wootz again") from error
