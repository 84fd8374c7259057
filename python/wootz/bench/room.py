"""Whether a cell at a size has room on the CPU, before anything of it is drawn."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from ..errors import ArgumentError
from ..layouts import field_shapes
from ..signature import Binding, Signature
from ..staging import storage
from ..verify import operand_dtypes

__all__ = ["check", "memory", "wanted"]


def check(lib: Any, cell: Mapping[str, Any], size: Mapping[str, int]) -> None:
    """Raises ArgumentError, which names the bytes, where operands and output of one launch outgrow the
    memory of the machine."""
    need, room = wanted(lib, cell, size), memory()
    if need > room:
        extents = " ".join(f"{name}={n}" for name, n in size.items())
        raise ArgumentError(
            f"{cell['key']} at {extents} wants {need} bytes for operands and output, this machine has "
            f"{room}: choose smaller extents"
        )


def wanted(lib: Any, cell: Mapping[str, Any], size: Mapping[str, int]) -> int:
    """Bytes of the operands that a bench makes and of the output; what does not follow from the size counts
    as none."""
    record = lib.index.find("kernels", cell["kernel"])
    signature, types = Signature.parse(record), operand_dtypes(record, cell)
    binding = Binding(signature, {**signature.defaults, **size})
    name = cell.get("format")
    format = None if name in (None, "", "-") else lib.format(name)
    parts = [*(each for each in signature.operands if not each.optional), signature.output]
    return sum(_bytes(part, binding, format, types) for part in parts)


def memory() -> int:
    """Bytes of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _bytes(part: Any, binding: Binding, format: Any, types: Mapping[str, str]) -> int:
    try:
        shape = binding._extents(part.shape)
    except KeyError:
        return 0
    if part.kind == "array":
        return math.prod(shape) * storage(types[part.name]).itemsize
    fields = field_shapes(part.kind, format, shape)
    return sum(math.prod(extents) * storage(dtype).itemsize for _, dtype, extents in fields)
