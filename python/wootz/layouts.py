"""The layouts that a quantised operand may have: how they are told apart, and the arrays of each."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import ArgumentError, ArtifactError, FormatError
from .formats import Descriptor

__all__ = [
    "check_element",
    "check_layout",
    "field_shapes",
    "layout_of",
    "made_fields",
    "make",
    "tensor_class",
]

Fields = tuple[tuple[str, str, tuple[int, ...]], ...]
"""(field, dtype, shape) of each array, in the order of kernel arguments."""

_NAMES = {"quantised": "natural", "packed": "packed", "tiled": "tiled"}
_MARKS = {"units": "packed", "tiles": "tiled"}
_CONVERT = {
    ("packed", "natural"): "wootz.prepack({})",
    ("natural", "packed"): "wootz.unpack({})",
    ("tiled", "natural"): "wootz.tile({})",
    ("natural", "tiled"): "wootz.untile({})",
    ("packed", "tiled"): "wootz.prepack(wootz.untile({}))",
    ("tiled", "packed"): "wootz.tile(wootz.unpack({}))",
}
"""How a tensor of the second layout gets the first one."""

_CLASSES = {"natural": "QuantizedTensor", "packed": "PackedTensor", "tiled": "TiledTensor"}


def layout_of(tensor: Any) -> str:
    """ "natural", "packed" or "tiled", of anything with fields."""
    named = getattr(tensor, "layout", None)
    if isinstance(named, str):
        return named
    return next((layout for field, layout in _MARKS.items() if field in tensor.fields), "natural")


def check_layout(name: str, kind: str, tensor: Any, format: str, kernel: str) -> None:
    """Raises ArgumentError for what is no tensor, or not in the layout of the operand's kind."""
    wanted = _NAMES[kind]
    if not hasattr(tensor, "fields") or not hasattr(tensor, "format"):
        made = _CONVERT.get((wanted, "natural"), "{}").format(f"wootz.quantize(..., {format!r})")
        raise ArgumentError(f"{name} is a {type(tensor).__name__}; want a {_CLASSES[wanted]}: {made}")
    found = layout_of(tensor)
    if found != wanted:
        convert = _CONVERT.get((wanted, found), f"a {_CLASSES[wanted]}").format(name)
        raise ArgumentError(
            f"{name} is in the {found} layout; {kernel} takes the {wanted} one there: pass {convert}"
        )


def check_element(name: str, format: Any, element: str) -> None:
    """For operands whose format is their own. Raises FormatError unless its tiles hold this element, and no
    scale of the whole tensor.
    """
    found = importlib.import_module(".formats.tiles", __package__).scaling(format)
    if found.element != element or found.globally:
        raise FormatError(
            f"{name} has format {getattr(format, 'name', format)} with elements {found.element}; "
            f"the kernel takes {element} there, with no scale of the whole tensor"
        )


def _natural(format: Descriptor, shape: tuple[int, ...]) -> Fields:
    *bank, n, k = shape
    fields = format.layout.fields
    return tuple((each.name, each.dtype, (*bank, *format.field_shape(each, (n, k)))) for each in fields)


def _packed(format: Descriptor, shape: tuple[int, ...]) -> Fields:
    *bank, n, k = shape
    packing = importlib.import_module(".formats.packed", __package__).Packing.of(format)
    levels = [each for each in format.layout.fields if each.name in packing.tensors]
    return (
        ("units", "u8", (*bank, *packing.units((n, k)))),
        *((each.name, each.dtype, (*bank, *format.field_shape(each, (n, k)))) for each in levels),
    )


def _tiled(format: Descriptor, shape: tuple[int, ...]) -> Fields:
    found = importlib.import_module(".formats.tiles", __package__).field_shapes(format, shape)
    return tuple((name, dtype, extents) for name, (dtype, extents) in found.items())


_FIELDS = {"quantised": _natural, "packed": _packed, "tiled": _tiled}


def field_shapes(kind: str, format: Descriptor, shape: tuple[int, ...]) -> Fields:
    """The arrays of a tensor of this shape. Raises ArtifactError when there is no such layout."""
    try:
        return _FIELDS[kind](format, shape)
    except ValueError as error:
        raise ArtifactError(f"a {_NAMES[kind]} tensor of shape {list(shape)}: {error}") from error


def tensor_class(kind: str) -> type:
    """The class of a kind's tensors."""
    module, name = _MODULES[kind]
    found: type = getattr(importlib.import_module(module, __package__), name)
    return found


def made_fields(kind: str) -> tuple[str, ...]:
    """The fields that a kernel with such an output writes, where the format has them; the others are handed
    on. None of an array."""
    return _MADE[kind]


def make(kind: str, format: Descriptor, shape: tuple[int, ...], fields: dict[str, Any]) -> Any:
    """A tensor of the kind. Raises what its class raises."""
    return tensor_class(kind)(format, shape, fields)


_MADE: dict[str, tuple[str, ...]] = {
    "array": (),
    "quantised": ("codes", "scale", "scale1", "scale2", "zero"),
    "packed": ("units",),
    "tiled": ("codes", "tiles"),
}
_MODULES = {
    "quantised": (".formats", "QuantizedTensor"),
    "packed": (".formats.packed", "PackedTensor"),
    "tiled": (".formats.tiles", "TiledTensor"),
}
