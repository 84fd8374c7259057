"""Quantised tensors as custom ops take them: the tensors of their fields, the format's mark, the shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from ..arrays import LONG_NAMES
from ..errors import ArgumentError, DtypeError
from ..formats import Descriptor
from ..layouts import field_shapes, layout_of, tensor_class

__all__ = [
    "DTYPES",
    "KINDS",
    "assemble",
    "check_matrix",
    "flatten",
    "mark",
    "refuse_grad",
    "short_dtype",
    "torch_dtype",
]

_TORCH: dict[str, torch.dtype] = {
    short: getattr(torch, LONG_NAMES[short])
    for short in ("f16", "bf16", "f32", "e4m3", "e5m2", "i8", "u8", "i32", "bool")
}
DTYPES = {dtype: short for short, dtype in _TORCH.items()}

KINDS = {"natural": "quantised", "packed": "packed", "tiled": "tiled"}
"""The operand kind of each layout."""


def short_dtype(name: str, dtype: torch.dtype) -> str:
    """Raises DtypeError naming the argument."""
    if dtype not in DTYPES:
        known = ", ".join(str(each).removeprefix("torch.") for each in DTYPES)
        raise DtypeError(f"{name} has elements of type {dtype}; kernels take {known}: convert it")
    return DTYPES[dtype]


def torch_dtype(short: str) -> torch.dtype:
    return _TORCH[short]


def assemble(
    name: str, kind: str, format: Descriptor, shape: Sequence[int], tensors: Sequence[torch.Tensor]
) -> Any:
    """The quantised tensor of an operand's kind, unchecked: the kernel's call checks its fields. Raises
    ArgumentError for another number of tensors than the layout has fields.
    """
    extents = tuple(shape)
    names = _field_names(kind, format)
    if len(tensors) != len(names):
        raise ArgumentError(f"{name} has {len(tensors)} tensors; want those of {', '.join(names)}")
    made: Any = object.__new__(tensor_class(kind))
    made.__dict__.update(format=format, shape=extents, fields=dict(zip(names, tensors)))
    return made


@lru_cache(512)
def _field_names(kind: str, format: Descriptor) -> tuple[str, ...]:
    return tuple(name for name, _, _ in field_shapes(kind, format, (1, 1)))


def mark(format: Descriptor) -> str:
    """A format as ops are told of it: its name and the digest of its definition."""
    return f"{format.name}@{format.digest}"


def flatten(name: str, tensor: Any) -> tuple[list[torch.Tensor], str, list[int], str]:
    """(tensors, mark, shape, layout) of a quantised tensor with torch fields. Raises ArgumentError naming the
    argument.
    """
    if not hasattr(tensor, "fields") or not hasattr(tensor, "format"):
        raise ArgumentError(
            f"{name} is a {type(tensor).__name__}; want a quantised tensor: wootz.quantize(..., format)"
        )
    fields = list(tensor.fields.values())
    for each in fields:
        if not isinstance(each, torch.Tensor):
            raise ArgumentError(
                f"{name} has fields of type {type(each).__name__}; want torch tensors: "
                f"pass {name}.map(torch.as_tensor), or {name}.to('cuda:0')"
            )
    return fields, mark(tensor.format), list(tensor.shape), layout_of(tensor)


def check_matrix(name: str, shape: Sequence[int]) -> None:
    """Raises ArgumentError naming the argument for a bank."""
    if len(shape) != 2:
        raise ArgumentError(f"{name} is a bank of {shape[0]}; want a matrix: see its matrix(i)")


def refuse_grad(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises ArgumentError naming the first that requires grad, while gradients are recorded."""
    if not torch.is_grad_enabled():
        return
    for name, each in tensors.items():
        if each.requires_grad:
            raise ArgumentError(
                f"{name} requires grad, and the kernels have no backward: call under torch.no_grad() or "
                f"torch.inference_mode(), or pass {name}.detach()"
            )
