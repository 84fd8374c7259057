"""Banks: matrices of one shape and format, one behind another, as the grouped kernels take them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..errors import ArgumentError, FormatError
from ..lazy_numpy import np
from .moving import array_mover

__all__ = ["Banked", "check_banked", "check_shape", "one_matrix", "stack"]

T = TypeVar("T", bound="Banked")


class Banked:
    """What tensors have in common whose fields may have an axis of matrices in front: shape (N, K), or
    (matrices, N, K) of a bank."""

    format: Any
    shape: Any
    fields: Mapping[str, Any]

    def _with(self: T, shape: tuple[int, ...], fields: Mapping[str, Any]) -> T:
        made: Callable[..., T] = type(self)
        return made(self.format, shape, fields)

    def map(self: T, fn: Callable[[Any], Any]) -> T:
        """The same tensor with every field replaced by fn(field), which must keep shape and dtype."""
        return self._with(self.shape, {name: fn(array) for name, array in self.fields.items()})

    def to(self: T, device: str) -> T:
        """The tensor on another device.

        device: "cpu" (NumPy arrays) or "cuda:N": torch tensors if torch has CUDA, else CuPy arrays, else
        wootz.DeviceArray. Raises ArgumentError (any other device), DeviceError or DriverError (it is absent).
        """
        return self.map(array_mover(device))

    def matrix(self: T, i: int) -> T:
        """One matrix of a bank. Its fields are parts of the bank's; kernels want them to begin at whole 16
        bytes, as those of `matrix(i).map(numpy.copy)` do. Raises ArgumentError where there is none of that
        number."""
        if len(self.shape) != 3:
            raise ArgumentError(f"matrix: wanted a bank, of shape (matrices, N, K); got {self.shape}")
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < self.shape[0]:
            raise ArgumentError(f"matrix: wanted a whole number from 0 to {self.shape[0] - 1}; got {i!r}")
        return self._with(self.shape[1:], {name: array[i] for name, array in self.fields.items()})

    def matrices(self: T) -> list[T]:
        """Those of a bank, as `stack` put them together; a matrix itself."""
        return [self] if len(self.shape) == 2 else [self.matrix(i) for i in range(self.shape[0])]


def check_shape(shape: Any) -> tuple[int, int]:
    """(N, K) as integers; ArgumentError for any other rank or an empty axis."""
    try:
        n, k = (int(v) for v in shape)
    except (TypeError, ValueError):
        raise ArgumentError(f"shape: wanted (N, K); got {shape!r}") from None
    if n < 1 or k < 1:
        raise ArgumentError(f"shape: wanted at least one row and one column; got ({n}, {k})")
    return n, k


def check_banked(shape: Any) -> tuple[int, ...]:
    """(N, K), or that behind a number of matrices, from 1."""
    if not isinstance(shape, (tuple, list)) or len(shape) != 3:
        return check_shape(shape)
    count, *matrix = shape
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ArgumentError(f"shape: wanted (matrices, N, K) with matrices from 1; got {tuple(shape)}")
    return (count, *check_shape(matrix))


def one_matrix(name: str, tensor: Banked) -> tuple[int, int]:
    """(N, K). ArgumentError for a bank."""
    if len(tensor.shape) != 2:
        raise ArgumentError(f"{name}: wanted a matrix; got a bank of {tensor.shape[0]}: see its matrices()")
    return check_shape(tensor.shape)


def stack(members: Iterable[T]) -> T:
    """A bank, on the CPU, of matrices in one layout: a tensor of their kind of three axes.

    Raises ArgumentError (none, other shapes, other layouts), FormatError (other formats).
    """
    if isinstance(members, Banked) or not isinstance(members, Iterable):
        raise ArgumentError(f"members: wanted a list of tensors; got a {type(members).__name__}")
    members = list(members)
    if not members:
        raise ArgumentError("members: wanted at least one tensor; got none")
    first, kinds = members[0], {type(member) for member in members}
    if len(kinds) > 1 or not isinstance(first, Banked):
        raise ArgumentError(
            "members: wanted QuantizedTensors, PackedTensors (wootz.prepack) or TiledTensors (wootz.tile) "
            "alone; "
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
    return first._with((len(members), *first.shape), fields)
