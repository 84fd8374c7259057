"""Arrays of other libraries: which library one belongs to, new ones like it, and the stream its work is on.

No library is imported here except NumPy: an array of another one can only arrive once that library is loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import _core
from .errors import ArgumentError, DeviceError, DtypeError
from .lazy_numpy import np

__all__ = [
    "DeviceArray",
    "allocate",
    "current_stream",
    "family",
    "on_stream",
    "stream_handle",
    "to_device",
    "view",
]

View = _core.View
NO_SYNC = -1
_DIGITS = 10  # no device number has as many: it would not fit the driver's
DEFAULT_STREAM = 1  # the handle of CUDA's legacy default stream; DLPack forbids 0

_NUMPY_NAMES = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "bool": "bool",
}
_ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
"""Types that NumPy lacks: their names in ml_dtypes, and in torch."""

ITEM_BYTES = {
    **dict.fromkeys(("bool", "e4m3", "e5m2", "i8", "u8"), 1),
    **dict.fromkeys(("f16", "bf16", "i16", "u16"), 2),
    **dict.fromkeys(("f32", "i32", "u32"), 4),
    **dict.fromkeys(("f64", "i64", "u64"), 8),
}
"""Bytes of an element."""

LONG_NAMES = {**_NUMPY_NAMES, **_ML_DTYPES}
_TYPESTRS = {"bf16": "<u2", "e4m3": "|u1", "e5m2": "|u1"}


class DeviceArray:
    """Memory on a CUDA device for those who have no GPU array library: `to_device(array, "cuda:0")`, then
    `.numpy()`.

    Row-major and dense. It exports __cuda_array_interface__, has a `shape` and a `dtype`, and computes
    nothing. Work that writes into it is waited for by numpy(). Raises DriverError, OutOfMemoryError.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, device: int) -> None:
        self.shape, self.device_id, self._name = shape, device, dtype
        self.dtype = numpy_dtype(dtype)
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        self._address = 0
        self._address = _core.cuda_allocate(device, self.nbytes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            # some types have no code here: others see integers, and wootz reads the last key
            "typestr": _TYPESTRS.get(self._name, self.dtype.str),
            "wootz": (self._name, self.device_id),
            "data": (self._address, False),
            "strides": None,
            "stream": DEFAULT_STREAM,
        }

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """A copy on the host, after all work on the device's default stream."""
        host = np.empty(self.shape, self.dtype)
        _core.cuda_synchronize(self.device_id, DEFAULT_STREAM)
        _core.cuda_copy_to_host(self.device_id, host.ctypes.data, self._address, self.nbytes)
        return host

    get = numpy  # as CuPy calls it

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self._name}, device=cuda:{self.device_id})"

    def __del__(self) -> None:
        if getattr(self, "_address", 0) and _core is not None:  # None while the interpreter ends
            _core.cuda_release(self.device_id, self._address)


def to_device(array: np.ndarray[Any, np.dtype[Any]], device: str = "cuda:0") -> DeviceArray:
    """A copy of a NumPy array on a CUDA device ("cuda" or "cuda:N"). Raises DtypeError, DeviceError,
    DriverError.
    """
    kind, index = parse_device(device)
    if kind != "cuda":
        raise DeviceError(f"to_device copies to CUDA devices, not to {device!r}")
    host = np.require(array, requirements="C")
    source = view(host, "array")
    copy = DeviceArray(source.shape, source.dtype, index or 0)
    _core.cuda_copy_from_host(copy.device_id, copy._address, source.address, source.bytes)
    return copy


def parse_device(device: str) -> tuple[str, int | None]:
    """("cuda", 1) of "cuda:1", ("cuda", None) of "cuda", ("cpu", None) of "cpu". Raises DeviceError."""
    kind, colon, number = str(device).partition(":")
    numbered = number.isascii() and number.isdecimal() and len(number) < _DIGITS
    if kind not in ("cpu", "cuda", "metal") or (colon and not (kind == "cuda" and numbered)):
        raise DeviceError(f'device is {str(device)[:80]!r}; want "cpu", "cuda", "cuda:N" or "metal"')
    return kind, int(number) if colon else None


def view(array: Any, name: str, stream: int = NO_SYNC) -> View:
    """Where `array` lies. `stream` as DLPack takes it. Raises ArgumentError, DtypeError, DeviceError naming
    `name`.
    """
    return _core.view(array, name, stream)


# ---- libraries


@dataclass(frozen=True, eq=False, repr=False)
class Family:
    """One array library: how to make an array, and its current stream on a device (None: it has no such
    thing). immutable: its arrays never change, even where their memory could be written.
    """

    name: str
    empty: Callable[[Any, tuple[int, ...], str, int], Any] | None = None
    stream: Callable[[int], int] | None = None
    enter: Callable[[int, int], contextlib.AbstractContextManager[Any]] | None = None  # device, stream
    immutable: bool = False


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's element type of a short name; what NumPy lacks is that of ml_dtypes. Raises DtypeError when
    that is not installed.
    """
    if dtype not in _ML_DTYPES:
        return np.dtype(_NUMPY_NAMES[dtype])
    try:
        found: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), _ML_DTYPES[dtype]))
    except ImportError:
        raise DtypeError(
            f"NumPy has no {_ML_DTYPES[dtype]}: install ml_dtypes, or pass out= with memory for the result"
        ) from None
    return found


def _numpy_empty(like: Any, shape: tuple[int, ...], dtype: str, number: int) -> Any:
    return np.empty(shape, numpy_dtype(dtype))


def _torch_empty(like: Any, shape: tuple[int, ...], dtype: str, number: int) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, LONG_NAMES[dtype]), device=like.device)


def _torch_stream(device: int) -> int:
    torch = sys.modules["torch"]
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return int(raw(device) if raw is not None else torch.cuda.current_stream(device).cuda_stream)


def _torch_enter(device: int, stream: int) -> Any:
    cuda = sys.modules["torch"].cuda
    known = stream not in (0, DEFAULT_STREAM)
    return cuda.stream(cuda.ExternalStream(stream, device) if known else cuda.default_stream(device))


def _cupy_empty(like: Any, shape: tuple[int, ...], dtype: str, number: int) -> Any:
    cupy = sys.modules["cupy"]
    try:
        with cupy.cuda.Device(number):
            # it has no 8-bit floats: their bytes
            return cupy.empty(shape, numpy_dtype("u8" if dtype in ("e4m3", "e5m2") else dtype))
    except (TypeError, ValueError) as error:
        raise DtypeError(
            f"this CuPy makes no {LONG_NAMES[dtype]} arrays: pass out= with memory for the result"
        ) from error


def _cupy_stream(device: int) -> int:
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(device):
        return int(cupy.cuda.get_current_stream().ptr)


@contextlib.contextmanager
def _cupy_enter(device: int, stream: int) -> Iterator[None]:
    cuda = sys.modules["cupy"].cuda
    with cuda.Device(device), _cupy_known(cuda, device, stream):  # it enters streams of its current device
        yield


def _cupy_known(cuda: Any, device: int, stream: int) -> Any:
    if stream in (0, DEFAULT_STREAM):
        return cuda.Stream.null
    if hasattr(cuda.Stream, "from_external"):
        return cuda.Stream.from_external(_Stream(stream))
    return cuda.ExternalStream(stream, device)  # before CuPy 14, which deprecates it


@dataclass(frozen=True)
class _Stream:
    """A stream as the protocol of CUDA streams has it; whoever made it keeps it alive."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _own_empty(like: Any, shape: tuple[int, ...], dtype: str, number: int) -> Any:
    return DeviceArray(shape, dtype, number)


_NUMPY = Family("numpy", _numpy_empty)
_OWN = Family("wootz", _own_empty, lambda device: DEFAULT_STREAM)
_OTHERS = (
    ("torch", "Tensor", Family("torch", _torch_empty, _torch_stream, _torch_enter)),
    ("cupy", "ndarray", Family("cupy", _cupy_empty, _cupy_stream, _cupy_enter)),
    ("jax", "Array", Family("jax", immutable=True)),
)
_families: dict[type, Family] = {}


def family(array: Any) -> Family:
    """The library that `array` belongs to; one without means of making arrays for all libraries not known
    here.
    """
    kind = type(array)
    known = _families.get(kind)
    if known is None:
        known = _families[kind] = _find_family(kind)
    return known


def _find_family(kind: type) -> Family:
    if "numpy" in sys.modules and issubclass(kind, np.ndarray):
        return _NUMPY
    if issubclass(kind, DeviceArray):
        return _OWN
    for module, name, found in _OTHERS:
        base = getattr(sys.modules.get(module), name, None)
        if base is not None and issubclass(kind, base):
            return found
    return Family(kind.__module__.partition(".")[0])


def allocate(like: Any, shape: tuple[int, ...], dtype: str, number: int | None, keyword: str = "out") -> Any:
    """A new array of like's library on like's device, of this number, which the caller could have passed as
    `keyword`. Raises DtypeError, or ArgumentError when the library is not known.
    """
    owner = family(like)
    if owner.empty is None:
        wanted = f"memory for the result, {LONG_NAMES[dtype]} {list(shape)}"
        memory = wanted if keyword == "out" else f"{shape[0]} bytes"
        raise ArgumentError(f"wootz cannot make arrays of {owner.name}: pass {keyword}= with {memory}")
    return owner.empty(like, shape, dtype, number or 0)


# ---- streams


def current_stream(array: Any, device: int) -> int:
    """The stream that array's library issues work on now; the default stream for libraries not known here."""
    stream = family(array).stream
    return stream(device) if stream is not None else DEFAULT_STREAM


def on_stream(array: Any, device: int, stream: int | None) -> contextlib.AbstractContextManager[Any]:
    """While it lasts, array's library makes and frees arrays in the order of a stream that is not its current
    one. Nothing for None, and for libraries whose memory has no order.
    """
    enter = family(array).enter
    return contextlib.nullcontext() if stream is None or enter is None else enter(device, stream)


def orders_itself(array: Any) -> bool:
    """True if work on array's current stream needs no synchronisation with what wrote the array."""
    return family(array).stream is not None


def stream_handle(stream: Any) -> int:
    """The driver's handle of a stream: an integer, or an object with __cuda_stream__, cuda_stream or ptr.

    Raises ArgumentError for anything else, and for protocol versions other than 0.
    """
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        pair = protocol() if callable(protocol) else protocol
        version, handle = pair
        if version != 0:
            raise ArgumentError(
                f"stream speaks version {version} of __cuda_stream__; this wootz reads version 0"
            )
        return int(handle)
    for name in ("cuda_stream", "ptr"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    raise ArgumentError(
        f"stream is a {type(stream).__name__}; want a handle (an integer) or an object with __cuda_stream__"
    )
