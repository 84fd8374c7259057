"""The operands that a check gives: brought to a device, and what has to become of them there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layouts import made_fields
from .staging import Memory

__all__ = ["contents", "copied", "fetched", "moved", "read_only", "shareable", "short"]

_SHORT = {
    "uint8": "u8", "int8": "i8", "uint16": "u16", "float16": "f16", "float32": "f32", "int32": "i32",
    "uint32": "u32",
}  # fmt: skip


def short(array: NDArray[Any]) -> str:
    """The dtype of a tensor's field."""
    return _SHORT[array.dtype.name]


def moved(value: Any, dtype: str, where: Memory) -> Any:
    """A value of a check where the kernel runs: tensors field by field, numbers and names as they are."""
    if hasattr(value, "fields"):
        return value.map(lambda a: where.put(a, short(a)))
    return where.put(value, dtype) if isinstance(value, np.ndarray) else value


def copied(value: Any) -> Any:
    """An array or a tensor in memory of its own."""
    return value.map(np.copy) if hasattr(value, "fields") else value.copy()


def contents(value: Any) -> dict[str, bytes]:
    """The bytes of an array's elements, or of each field of a tensor."""
    if hasattr(value, "fields"):
        return {name: array.tobytes() for name, array in value.fields.items()}
    return {"": value.tobytes()}


def fetched(there: Any, value: Any, dtype: str, where: Memory) -> dict[str, bytes]:
    """The contents now of an operand on the device that was made of a value."""
    if hasattr(value, "fields"):
        parts = {name: short(array) for name, array in value.fields.items()}
        return {name: where.get(there.fields[name], part).tobytes() for name, part in parts.items()}
    return {"": where.get(there, dtype).tobytes()}


def read_only(signature: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """The given arrays and tensors that the kernel does not declare to write to."""
    written = {o["name"] for o in signature["operands"] if o.get("updated")} | {signature["output"]["name"]}
    arrays = (o["name"] for o in signature["operands"] if o["name"] not in written)
    return [n for n in arrays if isinstance(values.get(n), np.ndarray) or hasattr(values.get(n), "fields")]


def shareable(
    signature: Mapping[str, Any], values: Mapping[str, Any], types: Mapping[str, str], shape: tuple[int, ...]
) -> list[str]:
    """The operands that are arrays as the output is and whose very memory it may be, as the index has it."""
    alias, output = signature.get("alias"), signature["output"]
    in_place = output["name"] in values
    if not alias or in_place or made_fields(output.get("kind", "array")):
        return []
    names = [n for n in read_only(signature, values) if alias is True or n in alias]
    return [
        n
        for n in names
        if isinstance(values[n], np.ndarray)
        and types[n] == types[output["name"]]
        and values[n].shape == shape
        and values[n].flags.c_contiguous
        and values[n].size
    ]
