"""Checks of the arrays of a call: types, strides, alignment, overlap, devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ._core import View
from .errors import ArgumentError, DeviceError, DtypeError

__all__ = ["ALIGNMENT", "check_memory", "check_overlap", "check_workspace", "common_device"]

ALIGNMENT = 16
"""Bytes: kernels load and store vectors of this size from the start of every array."""

WORKSPACE_ALIGNMENT = 128
"""Bytes, on CUDA: a workspace may hold what the copy engine writes."""

_BYTE_FLOATS = ("e4m3", "e5m2")


def check_memory(name: str, view: View, dtype: str, shape: Sequence[int] | None = None) -> None:
    """Element type, shape, strides and alignment of one array. Raises DtypeError, ArgumentError naming it.

    Bytes pass for 8-bit floats: libraries that have no such type hold them so.
    """
    if view.dtype != dtype and not (view.dtype == "u8" and dtype in _BYTE_FLOATS):
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


def check_overlap(name: str, view: View, out_name: str, out: View, alias: bool) -> None:
    """Raises ArgumentError when output and operand overlap: with `alias`, the very same memory is right."""
    if out.address >= view.address + view.bytes or view.address >= out.address + out.bytes:
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
