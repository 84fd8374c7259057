"""The references of a project's own kernels, which travel with what is built: `wootz verify` runs them from
the folder that it is asked about."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..emit import provenance
from ..manifest.reader import KernelSpec
from ..plan import name


def write(out: Path, kernels: Iterable[KernelSpec]) -> set[str]:
    """Put the references into an artifact folder, and delete those of kernels that are gone. Gives their
    paths in it."""
    own = {name.check(kernel.name): kernel.own.check for kernel in kernels if kernel.own}
    folder = out / name.CHECKS
    for path in folder.glob("*.py"):
        if f"{name.CHECKS}/{path.name}" not in own:
            provenance.remove(path)
    for file, text in own.items():
        provenance.write(out / file, text)
    provenance.prune_folders(out, [folder])
    return set(own)
