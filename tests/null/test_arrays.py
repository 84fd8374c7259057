"""The array parser: NumPy, DLPack in both forms, hand-made exports, and what is refused by name. No device is
needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest
from wootz import arrays
from wootz.errors import ArgumentError, DeviceError, DtypeError

DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


# ---- NumPy


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_dtypes(name: str) -> None:
    array = np.zeros((3, 5), DTYPES[name])
    view = arrays.view(array, "x")
    assert (view.dtype, view.shape, view.strides) == (name, (3, 5), (5, 1))
    assert (view.address, view.bytes, view.size) == (array.ctypes.data, array.nbytes, 15)
    assert (view.device, view.device_type, view.device_id) == ("cpu", "cpu", 0)
    assert view.contiguous
    assert not view.readonly
    assert arrays.numpy_dtype(name) == array.dtype


@pytest.mark.parametrize("dtype", ["c8", "M8[s]", "O", "S4", "U2", "V3", "f4,i4", "longdouble"])
def test_numpy_refused_dtypes(dtype: str) -> None:
    with pytest.raises(DtypeError, match=r"^x has elements of type"):
        arrays.view(np.zeros(2, dtype), "x")


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e4m3, ml_dtypes.int4])
def test_numpy_narrow_dtypes_are_refused_by_name(dtype: Any) -> None:
    with pytest.raises(DtypeError, match=np.dtype(dtype).name):
        arrays.view(np.zeros(2, dtype), "x")


@pytest.mark.parametrize("dtype", [">f4", ">u2", ">i8"])
def test_numpy_byte_order(dtype: str) -> None:
    with pytest.raises(DtypeError, match=r"x has big-endian elements.*newbyteorder"):
        arrays.view(np.zeros(2, dtype), "x")


BASE = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    ("array", "strides", "contiguous"),
    [
        (BASE, (6, 1), True),
        (BASE.T, (1, 6), False),
        (BASE[:, ::2], (6, 2), False),
        (BASE[:, :3], (6, 1), False),
        (BASE[::-1], (-6, 1), False),
        (np.broadcast_to(BASE[0], (4, 6)), (0, 1), False),
        (BASE[2:3], (6, 1), True),
        (BASE[::2][:1], (12, 1), True),
        (BASE[:, 2:3], (6, 1), False),
        (BASE[1:3], (6, 1), True),
        (BASE[0:0], (6, 1), True),
        (np.ones((), np.float32), (), True),
    ],
)
def test_strides(array: np.ndarray[Any, Any], strides: tuple[int, ...], contiguous: bool) -> None:
    view = arrays.view(array, "x")
    assert (view.strides, view.contiguous) == (strides, contiguous)


def test_stride_between_elements() -> None:
    packed = np.zeros(4, np.dtype([("a", "<f4"), ("b", "u1")]))
    with pytest.raises(ArgumentError, match="x has a stride that is no multiple"):
        arrays.view(packed["a"], "x")


def test_read_only() -> None:
    array = np.zeros(4)
    array.flags.writeable = False
    assert arrays.view(array, "x").readonly


def test_subclass_and_scalar() -> None:
    assert arrays.view(np.ma.zeros(3), "x").shape == (3,)
    with pytest.raises(ArgumentError, match="x is a float32; want an array"):
        arrays.view(np.array([1, 2], np.float32)[0], "x")


@pytest.mark.parametrize("thing", [None, [1.0, 2.0], 3.0, "text", b"bytes", bytearray(4), object()])
def test_no_arrays(thing: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^x is a .*; want an array"):
        arrays.view(thing, "x")


# ---- DLPack of NumPy's making


class Modern:
    """Exports as DLPack 1.x does."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array, self.calls = array, 0

    def __dlpack__(self, **arguments: Any) -> Any:
        self.calls += 1
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()  # type: ignore[return-value]


class Legacy(Modern):
    """Knows no max_version."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.calls += 1
        return self.array.__dlpack__()


@pytest.mark.parametrize("kind", [Modern, Legacy])
@pytest.mark.parametrize("name", [name for name in DTYPES if name not in ("bf16", "e4m3", "e5m2")])
def test_dlpack_dtypes(kind: type[Modern], name: str) -> None:
    array = np.zeros((3, 4), DTYPES[name])
    view = arrays.view(kind(array), "x")
    assert (view.dtype, view.shape, view.strides, view.address) == (name, (3, 4), (4, 1), array.ctypes.data)
    assert view.device == "cpu"


@pytest.mark.parametrize("kind", [Modern, Legacy])
def test_dlpack_strides_and_offset(kind: type[Modern]) -> None:
    part = BASE[1:, 1::2]
    view = arrays.view(kind(part), "x")
    assert (view.address, view.strides, view.contiguous) == (part.ctypes.data, (6, 2), False)


def test_dlpack_read_only() -> None:
    array = np.zeros(4)
    array.flags.writeable = False
    assert arrays.view(Modern(array), "x").readonly
    assert not arrays.view(Modern(np.zeros(4)), "x").readonly


@pytest.mark.parametrize("kind", [Modern, Legacy])
def test_dlpack_gives_the_memory_back(kind: type[Modern]) -> None:
    array = np.zeros(4)
    before = sys.getrefcount(array)
    view = arrays.view(kind(array), "x")
    assert sys.getrefcount(array) > before, "the view has to keep the memory alive"
    del view
    assert sys.getrefcount(array) == before


# ---- hand-made exports


class CTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class CVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", CTensor),
    )  # fmt: skip


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = (
    ctypes.py_object,
    (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
)


class HandMade:
    """A producer with any header; its shape is (2, 3) and it has no strides."""

    def __init__(self, **header: Any) -> None:
        self.shape = (ctypes.c_int64 * 2)(2, 3)
        self.raw = CVersioned(major=header.pop("major", 1), flags=header.pop("flags", 0))
        self.capsule_name = header.pop("capsule_name", b"dltensor_versioned")
        fields = {"data": 0x1000, "device_type": 1, "ndim": 2, "code": 2, "bits": 32, "lanes": 1, **header}
        for name, value in fields.items():
            setattr(self.raw.tensor, name, value)
        self.raw.tensor.shape = self.shape
        self.seen: dict[str, Any] = {}

    def __dlpack__(self, **arguments: Any) -> Any:
        self.seen = arguments
        return _new_capsule(ctypes.addressof(self.raw), self.capsule_name, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.raw.tensor.device_type, self.raw.tensor.device_id


def test_no_strides_means_compact() -> None:
    view = arrays.view(HandMade(byte_offset=32), "x")
    assert (view.strides, view.contiguous, view.address) == ((3, 1), True, 0x1020)


@pytest.mark.parametrize(("code", "bits", "dtype"), [(4, 16, "bf16"), (10, 8, "e4m3"), (12, 8, "e5m2")])
def test_floats_that_numpy_does_not_export(code: int, bits: int, dtype: str) -> None:
    assert arrays.view(HandMade(code=code, bits=bits), "x").dtype == dtype


class Bytes:
    """As torch's tensors of 8-bit floats are: no DLPack, but a view as bytes."""

    uint8 = object()

    def __init__(self, array: np.ndarray[Any, Any], dtype: str) -> None:
        self.array, self.shape, self.dtype = array, array.shape, f"torch.{dtype}"

    def view(self, dtype: Any) -> Any:
        assert dtype is self.uint8
        return Modern(self.array.view(np.uint8))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **arguments: Any) -> Any:
        raise BufferError("float8 types are not supported by dlpack")


@pytest.mark.parametrize(("dtype", "name"), [("float8_e4m3fn", "e4m3"), ("float8_e5m2", "e5m2")])
def test_byte_floats_that_dlpack_refuses(dtype: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "not_torch", Bytes)
    monkeypatch.setattr(Bytes, "__module__", "not_torch")
    array = np.zeros((3, 4), np.uint8)[:, ::2]
    view = arrays.view(Bytes(array, dtype), "x")
    assert (view.dtype, view.address, view.shape, view.strides) == (name, array.ctypes.data, (3, 2), (4, 2))
    with pytest.raises(DtypeError, match="x has elements of type float8_e4m3fnuz, which no kernel takes"):
        arrays.view(Bytes(array, "float8_e4m3fnuz"), "x")
    for other in ("float32", "bfloat16"):
        with pytest.raises(ArgumentError, match=r"x does not give its memory away .*float8 types"):
            arrays.view(Bytes(array, other), "x")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"code": 5, "bits": 64}, "complex64"),
        ({"code": 3, "bits": 64}, "opaque64"),
        ({"code": 8, "bits": 8}, "float8_e4m3,"),
        ({"code": 14, "bits": 8}, "float8_e8m0fnu,"),
        ({"code": 0, "bits": 4}, "int4"),
        ({"code": 2, "bits": 32, "lanes": 4}, "float32 in vectors of 4"),
        ({"code": 4, "bits": 32}, "bfloat32"),
    ],
)
def test_dlpack_refused_dtypes(header: dict[str, int], message: str) -> None:
    with pytest.raises(DtypeError, match=f"^x has elements of type {message}"):
        arrays.view(HandMade(**header), "x")


@pytest.mark.parametrize(
    ("device_type", "device"), [(1, "cpu"), (2, "cuda:3"), (3, "cpu"), (8, "metal"), (13, "cuda:3")]
)
def test_dlpack_devices(device_type: int, device: str) -> None:
    assert arrays.view(HandMade(device_type=device_type, device_id=3), "x").device == device


@pytest.mark.parametrize("device_type", [4, 7, 10, 14, 99])
def test_dlpack_other_devices(device_type: int) -> None:
    with pytest.raises(DeviceError, match=f"DLPack device type {device_type}"):
        arrays.view(HandMade(device_type=device_type), "x")


def test_the_stream_goes_to_gpu_producers_only() -> None:
    gpu, host = HandMade(device_type=2), HandMade()
    arrays.view(gpu, "x", 77)
    arrays.view(host, "x", 77)
    assert gpu.seen == {"stream": 77, "max_version": (1, 0)}
    assert host.seen == {"max_version": (1, 0)}


def test_a_later_dlpack() -> None:
    with pytest.raises(ArgumentError, match="x comes in version 2 of DLPack"):
        arrays.view(HandMade(major=2), "x")


def test_a_consumed_capsule() -> None:
    with pytest.raises(ArgumentError, match="returns no DLPack capsule"):
        arrays.view(HandMade(capsule_name=b"used_dltensor_versioned"), "x")


def test_read_only_flag() -> None:
    assert arrays.view(HandMade(flags=1), "x").readonly
    assert arrays.view(HandMade(flags=2), "x").readonly, "what is written to a copy is lost"
    assert not arrays.view(HandMade(flags=4), "x").readonly


def test_overflowing_extents() -> None:
    huge = HandMade()
    huge.shape[0] = huge.shape[1] = 2**40
    with pytest.raises(ArgumentError, match="x has more elements"):
        arrays.view(huge, "x")
    huge.raw.tensor.ndim = -1
    with pytest.raises(ArgumentError, match="x has a negative rank"):
        arrays.view(huge, "x")
    huge.raw.tensor.ndim, huge.shape[0] = 2, -1
    with pytest.raises(ArgumentError, match="x has a negative extent"):
        arrays.view(huge, "x")


class Raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __dlpack__(self, **arguments: Any) -> Any:
        raise self.error

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize("error", [BufferError("not now"), RuntimeError("not now"), TypeError("not now")])
def test_a_failing_export_names_the_argument(error: Exception) -> None:
    with pytest.raises(
        ArgumentError, match=r"x does not give its memory away \(__dlpack__ failed\): not now"
    ):
        arrays.view(Raising(error), "x")


def test_interrupts_pass() -> None:
    with pytest.raises(KeyboardInterrupt):
        arrays.view(Raising(KeyboardInterrupt()), "x")


class Lazy(Modern):
    """What torch's tensors have besides."""

    requires_grad = False

    def __init__(self, **bits: bool) -> None:
        super().__init__(np.zeros(4, np.float32))
        self.requires_grad = bits.pop("grad", False)
        self.bits = bits

    def is_conj(self) -> bool:
        return self.bits.get("conj", False)

    def is_neg(self) -> bool:
        return self.bits.get("neg", False)


def test_lazy_tensors() -> None:
    assert arrays.view(Lazy(), "x").size == 4
    with pytest.raises(ArgumentError, match=r"x requires gradients.*x\.detach\(\)"):
        arrays.view(Lazy(grad=True), "x")
    with pytest.raises(ArgumentError, match=r"x has its conj bit set: pass x\.resolve_conj\(\)"):
        arrays.view(Lazy(conj=True), "x")
    with pytest.raises(ArgumentError, match=r"x has its neg bit set: pass x\.resolve_neg\(\)"):
        arrays.view(Lazy(neg=True), "x")


# ---- __cuda_array_interface__ of empty arrays: those with an address need a driver (test_driver.py)


class Interface:
    def __init__(self, **changes: Any) -> None:
        whole = {
            "version": 3,
            "shape": (0, 4),
            "typestr": "<f4",
            "data": (0, False),
            "strides": None,
            **changes,
        }
        self.__cuda_array_interface__ = whole


def test_an_empty_interface() -> None:
    view = arrays.view(Interface(stream=5), "x")
    assert (view.device_type, view.device_id, view.shape, view.stream) == ("cuda", None, (0, 4), 5)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"typestr": ">f4"}, DtypeError, "big-endian"),
        ({"typestr": "<V2"}, DtypeError, "<V2.*needs DLPack"),
        ({"typestr": "<c8"}, DtypeError, "<c8"),
        ({"typestr": "f"}, DtypeError, "f"),
        ({"mask": object()}, ArgumentError, "has a mask"),
        ({"strides": (4,)}, ArgumentError, "has 1 strides for 2 dimensions"),
        ({"strides": (17, 4)}, ArgumentError, "no multiple"),
        ({"shape": 5}, ArgumentError, "describes its memory in no valid way"),
        ({"shape": "no"}, ArgumentError, "describes its memory in no valid way"),
        ({"data": (None, False)}, ArgumentError, "describes its memory in no valid way"),
    ],
)
def test_bad_interfaces(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^x .*{message}"):
        arrays.view(Interface(**changes), "x")


# ---- streams and devices


class Protocol:
    def __init__(self, version: int, handle: int) -> None:
        self.pair = version, handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return self.pair


class Attribute:
    def __init__(self, name: str, handle: int) -> None:
        setattr(self, name, handle)


@pytest.mark.parametrize("stream", [9, Protocol(0, 9), Attribute("cuda_stream", 9), Attribute("ptr", 9)])
def test_stream_handles(stream: Any) -> None:
    assert arrays.stream_handle(stream) == 9


@pytest.mark.parametrize("stream", ["9", True, -1, 1.5, object(), Protocol(1, 9)])
def test_bad_streams(stream: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^stream "):
        arrays.stream_handle(stream)


def test_devices() -> None:
    assert arrays.parse_device("cuda:12") == ("cuda", 12)
    assert arrays.parse_device("cuda") == ("cuda", None)
    assert arrays.parse_device("cpu") == ("cpu", None)
    for bad in ("gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", ""):
        with pytest.raises(DeviceError, match="device is"):
            arrays.parse_device(bad)


def test_allocation_like_numpy() -> None:
    like = np.zeros(3, np.float32)
    made = arrays.allocate(like, (2, 5), "bf16", arrays.view(like, "x"))
    assert made.shape == (2, 5)
    assert made.dtype == ml_dtypes.bfloat16


def test_allocation_without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    like = np.zeros(3, np.float32)
    with pytest.raises(DtypeError, match="install ml_dtypes, or pass out="):
        arrays.allocate(like, (2,), "bf16", arrays.view(like, "x"))


def test_allocation_like_a_stranger() -> None:
    like = HandMade()
    with pytest.raises(ArgumentError, match=r"cannot make arrays of .*: pass out="):
        arrays.allocate(like, (2,), "f32", arrays.view(like, "x"))


# ---- CuPy, as much of it as is looked at


class FakeCupy:
    class ndarray:
        def __init__(self, shape: Any, dtype: Any) -> None:
            self.shape, self.dtype = shape, np.dtype(dtype)

    class cuda:
        entered: ClassVar[list[Any]] = []  # devices and streams, the innermost last

        @classmethod
        @contextlib.contextmanager
        def enter(cls, what: Any) -> Iterator[None]:
            cls.entered.append(what)
            try:
                yield
            finally:
                cls.entered.pop()

        @classmethod
        def Device(cls, number: int) -> Any:
            return cls.enter(number)

        @classmethod
        def ExternalStream(cls, stream: int, device: int) -> Any:
            return cls.enter(("before 14", stream, device))

        class Stream:
            null: Any = None

    @classmethod
    def empty(cls, shape: Any, dtype: Any) -> Any:
        if np.dtype(dtype).kind == "V":
            raise TypeError("unsupported dtype")
        return cls.ndarray(shape, dtype)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy)
    return FakeCupy.ndarray((3,), np.float32)


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2", "u8", "i8", "f16", "i32"])
def test_allocation_like_cupy(cupy: Any, dtype: str) -> None:
    """It has no 8-bit floats: their bytes are made, which the kernels take."""
    where = arrays.view(np.zeros(1), "x")
    made = arrays.allocate(cupy, (2, 3), dtype, where)
    wanted = {"e4m3": np.uint8, "e5m2": np.uint8}.get(dtype, DTYPES[dtype])
    assert (made.shape, made.dtype) == ((2, 3), np.dtype(wanted))
    with pytest.raises(DtypeError, match="CuPy makes no bfloat16 arrays: pass out="):
        arrays.allocate(cupy, (2,), "bf16", where)


def test_the_stream_that_memory_is_ordered_by(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy enters streams of its current device alone."""
    cuda = FakeCupy.cuda

    def seen(stream: int) -> list[Any]:
        monkeypatch.setattr(cuda.Stream, "null", cuda.enter("null"))
        with arrays.on_stream(cupy, 1, stream):
            return list(cuda.entered)

    assert seen(77) == [1, ("before 14", 77, 1)]
    since_14 = staticmethod(lambda stream: cuda.enter(stream.__cuda_stream__()))
    monkeypatch.setattr(cuda.Stream, "from_external", since_14, raising=False)
    assert seen(77) == [1, (0, 77)]
    assert seen(0) == seen(1) == [1, "null"]
    assert not cuda.entered
    for array, stream in ((cupy, None), (np.zeros(1), 77), (HandMade(), 77)):
        with arrays.on_stream(array, 0, stream) as nothing:
            assert nothing is None
