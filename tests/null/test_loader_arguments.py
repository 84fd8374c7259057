"""Every bad argument of a call, and every request that nothing shipped fits: a typed error that names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz import errors
from wootz.errors import ArgumentError, DeviceError, DtypeError, FormatError, NoKernelError

from tests.null import loader_tools as tools

F32 = np.float32
random, quantized = tools.random, tools.quantized


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    return wootz.load(
        tools.cpu_folder(tmp_path_factory.mktemp("art") / "a folder, with spaces", tools.image())
    )


def aligned(shape: tuple[int, ...], offset: int = 0, dtype: Any = F32) -> np.ndarray[Any, Any]:
    """An array that starts `offset` bytes after a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size].view(dtype).reshape(shape)


# ---- bad arguments: name, arguments, error, message

Bad = Callable[[wootz.Library], Any]
X, K = (2, 16), 16


def gemv(lib: wootz.Library, x: Any = None, w: Any = None, **more: Any) -> Any:
    x = random(*X) if x is None else x
    return lib.kernel("qgemv", format="toy")(x, quantized(lib, 3, K) if w is None else w, **more)


def add(lib: wootz.Library, a: Any, b: Any, **more: Any) -> Any:
    return lib.kernel("binary", op="add")(a, b, **more)


BAD: dict[str, tuple[Bad, type[Exception], str]] = {
    "dtype": (
        lambda lib: gemv(lib, random(*X, dtype=np.float64)),
        DtypeError,
        "x has elements of type f64; .* f32",
    ),
    "integers": (lambda lib: gemv(lib, np.zeros(X, np.int32)), DtypeError, "x has elements of type i32"),
    "byte order": (lambda lib: gemv(lib, random(*X).astype(">f4")), DtypeError, "x has big-endian elements"),
    "rank": (
        lambda lib: gemv(lib, random(16)),
        ArgumentError,
        r"x has 1 dimensions \[16\]; qgemv\(x\[m, k\]",
    ),
    "shape": (lambda lib: gemv(lib, random(2, 17)), ArgumentError, "w has k=16, x has k=17"),
    "limit": (lambda lib: gemv(lib, random(9, 16)), ArgumentError, "x has m=9; qgemv takes m from 0 to 8"),
    "length 0": (lambda lib: gemv(lib, random(2, 0)), ArgumentError, "w has k=16, x has k=0"),
    "transposed": (
        lambda lib: gemv(lib, random(16, 2).T),
        ArgumentError,
        r"x has strides \[1, 2\].*contiguous",
    ),
    "stride 0": (
        lambda lib: gemv(lib, np.broadcast_to(random(16), X)),
        ArgumentError,
        r"x has strides \[0, 1\]",
    ),
    "reversed": (lambda lib: gemv(lib, random(*X)[::-1]), ArgumentError, r"x has strides \[-16, 1\]"),
    "alignment": (
        lambda lib: gemv(lib, aligned(X, 4)),
        ArgumentError,
        "x starts at address .* no multiple of 16 bytes",
    ),
    "no array": (lambda lib: gemv(lib, [[1.0]]), ArgumentError, "x is a list; want an array"),
    "no tensor": (
        lambda lib: gemv(lib, w=random(3, K)),
        ArgumentError,
        "w is a ndarray; want a QuantizedTensor",
    ),
    "tensor for array": (
        lambda lib: gemv(lib, quantized(lib, 2, K)),
        ArgumentError,
        "x is a quantised tensor",
    ),
    "too few": (
        lambda lib: lib.kernel("qgemv", format="toy")(random(*X)),
        ArgumentError,
        "got 1 operands; qgemv",
    ),
    "stream": (lambda lib: gemv(lib, stream=0), ArgumentError, "stream is for CUDA devices"),
    "no stream": (lambda lib: gemv(lib, stream="s"), ArgumentError, "stream is a str"),
    "out shape": (
        lambda lib: gemv(lib, out=random(3, 2)),
        ArgumentError,
        r"out has shape \[3, 2\]; want \[2, 3\]",
    ),
    "out dtype": (lambda lib: gemv(lib, out=np.empty((2, 3))), DtypeError, "out has elements of type f64"),
    "out strides": (lambda lib: gemv(lib, out=np.empty((3, 2), F32).T), ArgumentError, "out has strides"),
    "out alignment": (lambda lib: gemv(lib, out=aligned((2, 3), 8)), ArgumentError, "out starts at address"),
    "out no array": (lambda lib: gemv(lib, out=[]), ArgumentError, "^out is a list"),
    "flat shapes": (
        lambda lib: add(lib, random(6), random(2, 3)),
        ArgumentError,
        r"b has shape \[2, 3\], a has \[6\]",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(lib: wootz.Library, name: str) -> None:
    call, error, message = BAD[name]
    with pytest.raises(error, match=message) as caught:
        call(lib)
    assert isinstance(caught.value, errors.WootzError)


def test_read_only_is_fine_for_inputs_only(lib: wootz.Library) -> None:
    x, out = random(*X), np.empty((2, 3), F32)
    x.flags.writeable = out.flags.writeable = False
    gemv(lib, x)
    with pytest.raises(ArgumentError, match="out is read-only"):
        gemv(lib, out=out)


def test_overlap(lib: wootz.Library) -> None:
    whole = aligned((64,), dtype=F32)
    with pytest.raises(ArgumentError, match="out shares a part of a's memory"):
        add(lib, whole[:32], whole[32:].copy(), out=whole[4:36])
    x = aligned((1, 16))
    with pytest.raises(ArgumentError, match="out shares memory with x; the kernel cannot work in place"):
        gemv(lib, x, quantized(lib, 16, 16), out=x)
    add(lib, whole[:32], whole[:32], out=whole[32:])


def test_another_definition_of_the_format(lib: wootz.Library) -> None:
    other = json.loads(json.dumps(tools.DESCRIPTOR))
    other["scales"][0]["rule"] = "nearest"
    tensor = wootz.quantize(random(3, K), other)
    with pytest.raises(FormatError, match="w has another definition of format toy"):
        gemv(lib, w=tensor)
    other["name"] = "doll"
    with pytest.raises(FormatError, match="w has format doll; the kernel takes toy"):
        gemv(lib, w=wootz.quantize(random(3, K), other))
    same = wootz.quantize(random(3, K), json.loads(json.dumps(tools.DESCRIPTOR)))
    assert gemv(lib, w=same).shape == (2, 3)


class Loose:
    """A tensor whose class checks nothing."""

    def __init__(self, q: wootz.QuantizedTensor, **fields: Any) -> None:
        self.format, self.shape, self.fields = q.format, q.shape, {**q.fields, **fields}


@pytest.mark.parametrize(
    ("field", "change", "error", "message"),
    [
        ("scale", lambda a: a.astype(np.float16), DtypeError, r"w\.scale has elements of type f16"),
        ("scale", lambda a: a[:, :-1].copy(), ArgumentError, r"w\.scale has shape \[3, 3\]; want \[3, 4\]"),
        (
            "codes",
            lambda a: a.view(np.int8),
            DtypeError,
            r"w\.codes has elements of type i8; the kernel takes u8",
        ),
        ("codes", lambda a: np.asfortranarray(a), ArgumentError, r"w\.codes has strides \[1, 3\]"),
        ("codes", lambda a: a.tolist(), ArgumentError, r"w\.codes is a list"),
    ],
)
def test_fields_are_checked(
    lib: wootz.Library, field: str, change: Any, error: type[Exception], message: str
) -> None:
    q = quantized(lib, 3, K)
    with pytest.raises(error, match=message):
        gemv(lib, w=Loose(q, **{field: change(q.fields[field])}))


def test_a_count_that_its_argument_cannot_hold(tmp_path: Path) -> None:
    """2^32 + 5 elements of a sparse file would wrap to 5 in a 32-bit argument."""
    lib = wootz.load(tools.cpu_folder(tmp_path / "a", tools.image()))
    size = 2**32 + 5
    with (tmp_path / "big").open("wb") as file:
        file.truncate(2 * size)
    x = np.memmap(tmp_path / "big", np.float16, "r+", shape=(size,))
    with (tmp_path / "out").open("wb") as file:
        file.truncate(2 * size)
    out = np.memmap(tmp_path / "out", np.float16, "r+", shape=(size,))
    with pytest.raises(ArgumentError, match="n is 4294967301, more than the kernel's 32-bit argument holds"):
        lib.kernel("copy", dtype="f16")(x, out=out)


# ---- choosing


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (
            {"name": "qgemw", "format": "toy"},
            NoKernelError,
            "no kernel 'qgemw' in .*did you mean 'qgemv'.; its kernels.. lists them",
        ),
        (
            {"name": "qgemv", "format": "toi"},
            NoKernelError,
            "no format 'toi' in .*did you mean 'toy'.; its formats.. lists them",
        ),
        ({"name": "qgemv"}, ArgumentError, r"takes a quantised operand: name its format="),
        ({"name": "copy", "format": "toy"}, ArgumentError, "takes no quantised operand: leave format= out"),
        (
            {"name": "qgemv", "format": "toy", "dtype": "f64"},
            NoKernelError,
            "qgemv/toy/f64 is not in .* it has: f32",
        ),
        ({"name": "binary"}, ArgumentError, "binary needs the option op=, one of add"),
        ({"name": "binary", "op": "ad"}, NoKernelError, "binary has no op='ad'; did you mean 'add'"),
        ({"name": "binary", "opp": "add"}, ArgumentError, "binary has no option 'opp'; did you mean 'op'"),
        (
            {"name": "copy", "dtype": "f16", "device": "cuda"},
            NoKernelError,
            "copy/-/f16 has no binary for cuda.*: cpu",
        ),
        ({"name": "copy", "dtype": "f16", "device": "tpu"}, DeviceError, "device is 'tpu'"),
    ],
)
def test_requests(lib: wootz.Library, request_: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lib.kernel(**request_)


def test_a_kernel_for_another_device(tmp_path: Path) -> None:
    kernel = wootz.load(tools.cuda_folder(tmp_path / "a")).kernel("copy", dtype="f16", device="cuda:1")
    with pytest.raises(DeviceError, match="x is on cpu, the kernel was asked for on cuda:1"):
        kernel(np.zeros(4, np.float16))


def test_cells_without_files_are_not_shipped(tmp_path: Path) -> None:
    folder = tools.Folder(tmp_path / "a")
    folder.cell("copy", "-", "f16", "cpu", [])
    with pytest.raises(
        NoKernelError, match="copy/-/f16 has no binary for any device; it is shipped for: no target"
    ):
        wootz.load(folder.write()).kernel("copy", dtype="f16")
