"""Sizes and operands: what a kernel's entries are launched on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from wootz import checks
from wootz.formats import Descriptor

Array = npt.NDArray[Any]
Size = dict[str, int]

MOST_WORK = 400_000
"""m * n * k of the largest size: a launch of a tenth of a second."""


def sizes(kernel: str, fmt: Descriptor | None, brief: bool = False) -> list[Size]:
    """What wootz verify runs, but for its largest, and small ones that do more. "sms", which grids may depend
    on, is 1 to 3. brief: few, for the sanitizers.
    """
    check = checks.check(kernel)
    if brief:
        return check.brief(fmt)
    common = [size for size in check.shapes(fmt) if math.prod(size.values()) <= MOST_WORK]
    return [*({"sms": 1 + i % 3, **size} for i, size in enumerate(common)), *check.small(fmt)]


def arguments(given: Mapping[str, Any], size: Size, out: tuple[str, Array]) -> dict[tuple[str, str], Any]:
    """What an entry's arguments may ask for, by (name, role)."""
    values: dict[tuple[str, str], Any] = {(axis, "shape"): extent for axis, extent in size.items()}
    values[out[0], "out"] = out[1]
    for name, value in given.items():
        if hasattr(value, "fields"):  # a quantised tensor, in any layout
            for field, array in value.fields.items():
                values[f"{name}.{field}", "in"] = array
                values[f"{name}.{field}", "pitch"] = array.shape[-1]
        else:
            values[name, "in"] = value
    return values
