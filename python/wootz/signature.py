"""What a kernel takes and gives, from its record in the index: operands, shapes, limits; and the checks of a
call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._core import View
from .errors import ArgumentError, ArtifactError, DeviceError, DtypeError

__all__ = ["ALIGNMENT", "Binding", "Operand", "Signature", "check_memory", "check_overlap", "common_device"]

ALIGNMENT = 16
"""Bytes: kernels load and store vectors of this size from the start of every array."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """One array or quantised tensor; `shape` names its axes (a number is a fixed extent)."""

    name: str
    quantised: bool
    shape: tuple[Any, ...]


@dataclass(frozen=True)
class Signature:
    """A kernel's record. flat: its operands may have any rank, as long as their shapes are equal; the one
    axis counts all elements. alias: the output may be the very memory of an operand."""

    name: str
    operands: tuple[Operand, ...]
    output: Operand
    limits: Mapping[str, tuple[int, int]]
    options: tuple[str, ...]
    alias: bool
    flat: bool

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Signature:
        """Raises ArtifactError when the record lacks a field."""
        try:
            operands = tuple(
                Operand(each["name"], each["kind"] == "quantised", tuple(each["shape"]))
                for each in record["operands"]
            )
            output = Operand(record["output"]["name"], False, tuple(record["output"]["shape"]))
            limits = {
                name: (int(low), int(high)) for name, (low, high) in (record.get("limits") or {}).items()
            }
            return cls(
                record["key"], operands, output, limits, tuple(record.get("options") or ()),
                bool(record.get("alias")), bool(record.get("flat")),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"the index describes kernel {record.get('key')!r} wrongly: {error!r}"
            ) from None

    @property
    def names(self) -> frozenset[str]:
        """The shape names that the operands bind."""
        return frozenset(axis for each in self.operands for axis in each.shape if isinstance(axis, str))

    @property
    def quantised(self) -> bool:
        return any(each.quantised for each in self.operands)

    def __str__(self) -> str:
        parts = ", ".join(f"{each.name}[{', '.join(map(str, each.shape))}]" for each in self.operands)
        return f"{self.name}({parts})"


@dataclass
class Binding:
    """The values of the shape names in one call, and where each was seen first."""

    signature: Signature
    values: dict[str, int] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    shape: Shape | None = None

    def bind(self, operand: Operand, shape: Shape) -> None:
        """Raises ArgumentError naming the operand when its rank or an extent does not fit."""
        if self.signature.flat:
            shape = self._flatten(operand, shape)
        if len(shape) != len(operand.shape):
            raise ArgumentError(
                f"{operand.name} has {len(shape)} dimensions {list(shape)}; "
                f"{self.signature} takes {len(operand.shape)}"
            )
        for axis, extent in zip(operand.shape, shape):
            if isinstance(axis, int):
                if axis != extent:
                    raise ArgumentError(f"{operand.name} has extent {extent}; {self.signature} takes {axis}")
                continue
            known = self.values.setdefault(axis, extent)
            if known != extent:
                raise ArgumentError(
                    f"{operand.name} has {axis}={extent}, {self.origins[axis]} has {axis}={known}"
                )
            self.origins.setdefault(axis, operand.name)

    def _flatten(self, operand: Operand, shape: Shape) -> Shape:
        if self.shape is None:
            self.shape = shape
        if shape != self.shape:
            first = next(iter(self.origins.values()))
            raise ArgumentError(f"{operand.name} has shape {list(shape)}, {first} has {list(self.shape)}")
        size = 1
        for extent in shape:
            size *= extent
        return (size,)

    def check_limits(self) -> None:
        """Raises ArgumentError when a shape name is outside what the kernel was made for."""
        for axis, (low, high) in self.signature.limits.items():
            value = self.values.get(axis, low)
            if not low <= value <= high:
                raise ArgumentError(
                    f"{self.origins[axis]} has {axis}={value}; "
                    f"{self.signature.name} takes {axis} from {low} to {high}"
                )

    def output_shape(self) -> Shape:
        if self.shape is not None:
            return self.shape
        values, axes = self.values, self.signature.output.shape
        return tuple([axis if isinstance(axis, int) else values[axis] for axis in axes])


def check_memory(name: str, view: View, dtype: str, shape: Sequence[int] | None = None) -> None:
    """Element type, shape, strides and alignment of one array. Raises DtypeError, ArgumentError naming it."""
    if view.dtype != dtype:
        raise DtypeError(
            f"{name} has elements of type {view.dtype}; the kernel takes {dtype} there: convert it"
        )
    if shape is not None and view.shape != shape:
        raise ArgumentError(f"{name} has shape {list(view.shape)}; want {list(shape)}")
    if not view.contiguous:
        raise ArgumentError(
            f"{name} has strides {list(view.strides)} for shape {list(view.shape)}; kernels take dense "
            f"row-major arrays: pass {name}.contiguous() or numpy.ascontiguousarray({name})"
        )
    if view.address % ALIGNMENT and view.size:
        raise ArgumentError(
            f"{name} starts at address {view.address:#x}, which is no multiple of {ALIGNMENT} bytes "
            f"(a slice of a larger array?): pass a copy of it"
        )


def check_overlap(name: str, view: View, out_name: str, out: View, alias: bool) -> None:
    """Raises ArgumentError when output and operand overlap: `alias` kernels take the very same memory."""
    if out.address >= view.address + view.bytes or view.address >= out.address + out.bytes:
        return
    same = out.address == view.address and out.bytes == view.bytes
    if alias and not same:
        raise ArgumentError(
            f"{out_name} shares a part of {name}'s memory: pass the same array, or another one"
        )
    if not alias:
        raise ArgumentError(
            f"{out_name} shares memory with {name}; the kernel cannot work in place: pass another out"
        )


def common_device(views: Mapping[str, View]) -> tuple[str, int | None]:
    """(kind, number) of the one device that all arrays are on. Raises DeviceError naming two that differ.

    An empty array without an address may be anywhere.
    """
    first_name, first = "", None
    for name, view in views.items():
        if view.device_id is None:
            continue
        if first is None:
            first_name, first = name, view
        elif view.device_id != first.device_id or view.device_type != first.device_type:
            raise DeviceError(
                f"{name} is on {view.device}, {first_name} is on {first.device}: move one of them"
            )
    if first is None:
        first = next(iter(views.values()))
    return first.device_type, first.device_id
