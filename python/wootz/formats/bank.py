"""Banks: matrices of one shape and format, one behind another, as the grouped kernels take them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, overload

import numpy as np

from ..errors import ArgumentError, FormatError
from .descriptor import Descriptor
from .packed import PackedTensor
from .tensor import array_mover
from .tiles import TiledTensor

__all__ = ["PackedBank", "stack"]


@dataclass(frozen=True, eq=False)
class PackedBank:
    """Packed matrices of one format and shape; `stack` makes one.

    shape: (experts, N, K). fields: as of a PackedTensor, with an axis of experts in front.
    """

    layout: ClassVar[str] = "packed"

    format: Descriptor
    shape: tuple[int, int, int]
    fields: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Checks the fields as a PackedTensor's are."""
        if len(self.shape) != 3 or self.shape[0] < 1:
            raise ArgumentError(f"shape: wanted (experts, N, K) with experts from 1; got {self.shape}")
        if not isinstance(self.fields, Mapping):
            raise ArgumentError(f"fields: wanted arrays by name; got a {type(self.fields).__name__}")
        for name, array in self.fields.items():
            if getattr(array, "ndim", 0) < 1 or array.shape[0] != self.shape[0]:
                found = list(getattr(array, "shape", ()))
                raise ArgumentError(f"field {name}: wanted {self.shape[0]} matrices; got shape {found}")
        self.matrix(0)

    def __repr__(self) -> str:
        return f"PackedBank({self.format.name}, {'x'.join(map(str, self.shape))})"

    def map(self, fn: Callable[[Any], Any]) -> PackedBank:
        """The same bank with every field replaced by fn(field), which must keep shape and dtype."""
        return PackedBank(self.format, self.shape, {name: fn(a) for name, a in self.fields.items()})

    def to(self, device: str) -> PackedBank:
        """The bank on another device; see QuantizedTensor.to."""
        return self.map(array_mover(device))

    def matrix(self, i: int) -> PackedTensor:
        """One of its matrices. Raises ArgumentError where there is none of that number."""
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < self.shape[0]:
            raise ArgumentError(f"matrix: wanted a whole number from 0 to {self.shape[0] - 1}; got {i!r}")
        return PackedTensor(self.format, self.shape[1:], {name: a[i] for name, a in self.fields.items()})


_BANKS: dict[type, Callable[..., Any]] = {PackedTensor: PackedBank, TiledTensor: TiledTensor}
"""What matrices in a layout are stacked to."""


@overload
def stack(members: Iterable[PackedTensor]) -> PackedBank: ...
@overload
def stack(members: Iterable[TiledTensor]) -> TiledTensor: ...
def stack(members: Iterable[Any]) -> Any:
    """A bank, on the CPU, of matrices in one layout: packed ones give a PackedBank, tiled ones a TiledTensor
    of three axes. Raises ArgumentError (none, other shapes, other layouts), FormatError (other formats).
    """
    if type(members) in _BANKS or not isinstance(members, Iterable):
        raise ArgumentError(f"members: wanted a list of tensors; got a {type(members).__name__}")
    members = list(members)
    if not members:
        raise ArgumentError("members: wanted at least one tensor; got none")
    first, kinds = members[0], {type(member) for member in members}
    if len(kinds) > 1 or type(first) not in _BANKS:
        raise ArgumentError(
            f"members: wanted PackedTensors (wootz.prepack) or TiledTensors (wootz.tile) alone; "
            f"got {', '.join(sorted(kind.__name__ for kind in kinds))}"
        )
    for i, member in enumerate(members):
        if len(member.shape) != 2:
            raise ArgumentError(f"members[{i}]: wanted a matrix; got a bank of {member.shape[0]}")
        if member.shape != first.shape:
            raise ArgumentError(f"members[{i}]: wanted a matrix of shape {first.shape}; got {member.shape}")
        if member.format != first.format:
            raise FormatError(f"members[{i}]: wanted format {first.format.name}; got {member.format.name}")
    local = [member.to("cpu").fields for member in members]
    fields = {name: np.stack([each[name] for each in local]) for name in first.fields}
    return _BANKS[type(first)](first.format, (len(members), *first.shape), fields)
