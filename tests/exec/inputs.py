"""Sizes and operands: what a kernel's entries are launched on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from lanes import evaluate
from wootz import checks
from wootz.broadcast import broadcast
from wootz.formats import Descriptor
from wootz.staging import underlying

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


def arguments(given: Mapping[str, Any], size: Size, *out: tuple[str, Array]) -> dict[tuple[str, str], Any]:
    """What an entry's arguments may ask for, by (name, role). given: by operands' and scalars' names; out:
    the arrays to write to."""
    values: dict[tuple[str, str], Any] = {(axis, "shape"): extent for axis, extent in size.items()}
    values.update({(name, "out"): array for name, array in out})
    for name, value in given.items():
        if hasattr(value, "fields"):  # a quantised tensor, in any layout
            for field, array in value.fields.items():
                values[f"{name}.{field}", "in"] = array
                values[f"{name}.{field}", "pitch"] = array.shape[-1]
        elif isinstance(value, np.ndarray) or value is None:
            values[name, "in"] = value
        else:
            values[name, "scalar"] = value
    return values


def absent(args: Iterable[Any], given: Mapping[str, Any]) -> dict[tuple[str, str], None]:
    """The fields of tensors that a call leaves out, which `given` has as None. args: an entry's."""
    fields = [(a.name, a.role) for a in args if a.role == "in" and "." in a.name]
    return {(name, role): None for name, role in fields if given[name.partition(".")[0]] is None}


def completed(kernel: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a call gives and what it leaves out: scalars' defaults (words as numbers), None for arrays."""
    values = {o["name"]: None for o in kernel["operands"] if o.get("optional")}
    values |= {s["name"]: s["default"] for s in kernel.get("scalars", ())} | dict(given)
    for scalar in kernel.get("scalars", ()):
        if isinstance(values[scalar["name"]], str):
            values[scalar["name"]] = scalar["choices"].index(values[scalar["name"]])
    return values


def names(kernel: Mapping[str, Any], given: Mapping[str, Any], size: Size) -> Size:
    """What formulas may name: shapes, scalars that are whole numbers, has_<optional operand>."""
    scalars = {name: int(v) for name, v in given.items() if isinstance(v, (int, float)) and v % 1 == 0}
    optional = [o["name"] for o in kernel["operands"] if o.get("optional")]
    if kernel.get("broadcasts"):
        strided = {n: (_strides(given[n]), underlying(given[n])[1]) for n in strided_names(kernel)}
        shapes = {o["name"]: given[o["name"]].shape for o in kernel["operands"]}
        size = {**size, **broadcast(shapes, strided)[1]}
    known = {**scalars, **{f"has_{name}": int(given[name] is not None) for name in optional}, **size}
    return {**known, **{name: evaluate(each, known) for name, each in kernel.get("extents", {}).items()}}


def strided_names(kernel: Mapping[str, Any]) -> list[str]:
    """Operands that need not be dense; entries have the memory that they lie in."""
    return [o["name"] for o in kernel["operands"] if o.get("strided")]


def _strides(array: Array) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def planted(old: str, new: str) -> Callable[[str], str]:
    """What plants a mistake in a text. ValueError, which no test waits for, where that lacks the place."""

    def change(text: str) -> str:
        if old not in text:
            raise ValueError(f"no {old!r} in the text")
        return text.replace(old, new)

    return change
