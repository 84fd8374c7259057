"""Checks of the arrays of a call: types, strides, alignment, overlap, devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from ._core import View
from .errors import ArgumentError, DeviceError, DtypeError

__all__ = [
    "ALIGNMENT",
    "Seen",
    "Strided",
    "check_memory",
    "check_overlap",
    "check_strided",
    "check_workspace",
    "common_device",
    "span",
]

ALIGNMENT = 16
"""Bytes: kernels load and store vectors of this size from the start of every array."""

WORKSPACE_ALIGNMENT = 128
"""Bytes, on CUDA: a workspace may hold what the copy engine writes."""

_BYTE_FLOATS = ("e4m3", "e5m2")


def span(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Elements before the first one, and from it to the last, of an array that is not empty."""
    ends = [(extent - 1) * stride for extent, stride in zip(shape, strides)]
    return -sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)


@dataclass(frozen=True)
class Strided:
    """An array whose elements lie apart. address: that of the lowest one or a little below, a multiple of
    ALIGNMENT; start: elements from there to the first; bytes: from there to the end of the last; lowest: the
    address of the lowest one."""

    view: View
    address: int
    start: int
    bytes: int
    lowest: int

    @classmethod
    def of(cls, view: View, item_bytes: int) -> Strided:
        if not view.size:
            return cls(view, view.address, 0, 0, view.address)
        before, after = span(view.shape, view.strides)
        lowest = view.address - before * item_bytes
        address = lowest - lowest % ALIGNMENT
        start = (view.address - address) // item_bytes
        return cls(view, address, start, (start + after + 1) * item_bytes, lowest)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.view.shape

    @property
    def dtype(self) -> str:
        return self.view.dtype

    @property
    def device(self) -> str:
        return self.view.device

    @property
    def device_type(self) -> str:
        return self.view.device_type

    @property
    def device_id(self) -> int | None:
        return self.view.device_id

    @property
    def size(self) -> int:
        return self.view.size

    @property
    def stream(self) -> int | None:
        return self.view.stream

    @property
    def readonly(self) -> bool:
        return self.view.readonly


Seen = Union[View, Strided]
"""Where an array of a call lies."""


def check_type(name: str, view: View, dtype: str) -> None:
    """Raises DtypeError. Bytes pass for 8-bit floats: libraries that have no such type hold them so."""
    if view.dtype != dtype and not (view.dtype == "u8" and dtype in _BYTE_FLOATS):
        raise DtypeError(
            f"{name} has elements of type {view.dtype}; the kernel takes {dtype} there: convert it"
        )


def check_strided(name: str, view: View, dtype: str, item_bytes: int) -> None:
    """Of an array that need not be dense. Raises DtypeError, ArgumentError naming it."""
    check_type(name, view, dtype)
    if view.address % item_bytes and view.size:
        raise ArgumentError(
            f"{name} starts at address {view.address:#x}, which is no multiple of its elements' "
            f"{item_bytes} bytes: pass a copy of it"
        )


def check_memory(name: str, view: View, dtype: str, shape: Sequence[int] | None = None) -> None:
    """Element type, shape, strides and alignment of one array. Raises DtypeError, ArgumentError naming it."""
    check_type(name, view, dtype)
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


def check_workspace(view: View, wanted: int, device: str) -> None:
    """Raises ArgumentError: read-only, with gaps, too small or misaligned."""
    if view.readonly:
        raise ArgumentError("workspace is read-only; the kernel writes there")
    if not view.contiguous:
        raise ArgumentError(f"workspace has strides {list(view.strides)}; want dense memory")
    if view.bytes < wanted:
        raise ArgumentError(
            f"workspace has {view.bytes} bytes; the call needs {wanted}: see the kernel's workspace_bytes()"
        )
    alignment = WORKSPACE_ALIGNMENT if device == "cuda" else ALIGNMENT
    if view.address % alignment:
        raise ArgumentError(
            f"workspace starts at address {view.address:#x}, which is no multiple of {alignment} bytes"
        )


def _lowest(seen: Seen) -> int:
    return seen.lowest if isinstance(seen, Strided) else seen.address


def check_overlap(name: str, view: Seen, out_name: str, out: Seen, alias: bool) -> None:
    """Raises ArgumentError when output and operand overlap: with `alias`, the very same memory is right."""
    if out.address >= view.address + view.bytes or _lowest(view) >= out.address + out.bytes:
        return
    same = out.address == view.address and out.bytes == view.bytes
    if alias and not same:
        raise ArgumentError(
            f"{out_name} shares a part of {name}'s memory: pass the same array, or another one"
        )
    if not alias:
        raise ArgumentError(
            f"{out_name} shares memory with {name}; the kernel cannot work in place: pass another {out_name}"
        )


def common_device(views: Mapping[str, Seen]) -> tuple[str, int | None]:
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
