"""Ways to bring arrays to a device and poisoned outputs back, for verify."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import reference
from .errors import ArgumentError, DtypeError
from .memory import ALIGNMENT, span

GUARD = 64  # bytes kept before and after an output that has guards
POISON = 0xFF  # every float type reads a run of these as NaN


@dataclass(frozen=True)
class Output:
    """An output filled with poison: the array to pass, and how to read it back: (raw storage, guards are
    whole).
    """

    array: Any
    read: Callable[[], tuple[NDArray[Any], bool]]


@dataclass(frozen=True)
class Memory:
    """How arrays get to a device and back. put: NumPy storage (bf16: raw uint16), dtype -> array there; get:
    the other way. output: shape, dtype, what it holds where that is not poison."""

    put: Callable[[NDArray[Any], str], Any]
    output: Callable[[tuple[int, ...], str, NDArray[Any] | None], Output]
    get: Callable[[Any, str], NDArray[Any]]


def storage(dtype: str) -> np.dtype[Any]:
    """NumPy's type for the raw storage of a dtype."""
    found: np.dtype[Any] = np.dtype(reference.DTYPES[dtype][2])
    return found


_NAMES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
"""Types that NumPy lacks, as ml_dtypes calls them."""


def _named(raw: NDArray[Any], dtype: str) -> NDArray[Any]:
    if dtype == "bool":
        return raw.view(np.bool_)
    if dtype not in _NAMES:
        return raw
    try:
        named = getattr(importlib.import_module("ml_dtypes"), _NAMES[dtype])
    except ImportError:
        message = f"NumPy has no {_NAMES[dtype]}: install ml_dtypes to verify {dtype} kernels"
        raise DtypeError(message) from None
    return raw.view(named)


def _poisoned(
    shape: tuple[int, ...], dtype: str, guard: int, held: NDArray[Any] | None
) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """(all bytes, the array of the shape in their middle)."""
    kind = storage(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    raw = np.full(size + 2 * guard, POISON, dtype=np.uint8)
    inner = raw[guard : guard + size].view(kind).reshape(shape)
    if held is not None:
        inner.view(np.uint8).reshape(-1)[:] = np.ascontiguousarray(held).view(np.uint8).reshape(-1)
    return raw, inner


def underlying(array: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The memory that an array's elements lie in, as one row from a multiple of ALIGNMENT on, and where in it
    the first one is. For arrays that are not empty; what they lie in has to be aligned so."""
    size = array.itemsize
    before, after = span(array.shape, [stride // size for stride in array.strides])
    address = array.ctypes.data - before * size
    before += address % ALIGNMENT // size
    address -= address % ALIGNMENT
    memory = (ctypes.c_char * ((before + after + 1) * size)).from_address(address)
    return np.frombuffer(memoryview(memory), array.dtype), before


def _whole(raw: NDArray[np.uint8]) -> bool:
    return bool((raw[:GUARD] == POISON).all() and (raw[-GUARD:] == POISON).all())


def _cpu() -> Memory:
    def output(shape: tuple[int, ...], dtype: str, held: NDArray[Any] | None = None) -> Output:
        raw, inner = _poisoned(shape, dtype, GUARD, held)
        return Output(_named(inner, dtype), lambda: (inner, _whole(raw)))

    return Memory(_named, output, lambda array, dtype: array.view(storage(dtype)))


def torch_types(torch: Any) -> dict[str, Any]:
    """torch's types by dtype: those that it has."""
    names = {
        "f16": "float16",
        "bf16": "bfloat16",
        "f32": "float32",
        "i8": "int8",
        "i32": "int32",
        "bool": "bool",
    }
    names |= {"u8": "uint8", "u16": "uint16", "u32": "uint32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
    return {dtype: getattr(torch, name) for dtype, name in names.items() if hasattr(torch, name)}


def _torch(torch: Any, device: str) -> Memory:
    kinds = torch_types(torch)

    def put(raw: NDArray[Any], dtype: str) -> Any:
        if not raw.flags.c_contiguous and min(raw.strides) >= 0:  # torch has no strides that lead back
            row, start = underlying(raw)
            strides = [stride // raw.itemsize for stride in raw.strides]
            return put(row, dtype).as_strided(raw.shape, strides, start)
        data = torch.from_numpy(np.ascontiguousarray(raw).view(np.uint8).reshape(-1)).to(device)
        return data.view(kinds[dtype]).reshape(raw.shape) if dtype in kinds else data.reshape(raw.shape)

    def output(shape: tuple[int, ...], dtype: str, held: NDArray[Any] | None = None) -> Output:
        raw, inner = _poisoned(shape, dtype, GUARD, held)
        data = torch.from_numpy(raw).to(device)
        array = data[GUARD : raw.size - GUARD].view(kinds[dtype]).reshape(shape)

        def read() -> tuple[NDArray[Any], bool]:
            back = data.cpu().numpy()
            return back[GUARD : raw.size - GUARD].view(inner.dtype).reshape(shape), _whole(back)

        return Output(array, read)

    def get(array: Any, dtype: str) -> NDArray[Any]:
        raw: NDArray[Any] = array.reshape(-1).view(torch.uint8).cpu().numpy()
        return raw.view(storage(dtype)).reshape(tuple(array.shape))

    return Memory(put, output, get)


def _own(device: str) -> Memory:
    """Without torch: the library's own device arrays, which cannot be sliced, so that there are no guards."""
    to_device = importlib.import_module("wootz.arrays").to_device

    def output(shape: tuple[int, ...], dtype: str, held: NDArray[Any] | None = None) -> Output:
        array = to_device(_named(_poisoned(shape, dtype, 0, held)[1], dtype), device)
        return Output(array, lambda: (array.numpy().view(storage(dtype)), True))

    def put(raw: NDArray[Any], dtype: str) -> Any:
        return to_device(_named(raw, dtype), device)

    return Memory(put, output, lambda array, dtype: array.numpy().view(storage(dtype)))


def memory(device: str) -> Memory:
    """The way to a device: NumPy for "cpu"; for "cuda:N" torch where it has CUDA, else the library's own
    arrays.

    Raises ArgumentError for any other device.
    """
    if device == "cpu":
        return _cpu()
    if not device.startswith("cuda"):
        raise ArgumentError(f'device: wanted "cpu" or "cuda:N"; got {device!r}')
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return _own(device)
    return _torch(torch, device) if torch.cuda.is_available() else _own(device)
