"""Every kind of array that NumPy, ml_dtypes, DLPack and __cuda_array_interface__ can describe: taken, or
refused by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wootz
from wootz import arrays
from wootz.errors import ArgumentError, DeviceError, DtypeError, WootzError

from tests.null import loader_tools as tools
from tests.null.test_arrays import BASE, DTYPES, HandMade, Interface, Legacy, Modern

TAKEN = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


# ---- element types


def numpy_types() -> list[np.dtype[Any]]:
    """One of each of NumPy's types, and what structures and byte order make of them."""
    plain = [np.dtype(code) for code in np.typecodes["All"] if code not in "SUVMm"]
    return [*plain, *map(np.dtype, ("S3", "U2", "V5", "M8[s]", "m8[ns]", "f4,i4", "(2,)f4"))]


def ml_types() -> list[np.dtype[Any]]:
    found = (getattr(ml_dtypes, name) for name in dir(ml_dtypes))
    return [np.dtype(each) for each in found if isinstance(each, type) and issubclass(each, np.generic)]


def test_the_tables_below_are_whole() -> None:
    names = {dtype.name for dtype in ml_types()}
    assert names >= {"bfloat16", "int4", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float8_e8m0fnu"}
    assert {dtype.name for dtype in numpy_types()} >= {"float16", "complex64", "object", "bool", "int64"}


@pytest.mark.parametrize("dtype", dict.fromkeys([*numpy_types(), *ml_types()]), ids=str)
def test_numpy_types(dtype: np.dtype[Any]) -> None:
    array = np.zeros((2, 3), dtype)
    wanted = TAKEN.get(array.dtype)
    if wanted is not None:
        assert arrays.view(array, "x").dtype == wanted
        return
    with pytest.raises(DtypeError) as caught:
        arrays.view(array, "x")
    name = str(array.dtype) if array.dtype.names else array.dtype.name
    assert str(caught.value) == f"x has elements of type {name}, which no kernel takes"


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2", "i4", "i8", "u2", "u4", "u8", "c8"])
def test_swapped_bytes(dtype: str) -> None:
    with pytest.raises(DtypeError, match=r"^x has big-endian elements"):
        arrays.view(np.zeros(2, f">{dtype}"), "x")
    assert np.dtype(">i1") in TAKEN, "one byte has no order"


WIDE = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex", 6: "bool"}
NARROW = {
    7: "float8_e3m4", 8: "float8_e4m3", 9: "float8_e4m3b11fnuz", 10: "float8_e4m3fn", 11: "float8_e4m3fnuz",
    12: "float8_e5m2", 13: "float8_e5m2fnuz", 14: "float8_e8m0fnu", 15: "float6_e2m3fn", 16: "float6_e3m2fn",
    17: "float4_e2m1fn",
}  # fmt: skip
DLPACK_TAKEN = {
    (0, 8): "i8", (0, 16): "i16", (0, 32): "i32", (0, 64): "i64",
    (1, 8): "u8", (1, 16): "u16", (1, 32): "u32", (1, 64): "u64",
    (2, 16): "f16", (2, 32): "f32", (2, 64): "f64", (4, 16): "bf16", (6, 8): "bool",
    (10, 8): "e4m3", (12, 8): "e5m2",
}  # fmt: skip


@pytest.mark.parametrize("bits", [1, 2, 4, 6, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("code", [*WIDE, *NARROW, 18, 255])
def test_dlpack_types(code: int, bits: int) -> None:
    taken = DLPACK_TAKEN.get((code, bits))
    if taken:
        assert arrays.view(HandMade(code=code, bits=bits), "x").dtype == taken
        return
    wide = f"{WIDE[code]}{bits}" if code in WIDE else f"DLPack code {code} of {bits} bits"
    for lanes in (1, 2):
        with pytest.raises(DtypeError) as caught:
            arrays.view(HandMade(code=code, bits=bits, lanes=lanes), "x")
        vector = " in vectors of 2" if lanes == 2 else ""
        name = NARROW.get(code, wide) + vector
        assert str(caught.value) == f"x has elements of type {name}, which no kernel takes"


@pytest.mark.parametrize("name", sorted(set(NARROW.values()) - {"float8_e4m3fn", "float8_e5m2"}))
def test_narrow_floats_whose_export_fails(name: str) -> None:
    """As those of torch do, whose dtype then says what they are."""

    class Failing:
        dtype = f"torch.{name}_x2"

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **arguments: Any) -> Any:
            raise BufferError("not supported")

    with pytest.raises(DtypeError, match=f"^x has elements of type {name}_x2, which no kernel takes$"):
        arrays.view(Failing(), "x")


@pytest.mark.parametrize(
    ("typestr", "dtype"),
    [
        ("<f2", "f16"), ("<f4", "f32"), ("=f8", "f64"), ("|i1", "i8"), ("<i2", "i16"), ("<i4", "i32"),
        ("<i8", "i64"), ("|u1", "u8"), ("<u2", "u16"), ("<u4", "u32"), ("<u8", "u64"), ("|b1", "bool"),
    ],
)  # fmt: skip
def test_interface_types(typestr: str, dtype: str) -> None:
    assert arrays.view(Interface(typestr=typestr), "x").dtype == dtype


@pytest.mark.parametrize(
    "typestr",
    ["<c8", "|O8", "|S4", "<U2", "|V2", "<M8", "<m8", "<E2", "|41", "|51", "<f3", "<f0", "?f4", "<f", "f4",
     "", "<f16", "<f4,i4"],
)  # fmt: skip
def test_interface_types_that_are_refused(typestr: str) -> None:
    with pytest.raises(DtypeError) as caught:
        arrays.view(Interface(typestr=typestr), "x")
    assert str(caught.value).startswith(f"x has elements of type {typestr}")


# ---- where it lies


DEVICES = {
    4: "OpenCL", 7: "Vulkan", 9: "VPI", 10: "ROCm", 11: "ROCm's host memory", 12: "an extension's device",
    14: "oneAPI", 15: "WebGPU", 16: "Hexagon", 17: "MAIA", 18: "Trainium",
}  # fmt: skip


@pytest.mark.parametrize("type", [*range(21), -1, 2**31 - 1])
def test_dlpack_devices(type: int) -> None:
    taken = {1: "cpu", 2: "cuda:3", 3: "cpu", 8: "metal", 13: "cuda:3"}.get(type)
    made = HandMade(device_type=type, device_id=3)
    if taken:
        assert arrays.view(made, "x").device == taken
        return
    number = f"DLPack device type {type}"
    name = f"{DEVICES[type]} ({number})" if type in DEVICES else number
    with pytest.raises(DeviceError) as caught:
        arrays.view(made, "x")
    assert str(caught.value) == f"x is on a device that no kernel runs on: {name}"


def test_a_null_pointer() -> None:
    for made in (HandMade(data=0), HandMade(data=0, byte_offset=64), Interface(shape=(2, 3))):
        with pytest.raises(ArgumentError, match=r"^x has a null address, and is not empty$"):
            arrays.view(made, "x")
    empty = HandMade(data=0, byte_offset=64)
    empty.shape[1] = 0
    assert arrays.view(empty, "x").bytes == 0
    assert arrays.view(Interface(), "x").bytes == 0


# ---- shapes


@pytest.mark.parametrize("wrap", [lambda a: a, Modern, Legacy])
@pytest.mark.parametrize(
    ("array", "strides", "dense"),
    [
        (np.zeros((), np.float32), (), True),
        (np.zeros(0, np.float32), None, True),
        (np.zeros((3, 0, 2), np.float32), None, True),
        (np.zeros((1,) * 30, np.float32), None, True),
        (BASE[::-1, ::-1], (-6, -1), False),
        (BASE[::-1][:1], None, True),
        (np.broadcast_to(np.float32(1), (2, 3)).copy()[:, :0], None, True),
    ],
)
def test_shapes(wrap: Any, array: np.ndarray[Any, Any], strides: Any, dense: bool) -> None:
    view = arrays.view(wrap(array), "x")
    assert (view.shape, view.size, view.bytes) == (array.shape, array.size, array.nbytes)
    assert view.contiguous is dense
    if strides is not None:
        assert view.strides == strides


def test_no_dimensions_and_no_shape() -> None:
    made = HandMade(ndim=0)
    made.raw.tensor.shape = None
    assert arrays.view(made, "x").shape == ()
    made.raw.tensor.ndim = 2
    with pytest.raises(ArgumentError, match=r"^x has no shape$"):
        arrays.view(made, "x")


@pytest.mark.parametrize(
    ("shape", "strides", "wanted", "dense"),
    [
        ((0, 4), None, (4, 1), True),
        ((0, 4), (64, 8), (16, 2), True),
        ((), None, (), True),
        ((0,), (-4,), (-1,), True),
    ],
)
def test_interface_strides(shape: Any, strides: Any, wanted: Any, dense: bool) -> None:
    if shape == ():
        with pytest.raises(ArgumentError, match=r"^x has a null address, and is not empty$"):
            arrays.view(Interface(shape=shape), "x")
        return
    view = arrays.view(Interface(shape=shape, strides=strides), "x")
    assert (view.strides, view.contiguous) == (wanted, dense)


# ---- NumPy's subclasses


def test_masked_arrays() -> None:
    plain = np.ma.zeros(3)
    assert plain.mask is np.ma.nomask
    assert arrays.view(plain, "x").shape == (3,)
    for mask in ([0, 1, 0], [0, 0, 0]):
        with pytest.raises(ArgumentError, match=r"^x has a mask.*x\.filled\(\), or x\.data$"):
            arrays.view(np.ma.array(np.zeros(3), mask=mask), "x")


def test_other_subclasses(tmp_path: Path) -> None:
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1.0, 2.0]], np.float32)
    assert arrays.view(matrix, "x").shape == (1, 2)
    np.zeros(6, np.float32).tofile(tmp_path / "numbers")
    for mode, readonly in (("r", True), ("r+", False), ("c", False)):
        mapped = np.memmap(tmp_path / "numbers", np.float32, mode)  # type: ignore[call-overload]
        assert arrays.view(mapped, "x").readonly is readonly
    with pytest.raises(DtypeError, match=r"^x has elements of type .*'a'"):
        arrays.view(np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]), "x")
    with pytest.raises(DtypeError, match="str32"):
        arrays.view(np.char.array(["a"]), "x")


# ---- read-only


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    return wootz.load(tools.cpu_folder(tmp_path_factory.mktemp("kinds") / "a", tools.image()))


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


class Flagged(HandMade):
    """Real memory, with flags of DLPack."""

    def __init__(self, array: np.ndarray[Any, Any], flags: int) -> None:
        super().__init__(data=array.ctypes.data, ndim=1, bits=16, flags=flags)
        self.array, self.shape[0] = array, array.size


def numbers() -> np.ndarray[Any, Any]:
    return np.zeros(16, np.float16)


@pytest.mark.parametrize(
    "make",
    [
        lambda: frozen(numbers()),
        lambda: Modern(frozen(numbers())),
        lambda: np.broadcast_to(numbers(), (16,)),
        lambda: np.frombuffer(bytes(32), np.float16),
        lambda: Flagged(numbers(), 1),
        lambda: Flagged(numbers(), 2),
        lambda: Flagged(numbers(), 7),
    ],
)
def test_read_only_arrays_are_operands_and_no_outputs(lib: wootz.Library, make: Any) -> None:
    copy, out = lib.kernel("copy", dtype="f16"), numbers()
    assert copy(make(), out=out) is out
    with pytest.raises(ArgumentError, match=r"^out is read-only"):
        copy(numbers(), out=make())


def test_padded_sub_bytes_change_nothing_of_bytes(lib: wootz.Library) -> None:
    out = Flagged(numbers(), 4)
    assert lib.kernel("copy", dtype="f16")(numbers(), out=out) is out


# ---- protocols and their versions


@pytest.mark.parametrize(("major", "taken"), [(1, True), (2, False), (3, False), (2**32 - 1, False)])
def test_versions_of_dlpack(major: int, taken: bool) -> None:
    made = HandMade(major=major)
    if taken:
        assert arrays.view(made, "x").dtype == "f32"
        return
    with pytest.raises(
        ArgumentError, match=f"^x comes in version {major} of DLPack; this wootz reads version 1"
    ):
        arrays.view(made, "x")


@pytest.mark.parametrize("missing", ["__dlpack_device__", "capsule"])
def test_half_a_producer(missing: str) -> None:
    class Half:
        def __dlpack__(self, **arguments: Any) -> Any:
            return object()

    if missing == "capsule":
        Half.__dlpack_device__ = lambda self: (1, 0)  # type: ignore[attr-defined]
    with pytest.raises(ArgumentError, match=rf"^x .*{'DLPack capsule' if missing == 'capsule' else missing}"):
        arrays.view(Half(), "x")


@pytest.mark.parametrize("device", [None, (), ("gpu", 0), (2.5, 0), 7])
def test_a_device_that_is_none(device: Any) -> None:
    class Odd(HandMade):
        def __dlpack_device__(self) -> Any:
            return device

    with pytest.raises(ArgumentError, match=r"^x describes its memory in no valid way"):
        arrays.view(Odd(), "x")


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_versions_of_the_interface(version: int) -> None:
    view = arrays.view(Interface(version=version), "x")
    assert (view.device, view.stream) == ("cuda", None)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"version": 4}, ArgumentError, "comes in version 4 of __cuda_array_interface__.*reads version 3"),
        ({"version": None}, ArgumentError, "describes its memory in no valid way"),
        ({"version": "3"}, ArgumentError, "describes its memory in no valid way"),
        ({"mask": Interface()}, ArgumentError, "has a mask, which no kernel takes"),
        ({"stream": 0}, ArgumentError, "gives stream 0, which __cuda_array_interface__ forbids"),
        ({"stream": -1}, ArgumentError, "describes its memory in no valid way"),
        ({"stream": "legacy"}, ArgumentError, "describes its memory in no valid way"),
        ({"data": None}, ArgumentError, "describes its memory in no valid way"),
        ({"data": (-8, False)}, ArgumentError, "describes its memory in no valid way"),
        ({"shape": None}, ArgumentError, "describes its memory in no valid way"),
        ({"shape": (-1, 4)}, ArgumentError, "has a negative extent"),
        ({"strides": ()}, ArgumentError, "has 0 strides for 2 dimensions"),
        ({"strides": (6, 4)}, ArgumentError, "has a stride that is no multiple"),
        ({"typestr": None}, ArgumentError, "describes its memory in no valid way"),
    ],
)
def test_wrong_interfaces(changes: dict[str, Any], error: type[WootzError], message: str) -> None:
    with pytest.raises(error, match=f"^x .*{message}"):
        arrays.view(Interface(**changes), "x")


@pytest.mark.parametrize("stream", [None, 1, 2, 0x7F00_1234_5678])
def test_streams_of_the_interface(stream: int | None) -> None:
    assert arrays.view(Interface(stream=stream), "x").stream == stream


def test_an_interface_that_raises() -> None:
    class Raising:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            raise RuntimeError("on another device")

    with pytest.raises(ArgumentError, match=r"^x .*on another device"):
        arrays.view(Raising(), "x")


def test_both_protocols() -> None:
    """DLPack comes first: it knows the device and more types."""

    class Both(HandMade):
        __cuda_array_interface__ = None

    assert arrays.view(Both(), "x").device == "cpu"
