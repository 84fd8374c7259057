"""The Family of a kernel, wherever it is from: the generator's kernels, a project's file, a declaration."""

from __future__ import annotations

from ..manifest.reader import KernelSpec
from ..variants.family import Family, family
from . import dsl_file, handwritten


def family_of(kernel: KernelSpec) -> Family:
    """Raises UnknownKernel for a kernel that has no file, ProjectError for a project's that is wrong."""
    own = kernel.own
    if own is None:
        return family(kernel.name)
    if own.written is None:
        return dsl_file.load(own)
    return handwritten.family(own, kernel.name, tuple(kernel.options.items()))
