"""The stand-in of libcuda from the inside: its controls, arrays that pass for a device's, the scenarios."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import wootz
from wootz import modules

from tests.null import loader_tools as tools

SCENARIOS: dict[str, Callable[[], None]] = {}
F16 = np.float16
LAUNCHES = ("cuLaunchKernel", "cuGraphLaunch")


def scenario(run: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[run.__name__] = run
    return run


class Driver:
    """The stand-in's own controls; the loader opens the same library."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ["WOOTZ_LIBCUDA"])
        for text in (self.library.fake_log, self.library.fake_live, self.library.fake_wrong):
            text.restype = ctypes.c_char_p
        self.library.fake_instantiate.restype = ctypes.c_void_p
        self.library.fake_own.argtypes = (ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int)

    def fail(self, call: str, code: int, after: int = 0, times: int = -1) -> None:
        """Lets calls of this name fail, `after` that many, as many `times`; -1: for ever."""
        self.library.fake_fail(call.encode(), code, after, times)

    def device(self, count: int = 1, capability: tuple[int, int] = (9, 0), version: int = 13000) -> None:
        self.library.fake_device(count, *capability, version)

    def capability(self, device: int, capability: tuple[int, int]) -> None:
        """Of one device, where they differ."""
        self.library.fake_capability(device, *capability)

    def block(self, call: str) -> None:
        """Makes calls of this name wait until another name is given; "" for none."""
        self.library.fake_block(call.encode())

    def blocked(self) -> int:
        return int(self.library.fake_blocked())

    def live(self) -> dict[str, int]:
        """What was handed out and not given back."""
        counts = map(int, self.library.fake_live().split())
        return dict(zip(("contexts", "modules", "events", "memory", "streams", "graphs", "execs"), counts))

    def clusters(self, blocks: int) -> None:
        self.library.fake_clusters(blocks)

    def static_shared(self, bytes: int) -> None:
        self.library.fake_static_shared(bytes)

    def own(self, array: np.ndarray[Any, Any], device: int) -> None:
        self.library.fake_own(array.ctypes.data, max(array.nbytes, 1), device)

    def capture(self, stream: int) -> None:
        self.library.fake_capture(ctypes.c_void_p(stream))

    def instantiate(self, stream: int) -> int:
        """Ends the capture of a stream; the handle of the graph that was captured."""
        return int(self.library.fake_instantiate(ctypes.c_void_p(stream)))

    def log(self, call: str = "") -> list[str]:
        return [line for line in self.library.fake_log().decode().splitlines() if line.startswith(call)]

    def clear(self) -> None:
        self.library.fake_clear()

    def check_balance(self) -> None:
        assert self.library.fake_depth() == 0, "a context was pushed and not popped"
        assert not self.library.fake_wrong(), self.library.fake_wrong().decode()
        assert self.live()["events"] == 0, "an event was made and not destroyed"


class GpuArray:
    """Host memory that says it is a device's, by DLPack."""

    def __init__(self, array: np.ndarray[Any, Any], device: int = 0) -> None:
        self.array, self.device, self.shape, self.dtype = array, device, array.shape, array.dtype
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.streams.append(stream)
        capsule = self.array.__dlpack__()
        address = _pointer(capsule, b"dltensor")
        ctypes.c_int32.from_address(address + 8).value = 2  # DLTensor: data, device_type, device_id
        ctypes.c_int32.from_address(address + 12).value = self.device
        return capsule


class Interface:
    """Host memory that says it is a device's, by __cuda_array_interface__."""

    def __init__(self, array: np.ndarray[Any, Any], driver: Driver, device: int = 0, **more: Any) -> None:
        driver.own(array, device)
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        base = {
            "version": 3,
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
        }
        self.__cuda_array_interface__ = {**base, "strides": array.strides, "stream": None, **more}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


class _Table(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("managed_from", ctypes.c_void_p), ("managed_to", ctypes.c_void_p),
        ("tensor_from", ctypes.c_void_p), ("stream", ctypes.c_void_p),
    )  # fmt: skip


_Read = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Stream = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
_CODES = {"i": 0, "u": 1, "f": 2}


class Exchanged:
    """Host memory that says it is a device's, by DLPack's table of functions alone. `make_type` makes types
    of it with tables of their own: current is the stream, reads counts the views that were taken.
    """

    current, reads, deleted, fails, readonly = 0, 0, 0, False, False
    table: _Table

    def __init__(self, array: np.ndarray[Any, Any], device: int = 0, kind: int = 2) -> None:
        self.array, self.shape, self.dtype, self.device = array, array.shape, array.dtype, device
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._strides = (ctypes.c_int64 * array.ndim)(*(each // array.itemsize for each in array.strides))
        bits = array.itemsize * 8
        self.tensor = _Tensor(
            array.ctypes.data, kind, device, array.ndim, _CODES[array.dtype.kind], bits, 1,
            ctypes.addressof(self._shape), ctypes.addressof(self._strides), 0,
        )  # fmt: skip


def make_type(view: bool = True, major: int = 1, previous: Any = None, **attributes: Any) -> Any:
    """A type of Exchanged. view: whether its table has the entry for views that own nothing."""
    kind: Any = type("Exchanged", (Exchanged,), attributes)

    def read(address: int, out: int) -> int:
        kind.reads += 1
        ctypes.memmove(out, ctypes.addressof(_object(address).tensor), ctypes.sizeof(_Tensor))
        return -1 if kind.fails else 0

    def read_managed(address: int, out: int) -> int:
        kind.managed = _Managed(1, 3, None, ctypes.cast(delete, ctypes.c_void_p), int(kind.readonly))
        kind.managed.tensor = _object(address).tensor
        ctypes.c_void_p.from_address(out).value = ctypes.addressof(kind.managed)
        return 0

    def current(_: int, device: int, out: Any) -> int:
        out[0] = kind.current
        return 0

    delete = _Delete(lambda _: setattr(kind, "deleted", kind.deleted + 1))
    kind.functions = _Read(read), _Read(read_managed), _Stream(current), delete
    reader, managed, stream = (ctypes.cast(each, ctypes.c_void_p) for each in kind.functions[:3])
    before = ctypes.addressof(previous.table) if previous else None
    kind.table = _Table(major, 3, before, None, managed, None, reader if view else None, stream)
    kind.__dlpack_c_exchange_api__ = _capsule(ctypes.addressof(kind.table), b"dlpack_exchange_api", None)
    return kind


def _object(address: int) -> Any:
    return ctypes.cast(address, ctypes.py_object).value


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


@contextlib.contextmanager
def raises(kind: type[Exception], *parts: str) -> Iterator[list[Exception]]:
    caught: list[Exception] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__}"
    missing = [part for part in parts if part not in str(caught[0])]
    assert not missing, f"{caught[0]!r} does not say {missing}"


def wait_for(condition: Callable[[], Any], seconds: float = 30) -> None:
    """Until it holds. Raises AssertionError when that takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)


def library() -> wootz.Library:
    return wootz.load(tools.cuda_folder(Path(tempfile.mkdtemp()) / "a"))


def launches(driver: Driver) -> list[str]:
    """Of kernels and of graphs; not those that the loader makes a graph of."""
    lines = driver.log("cu")
    return [each for each in lines if each.startswith(LAUNCHES) and " captured " not in each]


def copy_on(lib: wootz.Library) -> None:
    modules._cuda.cache_clear()
    lib.kernel("copy", dtype="f16")(GpuArray(np.zeros(16, F16)), out=GpuArray(np.zeros(16, F16)))


def main() -> None:
    """Runs the scenario that the command line names, in the file that was started."""
    SCENARIOS[sys.argv[1]]()
    print("passed")
