"""Where launches are timed: memory of a device, filled from a few rows of the host's.

The CPU's arrays are NumPy's, a GPU's are torch's, which has the graphs and events too.
"""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..arrays import parse_device
from ..errors import DeviceError, MissingPackageError
from ..memory import ALIGNMENT, WORKSPACE_ALIGNMENT
from ..staging import POISON, Memory, memory, storage, torch_types

GPU_ROTATE, CPU_ROTATE = 400 << 20, 1 << 30
"""Bytes of the operands of one replay. Of a GPU: eight times the L2 of an H200. Of a CPU: at most, twice its
last cache."""

_MIB = 1 << 20


class FaultError(DeviceError):
    """A launch has ended all use of its device by this process; the message says whose."""


class Bench(Protocol):
    """A device with what measuring needs. name: as "cuda:0". title: of its maker. rotate: bytes that outgrow
    its cache. memory: to and from it. fragile: a launch can end all use of it by the process."""

    name: str
    title: str
    rotate: int
    memory: Memory
    fragile: bool

    def grown(self, raw: NDArray[Any], dtype: str, shape: Sequence[int], shift: int) -> Any:
        """An array of the shape on the device: storage repeated along the axes in which it is shorter, after
        it was rolled by `shift` along the first axis."""

    def space(self, size: int) -> Any:
        """Zeroed bytes, aligned for a workspace."""

    def blank(self, shape: Sequence[int], dtype: str) -> Any:
        """An output, filled with poison."""

    def sample(self, array: Any, dtype: str, places: Sequence[NDArray[np.int64]]) -> NDArray[Any]:
        """Storage of the elements at the places of each axis."""

    def poisoned(self, array: Any, dtype: str) -> int:
        """How many elements still are poison."""

    def stream(self) -> int:
        """The current stream, 0 where there is none."""

    def free(self) -> None:
        """Gives unused memory back."""

    def wait(self) -> None:
        """Until every launch has ended. Raises what one has done."""

    def lost(self) -> bool:
        """Whether a launch has ended all use of the device by this process."""


@contextmanager
def watched(device: Bench, what: str) -> Iterator[None]:
    """Around the launches of `what`, which have ended when it is left. Raises FaultError, which names it, if
    the device is lost by then."""
    try:
        yield
        device.wait()
    except Exception as error:
        if device.lost():
            raise FaultError(f"{what}: {summed(error)}") from error
        raise


def summed(error: Exception) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _tiled(raw: NDArray[Any], shape: Sequence[int], shift: int) -> NDArray[Any]:
    """A dense copy, repeated along the axes in which the shape is longer."""
    held = np.roll(raw, shift, axis=0) if shift and raw.ndim else raw
    for axis, extent in enumerate(shape):
        if held.shape[axis] != extent:
            held = _repeated(held, axis, extent)
    return held if held is not raw else _aligned_like(raw, raw.shape, raw)


def _repeated(held: NDArray[Any], axis: int, extent: int) -> NDArray[Any]:
    out = _aligned_like(held, (*held.shape[:axis], extent, *held.shape[axis + 1 :]))
    few, along = held.shape[axis], (slice(None),) * axis
    for start in range(0, extent, few):
        to, of = (*along, slice(start, start + few)), (*along, slice(0, extent - start))
        out[to] = held[of]
    return out


def _aligned_like(raw: NDArray[Any], shape: Sequence[int], filled: Any = None) -> NDArray[Any]:
    size = int(np.prod(shape, dtype=np.int64)) * raw.itemsize
    out = _aligned(size).view(raw.dtype).reshape(tuple(shape))
    if filled is not None:
        out[...] = filled
    return out


def _aligned(size: int) -> NDArray[np.uint8]:
    """Zeroed bytes."""
    raw = np.zeros(size + WORKSPACE_ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % WORKSPACE_ALIGNMENT
    return raw[start : start + size]


class Cpu:
    """NumPy's memory."""

    name, fragile = "cpu", False

    def __init__(self) -> None:
        self.title, self.rotate = _cpu_title(), min(CPU_ROTATE, 2 * max(_last_cache(), 32 * _MIB))
        self.memory = memory("cpu")

    def grown(self, raw: NDArray[Any], dtype: str, shape: Sequence[int], shift: int) -> Any:
        held = _tiled(raw, shape, shift)
        if held.ctypes.data % ALIGNMENT:  # rolled, and not grown
            held = _aligned_like(held, held.shape, held)
        return self.memory.put(held, dtype)

    def space(self, size: int) -> Any:
        return _aligned(size)

    def blank(self, shape: Sequence[int], dtype: str) -> Any:
        return self.memory.output(tuple(shape), dtype, None).array

    def sample(self, array: Any, dtype: str, places: Sequence[NDArray[np.int64]]) -> NDArray[Any]:
        raw = self.memory.get(array, dtype)
        return raw[np.ix_(*places)] if places else raw

    def poisoned(self, array: Any, dtype: str) -> int:
        bits = self.memory.get(array, dtype).view(f"u{storage(dtype).itemsize}")
        return int((bits == np.iinfo(bits.dtype).max).sum())

    def stream(self) -> int:
        return 0

    def free(self) -> None:
        pass

    def wait(self) -> None:
        pass

    def lost(self) -> bool:
        return False


class Cuda:
    """torch's memory on one GPU, which is torch's current one from then on."""

    fragile = True

    def __init__(self, number: int) -> None:
        self._torch = _torch()
        if number >= self._torch.cuda.device_count():
            raise DeviceError(f"no device cuda:{number}; torch sees {self._torch.cuda.device_count()}")
        self._torch.cuda.set_device(number)
        self.name = self._where = f"cuda:{number}"
        self.title, self.rotate = self._torch.cuda.get_device_name(number), GPU_ROTATE
        self.memory, self._types = memory(self.name), torch_types(self._torch)

    def grown(self, raw: NDArray[Any], dtype: str, shape: Sequence[int], shift: int) -> Any:
        shape, differing = tuple(shape), [i for i, n in enumerate(shape) if raw.shape[i] != n]
        if len(differing) != 1:
            return self.memory.put(_tiled(raw, shape, shift), dtype)
        axis = differing[0]
        rolled = np.ascontiguousarray(np.roll(raw, shift, axis=0) if shift else raw)
        lead = int(np.prod(shape[:axis]))
        rows = self.memory.put(rolled.reshape(-1).view(np.uint8), "u8").reshape(lead, -1)
        inner = rows.shape[1] // raw.shape[axis] * shape[axis]
        repeated = rows.repeat(1, -(-inner // rows.shape[1]))[:, :inner]
        return self._typed(repeated.contiguous().reshape(-1), dtype).reshape(shape)

    def _typed(self, row: Any, dtype: str) -> Any:
        return row.view(self._types[dtype]) if dtype in self._types else row

    def space(self, size: int) -> Any:
        return self._torch.zeros(size, dtype=self._torch.uint8, device=self._where)

    def blank(self, shape: Sequence[int], dtype: str) -> Any:
        size = int(np.prod(shape)) * storage(dtype).itemsize
        raw = self._torch.full((size,), POISON, dtype=self._torch.uint8, device=self._where)
        return self._typed(raw, dtype).reshape(tuple(shape))

    def sample(self, array: Any, dtype: str, places: Sequence[NDArray[np.int64]]) -> NDArray[Any]:
        item = storage(dtype).itemsize
        raw = array.reshape(-1).view(self._torch.uint8).reshape(*array.shape, item)
        for axis, wanted in enumerate(places):
            if len(wanted) != array.shape[axis]:
                raw = raw.index_select(axis, self._torch.from_numpy(wanted).to(self._where))
        back: NDArray[Any] = raw.contiguous().reshape(-1).cpu().numpy()
        return back.view(storage(dtype)).reshape(tuple(raw.shape[:-1]))

    def poisoned(self, array: Any, dtype: str) -> int:
        signed = {1: "i8", 2: "i16", 4: "i32"}[storage(dtype).itemsize]
        kind = getattr(self._torch, signed.replace("i", "int"))  # all of whose bits are ones: -1
        return int((array.reshape(-1).view(kind) == -1).sum())

    def stream(self) -> int:
        return int(self._torch.cuda.current_stream().cuda_stream)

    def free(self) -> None:
        self._torch.cuda.empty_cache()

    def wait(self) -> None:
        self._torch.cuda.synchronize()

    def lost(self) -> bool:
        """Errors of a launch or a capture are told once; after a fault every call fails."""
        for _ in range(2):
            try:
                self._torch.cuda.synchronize()
                return False
            except Exception:
                continue
        return True


def open_device(name: str) -> Bench:
    """A device to measure on: "cpu", or "cuda" or "cuda:N", which need torch.

    Raises DeviceError: no such device; MissingPackageError: no torch with CUDA.
    """
    kind, number = parse_device(name)
    if kind == "cpu":
        return Cpu()
    if kind != "cuda":
        raise DeviceError(f'bench measures on "cpu" and "cuda:N"; got {name!r}')
    count = _core.cuda_device_count()
    if (number or 0) >= count:
        raise DeviceError(f"no device {name}; the driver has {count}")
    return Cuda(number or 0)


def _torch() -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        raise MissingPackageError(
            "bench on a GPU needs torch with CUDA, for graphs and events: pip install torch"
        )
    return torch


def _last_cache() -> int:
    """Bytes of the CPU's last cache, 0 where the system does not say."""
    found = 0
    for each in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = each.read_text(encoding="ascii").strip()
        found = max(found, int(text[:-1]) * {"K": 1 << 10, "M": _MIB}.get(text[-1], 1 << 30))
    return found


def _cpu_title() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} processors"
