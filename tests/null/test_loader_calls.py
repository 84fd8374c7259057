"""Calls with operands of their own dtypes, optional ones, scalars, derived shapes, workspaces, and tensors in
other layouts, on the CPU. Kernels are compiled by the host compiler."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError, ArtifactError, DtypeError, FormatError
from wootz.formats import Descriptor
from wootz.formats.packed import PackedTensor

from tests.null import loader_tools as tools
from tests.null.format_cases import E2M1, E4M3, E8M0, F32, format_of

SOURCE = r"""
#include <cstdint>
#include <cstring>
using Args = void* const*;
template <typename T> static T get(Args args, int i) { return *static_cast<T*>(args[i]); }

// y = alpha * x * scale[row][column / 4] + bias[row] + 1000 * mode
extern "C" void scale_i8(Args args, const uint32_t*, uint32_t begin, uint32_t end) {
    const int8_t* x = get<const int8_t*>(args, 0);
    const float *scale = get<const float*>(args, 1);
    const int32_t* bias = get<const int32_t*>(args, 2);
    float* y = get<float*>(args, 3);
    const uint32_t k = get<uint32_t>(args, 5), mode = get<uint32_t>(args, 7);
    const float alpha = get<float>(args, 6);
    for (uint32_t row = begin; row < end; ++row)
        for (uint32_t i = 0; i < k; ++i)
            y[row * k + i] = alpha * x[row * k + i] * scale[row * ((k + 3) / 4) + i / 4] +
                             (bias != nullptr ? float(bias[row]) : 0.0f) + 1000.0f * float(mode);
}

// Copies bytes of x to y, and counts its calls in the workspace.
extern "C" void count_u8(Args args, const uint32_t*, uint32_t, uint32_t) {
    uint32_t* space = get<uint32_t*>(args, 2);
    std::memcpy(get<void*>(args, 1), get<const void*>(args, 0), get<uint32_t>(args, 3));
    *get<uint8_t*>(args, 1) = uint8_t(++space[16]);
}

// The sum of the bytes of a packed tensor's units.
extern "C" void sum_units(Args args, const uint32_t*, uint32_t, uint32_t) {
    const uint8_t* units = get<const uint8_t*>(args, 0);
    float sum = 0;
    for (uint32_t i = 0; i < get<uint32_t>(args, 2); ++i) sum += units[i];
    *get<float*>(args, 1) = sum;
}

extern "C" void fill_tiles(Args args, const uint32_t*, uint32_t, uint32_t) {
    std::memset(get<void*>(args, 0), 3, 4 * 64);
    std::memset(get<void*>(args, 1), 4, 1024);
}
"""


@functools.cache
def image(folder: Path) -> bytes:
    source, target = folder / "calls.cpp", folder / "calls.so"
    source.write_text(SOURCE)
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-shared", "-fPIC", str(source)]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target.read_bytes()


def array(name: str, *shape: Any, **more: Any) -> tools.Record:
    return {"name": name, "kind": "array", "shape": list(shape), **more}


def kernel_of(key: str, operands: list[tools.Record], output: tools.Record, **more: Any) -> tools.Record:
    return {"key": key, "operands": operands, "output": output, "limits": {}, "options": [], **more}


SCALE = kernel_of(
    "scale",
    [
        array("x", "m", "k"),
        array("bias", "m", dtype="i32", optional=True),
        array("scale", "m", ["ceildiv", "k", 4], dtype="f32"),
    ],
    {"name": "y", "shape": ["m", "k"], "dtype": "f32"},
    scalars=[
        {"name": "alpha", "type": "f32", "default": 1.0, "choices": []},
        {"name": "mode", "type": "u32", "default": "plain", "choices": ["plain", "odd", "even"]},
        {"name": "seed", "type": "u32", "default": 0},
    ],
)
SCALE_ENTRY = {
    "symbol": "scale_i8",
    "args": [
        ["x", "ptr", "in"], ["scale", "ptr", "in"], ["bias", "ptr", "in"], ["y", "ptr", "out"],
        ["m", "u32", "shape"], ["k", "u32", "shape"], ["alpha", "f32", "scalar"], ["mode", "u32", "scalar"],
    ],
    "block": [1, 1, 1], "grid": ["m", 1, 1], "shared": 0, "when": [],
}  # fmt: skip
COUNT = kernel_of("count", [array("x", "n")], {"name": "y", "shape": ["n"]}, alias=True)
COUNT_ENTRY = {
    "symbol": "count_u8", "block": [1, 1, 1], "grid": [1, 1, 1], "shared": 0, "when": [],
    "args": [["x", "ptr", "in"], ["y", "ptr", "out"], ["space", "ptr", "workspace"], ["n", "u32", "shape"]],
    "workspace": ["max", ["mul", "n", 4], 128], "zeroed": True,
}  # fmt: skip

PACKED = {
    **tools.DESCRIPTOR,
    "packed": {
        "unit_k": 128, "run": 4, "unit_bytes": 4096, "bits": 8, "tensors": [],
        "sides": [{"name": "scale", "bytes": 4, "offset": 2048, "type": "f32"}],
    },
}  # fmt: skip
SUM = kernel_of(
    "sum", [{"name": "w", "kind": "packed", "shape": ["n", "k"]}], {"name": "y", "shape": [1], "dtype": "f32"}
)
SUM_ENTRY = {
    "symbol": "sum_units", "block": [1, 1, 1], "grid": [1, 1, 1], "shared": 0,
    "args": [["w.units", "ptr", "in"], ["y", "ptr", "out"], ["k", "u32", "shape"]], "when": [],
}  # fmt: skip

TILED = format_of(E2M1, (1, 16), (E4M3, "absmax"), (F32, "absmax", (0, 0)), name="tiled")
TILE = kernel_of(
    "tile",
    [array("x", "m", "k"), array("scale1", 1, 1, dtype="f32", optional=True)],
    {"name": "y", "kind": "tiled", "shape": ["m", "k"]},
)
TILE_ENTRY = {
    "symbol": "fill_tiles", "block": [1, 1, 1], "grid": [1, 1, 1], "shared": 0, "when": [],
    "args": [["y.codes", "ptr", "out"], ["y.tiles", "ptr", "out"]],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tools.Folder:
    made = tools.Folder(tmp_path_factory.mktemp("calls") / "a")
    made.kernels = [SCALE, COUNT, SUM, TILE, MIXED]
    files = [made.file("cpu/calls.so", image(tmp_path_factory.mktemp("source")), "baseline")]
    made.cell("scale", "-", "i8", "cpu", files, entries=[SCALE_ENTRY])
    for dtype in ("e4m3", "e5m2", "u8", "i8"):
        made.cell("count", "-", dtype, "cpu", files, entries=[COUNT_ENTRY])
    made.cell("count", "-", "f16", "cpu", files, entries=[COUNT_ENTRY], types={"y": "u32", "x": "f32"})
    made.cell("sum", "toy", "f16", "cpu", files, entries=[SUM_ENTRY])
    made.cell("tile", "tiled", "f16", "cpu", files, entries=[TILE_ENTRY])
    made.cell("mixed.same", "tiled", "f16", "cpu", files, entries=[MIXED_ENTRY], options={"of": "same"})
    made.cell("mixed.e4m3", "tiled", "f16", "cpu", files, entries=[MIXED_ENTRY], options={"of": "e4m3"})
    return made


MIXED = kernel_of(
    "mixed",
    [
        {"name": "x", "kind": "tiled", "shape": ["m", "k"], "format": "of"},
        {"name": "w", "kind": "tiled", "shape": ["n", "k"]},
    ],
    {"name": "y", "shape": [1], "dtype": "f32"},
    options=["of"],
)
MIXED_ENTRY = {**SUM_ENTRY, "args": [["x.codes", "ptr", "in"], ["y", "ptr", "out"], ["m", "u32", "shape"]]}


@pytest.fixture(scope="module")
def lib(folder: tools.Folder) -> wootz.Library:
    return write(folder, PACKED, TILED)


def write(folder: tools.Folder, *formats: tools.Record) -> wootz.Library:
    records = [{"key": each["name"], **each} for each in formats]
    kernels, cells = folder.kernels, folder.cells
    sections = {"targets": folder.targets, "kernels": kernels, "formats": records, "cells": cells}
    (folder.path / "index.json").write_bytes(tools.index_bytes(sections))
    return wootz.load(folder.path)


# ---- operands and scalars


def inputs(m: int = 3, k: int = 10) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(m * k)
    x = rng.integers(-100, 100, (m, k), dtype=np.int8)
    return x, rng.random((m, -(-k // 4)), np.float32), rng.integers(-5, 5, m, dtype=np.int32)


def wanted(x: Any, scale: Any, bias: Any = None, alpha: float = 1.0, mode: int = 0) -> Any:
    y = np.float32(alpha) * x * np.repeat(scale, 4, 1)[:, : x.shape[1]]
    return y + (0 if bias is None else bias[:, None]) + 1000 * mode


def test_optional_operands_and_scalars(lib: wootz.Library) -> None:
    kernel, (x, scale, bias) = lib.kernel("scale", dtype="i8"), inputs()
    assert repr(kernel) == (
        "<kernel scale/-/i8: scale(x[m, k], bias[m]?, scale[m, ceildiv(k, 4)], alpha=, mode=, seed=)>"
    )
    near: Any = functools.partial(np.testing.assert_allclose, rtol=1e-6)
    y = kernel(x, scale)
    assert y.dtype == np.float32
    near(y, wanted(x, scale))
    near(kernel(x, scale, bias), wanted(x, scale, bias))
    near(kernel(x, scale, None, alpha=2), wanted(x, scale, None, 2))
    near(kernel(x, scale, bias=bias, mode="even", alpha=-0.25), wanted(x, scale, bias, -0.25, 2))
    near(kernel(scale=scale, x=x, mode=1), wanted(x, scale, mode=1))
    near(kernel(x, scale=scale, mode=np.int64(2), alpha=np.float32(3)), wanted(x, scale, None, 3, 2))
    out = np.empty((3, 10), np.float32)
    assert kernel(x, scale, alpha=np.float64(0.5), out=out) is out
    near(out, wanted(x, scale, None, 0.5))
    assert np.isinf(kernel(x, scale, alpha=float("inf"))).any(), "infinities and NaN are numbers of float32"
    assert np.isnan(kernel(x, scale, alpha=float("nan"))).all()
    near(kernel(x, scale), wanted(x, scale), err_msg="defaults are not touched by other calls")


def test_no_rows(lib: wootz.Library) -> None:
    x, scale, bias = inputs(0)
    assert lib.kernel("scale", dtype="i8")(x, scale, bias, mode="odd").shape == (0, 10)


X, S, B = inputs()
BAD: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "missing": ((X,), {}, ArgumentError, r"got 1 operands; scale\(.* takes scale as well"),
    "none": ((X, None), {}, ArgumentError, "takes scale as well"),
    "too many": ((X, S, B, B), {}, ArgumentError, "got 4 operands"),
    "twice": ((X, S), {"x": X}, ArgumentError, "x is given twice"),
    "unknown": ((X, S), {"aplha": 1}, ArgumentError, "scale has no argument 'aplha'; did you mean 'alpha'"),
    "unknown 2": (
        (X, S),
        {"y": X},
        ArgumentError,
        "scale has no argument 'y'.* it takes x, bias, scale, alpha",
    ),
    "dtype": ((X.astype(np.int16), S), {}, DtypeError, "x has elements of type i16; the kernel takes i8"),
    "bytes": ((X.view(np.uint8), S), {}, DtypeError, "x has elements of type u8; the kernel takes i8"),
    "own dtype": ((X, S.astype(np.float16)), {}, DtypeError, "scale has elements of type f16; .* takes f32"),
    "bias dtype": (
        (X, S, B.astype(np.float32)),
        {},
        DtypeError,
        "bias has elements of type f32; .* takes i32",
    ),
    "out dtype": ((X, S), {"out": X}, DtypeError, "out has elements of type i8; the kernel takes f32"),
    "count": (
        (X, S[:, :2].copy()),
        {},
        ArgumentError,
        r"scale has shape \[3, 2\]; want \[m, ceildiv\(k, 4\)\] = \[3, 3\]",
    ),
    "rows": ((X, S[:2].copy()), {}, ArgumentError, "scale has m=2, x has m=3"),
    "bias shape": ((X, S, B[:2].copy()), {}, ArgumentError, "bias has m=2, x has m=3"),
    "bias rank": ((X, S, B[:, None].copy()), {}, ArgumentError, "bias has 2 dimensions"),
    "bias tensor": ((X, S, "b"), {}, ArgumentError, "bias is a str; want an array"),
    "alpha text": ((X, S), {"alpha": "2"}, ArgumentError, "alpha is '2'; want a number"),
    "alpha array": ((X, S), {"alpha": S}, ArgumentError, "alpha is a ndarray; want a number"),
    "alpha none": ((X, S), {"alpha": None}, ArgumentError, "alpha is a NoneType; want a number"),
    "alpha range": ((X, S), {"alpha": 1e39}, ArgumentError, r"alpha is 1e\+39, outside float32's range"),
    "choice": (
        (X, S),
        {"mode": "evn"},
        ArgumentError,
        "mode is 'evn'; did you mean 'even'.* one of plain, odd",
    ),
    "choice number": ((X, S), {"mode": 3}, ArgumentError, "mode is 3; want one of plain, odd, even"),
    "choice float": ((X, S), {"mode": 1.0}, ArgumentError, r"mode is 1\.0; want one of plain, odd, even"),
    "negative": ((X, S), {"seed": -1}, ArgumentError, "seed is -1; want a whole number from 0 to 4294967295"),
    "large": ((X, S), {"seed": 2**32}, ArgumentError, "seed is 4294967296; want a whole number"),
    "word": ((X, S), {"seed": "plain"}, ArgumentError, "seed is 'plain'; want a whole number"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_calls(lib: wootz.Library, name: str) -> None:
    operands, named, error, message = BAD[name]
    with pytest.raises(error, match=message):
        lib.kernel("scale", dtype="i8")(*operands, **named)


@pytest.mark.parametrize(
    ("dtype", "storage"),
    [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2), ("u8", np.uint8), ("i8", np.int8)],
)
def test_dtypes_of_a_byte(lib: wootz.Library, dtype: str, storage: Any) -> None:
    x = np.arange(40, dtype=np.uint8).view(storage)
    kernel = lib.kernel("count", dtype=dtype)
    y = kernel(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.view(np.uint8)[1:], x.view(np.uint8)[1:])
    with pytest.raises(DtypeError, match=f"x has elements of type f32; the kernel takes {dtype}"):
        kernel(x.astype(np.float32))
    if dtype.startswith("e"):
        raw = kernel(x.view(np.uint8))
        assert raw.dtype == x.dtype, "raw bytes pass for floats that a library lacks"
        with pytest.raises(DtypeError, match="x has elements of type i8"):
            kernel(x.view(np.int8))


def test_dtypes_of_a_cell(lib: wootz.Library) -> None:
    kernel = lib.kernel("count", dtype="f16")
    assert kernel(np.zeros(4, np.float32)).dtype == np.uint32
    with pytest.raises(DtypeError, match="x has elements of type f16; the kernel takes f32"):
        kernel(np.zeros(4, np.float16))
    assert kernel(np.zeros(4, np.float32), out=np.zeros(4, np.uint32)).dtype == np.uint32


# ---- workspaces


def test_workspace(lib: wootz.Library) -> None:
    kernel, x = lib.kernel("count", dtype="u8"), np.zeros(50, np.uint8)
    assert kernel.workspace_bytes(n=50) == 200
    assert kernel.workspace_bytes("cpu", n=1) == 128
    assert [kernel(x)[0] for _ in range(3)] == [1, 1, 1], "a new one is zeroed"
    space = np.zeros(50, np.float32)
    assert [kernel(x, workspace=space)[0] for _ in range(3)] == [1, 2, 3]
    for wrong, message in (
        (np.zeros(199, np.uint8), "workspace has 199 bytes; the call needs 200"),
        (np.zeros((2, 100), np.uint8)[:, :50], "workspace has strides"),
        (tools_aligned(200), "workspace starts at address .* no multiple of 16 bytes"),
        (np.broadcast_to(np.uint8(0), 200), "workspace is read-only"),
        (bytearray(200), "workspace is a bytearray; want an array"),
        (x, "workspace has 50 bytes"),
    ):
        with pytest.raises(ArgumentError, match=message):
            kernel(x, workspace=wrong)
    big = np.zeros(600, np.uint8)
    with pytest.raises(ArgumentError, match="workspace shares memory with x"):
        kernel(big[:50], workspace=big)
    with pytest.raises(ArgumentError, match="workspace shares memory with y"):
        kernel(x, out=big[64:114], workspace=big)


def tools_aligned(size: int) -> Any:
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64 + 8
    return raw[start : start + size]


def test_workspace_where_none_is_needed(lib: wootz.Library) -> None:
    kernel = lib.kernel("scale", dtype="i8")
    assert kernel.workspace_bytes(m=3, k=8) == 0
    np.testing.assert_array_equal(kernel(X, S, workspace=np.zeros(1, np.uint8)), kernel(X, S))
    with pytest.raises(ArgumentError, match="workspace is a str"):
        kernel(X, S, workspace="mine")


# ---- layouts


def packed(lib: wootz.Library, n: int = 20, k: int = 130) -> tuple[wootz.QuantizedTensor, PackedTensor]:
    q = wootz.quantize(tools.random(n, k), lib.format("toy"))
    return q, wootz.prepack(q)


def test_packed(lib: wootz.Library) -> None:
    kernel, (_, w) = lib.kernel("sum", format="toy", dtype="f16"), packed(lib)
    assert w.fields["units"].shape == (2, 2, 4096)
    assert kernel(w)[0] == w.fields["units"].reshape(-1)[:130].astype(np.float32).sum()


class Loose:
    """A packed tensor whose class checks nothing."""

    layout = "packed"

    def __init__(self, w: Any, **fields: Any) -> None:
        self.format, self.shape, self.fields = w.format, w.shape, {**w.fields, **fields}


def test_layouts_are_told_apart(lib: wootz.Library) -> None:
    kernel, (q, w) = lib.kernel("sum", format="toy", dtype="f16"), packed(lib)
    with pytest.raises(
        ArgumentError,
        match=r"w is in the natural layout; sum takes the packed one there: pass wootz\.prepack\(w\)",
    ):
        kernel(q)
    with pytest.raises(
        ArgumentError, match=r"w is a ndarray; want a PackedTensor: wootz\.prepack\(wootz\.quan"
    ):
        kernel(q.fields["codes"])
    made = tools.Folder(lib.path.parent / "natural")
    files = [made.file("cpu/kernels.so", tools.image(), "baseline")]
    made.cell("dequant", "toy", "f32", "cpu", files)
    dequant = write(made, PACKED).kernel("dequant", format="toy", dtype="f32")
    with pytest.raises(
        ArgumentError,
        match=r"w is in the packed layout; dequant takes the natural one there: pass wootz\.unpack\(w\)",
    ):
        dequant(w)
    tiled = wootz.tile(wootz.quantize(tools.random(4, 64), lib.format("tiled")))
    with pytest.raises(ArgumentError, match=r"in the tiled layout; .* pass wootz\.untile\(w\)"):
        dequant(tiled)
    with pytest.raises(
        ArgumentError, match=r"in the tiled layout; .* pass wootz\.prepack\(wootz\.untile\(w\)\)"
    ):
        kernel(tiled)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: a[:1], ArgumentError, r"w\.units has shape \[1, 2, 4096\]; want \[2, 2, 4096\]"),
        (lambda a: a[:, :, :4095].copy(), ArgumentError, r"w\.units has shape \[2, 2, 4095\]"),
        (lambda a: a.view(np.int8), DtypeError, r"w\.units has elements of type i8; the kernel takes u8"),
        (lambda a: a.swapaxes(0, 1), ArgumentError, r"w\.units has strides"),
    ],
)
def test_packed_fields_are_checked(
    lib: wootz.Library, change: Any, error: type[Exception], message: str
) -> None:
    kernel, (_, w) = lib.kernel("sum", format="toy", dtype="f16"), packed(lib)
    with pytest.raises(error, match=message):
        kernel(Loose(w, units=change(w.fields["units"])))


def test_another_format_packed(lib: wootz.Library) -> None:
    other = Descriptor.parse({**PACKED, "name": "doll"})
    w = wootz.prepack(wootz.quantize(tools.random(4, 8), other))
    with pytest.raises(FormatError, match="w has format doll; the kernel takes toy"):
        lib.kernel("sum", format="toy", dtype="f16")(w)


def test_a_format_that_has_no_packed_layout(lib: wootz.Library, tmp_path: Path) -> None:
    made = tools.Folder(tmp_path / "a")
    made.kernels = [SUM]
    made.cell("sum", "toy", "f16", "cpu", [made.file("cpu/k.so", tools.image())], entries=[SUM_ENTRY])
    kernel = wootz.load(made.write()).kernel("sum", format="toy", dtype="f16")
    w = Loose(packed(lib)[1])
    w.format = Descriptor.parse(tools.DESCRIPTOR)
    with pytest.raises(ArtifactError, match=r"a packed tensor of shape .*format toy: wanted a packed layout"):
        kernel(w)


# ---- results that are tensors


def test_a_tiled_result(lib: wootz.Library) -> None:
    kernel, x = lib.kernel("tile", format="tiled", dtype="f16"), np.zeros((4, 100), np.float16)
    scale1 = np.full((1, 1), 0.5, np.float32)
    y = kernel(x, scale1)
    assert isinstance(y, wootz.TiledTensor)
    assert (y.format, y.shape) == (lib.format("tiled"), (4, 100))
    assert y.fields["scale1"] is scale1, "what the kernel does not write is handed on"
    assert (y.fields["codes"].reshape(-1)[:256] == 3).all()
    assert (y.fields["tiles"] == 4).all()
    again = kernel(x, scale1, out=y)
    assert again.fields["codes"] is y.fields["codes"]
    with pytest.raises(ArgumentError, match="scale1 is missing: tensors of format tiled have one"):
        kernel(x)
    with pytest.raises(ArgumentError, match=r"scale1 has extent 2; tile\(.* takes 1"):
        kernel(x, np.ones((1, 2), np.float32))
    small = wootz.tile(wootz.quantize(tools.random(4, 300), lib.format("tiled")))
    with pytest.raises(ArgumentError, match=r"out\.codes has shape \[4, 192\]; want \[4, 64\]"):
        kernel(x, scale1, out=small)
    with pytest.raises(ArgumentError, match="out is a ndarray; want a TiledTensor"):
        kernel(x, scale1, out=x)


def test_an_operand_of_another_format(lib: wootz.Library) -> None:
    same, mixed = (lib.kernel("mixed", format="tiled", dtype="f16", of=of) for of in ("same", "e4m3"))
    w = wootz.tile(wootz.quantize(tools.random(4, 64), lib.format("tiled")))
    wide = format_of(E4M3, (1, 32), (E8M0, "floor"), name="wide")
    x = wootz.tile(wootz.quantize(tools.random(2, 64), wide))
    same(w, w)
    mixed(x, w)
    with pytest.raises(FormatError, match="x has format wide; the kernel takes tiled"):
        same(x, w)
    with pytest.raises(FormatError, match="x has format tiled with elements e2m1; the kernel takes e4m3"):
        mixed(w, w)
    with pytest.raises(FormatError, match="w has format wide; the kernel takes tiled"):
        mixed(x, x)
    with pytest.raises(ArgumentError, match="w has k=64, x has k=96"):
        mixed(wootz.tile(wootz.quantize(tools.random(2, 96), wide)), w)


# ---- records that cannot be


def load(tmp_path: Path, kernel: tools.Record, entry: tools.Record, **more: Any) -> wootz.Kernel:
    made = tools.Folder(tmp_path / "a")
    made.kernels = [kernel]
    files = [made.file("cpu/k.so", image(tmp_path), "baseline")]
    made.cell(kernel["key"], "-", "i8", "cpu", files, entries=[entry], **more)
    return wootz.load(made.write()).kernel(kernel["key"], dtype="i8")


@pytest.mark.parametrize(
    "change",
    [
        {"operands": [array("out", "m", "k")]},
        {"operands": [{**array("x", "m"), "kind": "odd"}]},
        {"operands": [array("x", "m", ["ceildiv", "q", 4])]},
        {"operands": [array("x", "m", ["pow", "m", 4])]},
        {"scalars": [{"name": "m", "type": "f32"}]},
        {"scalars": [{"name": "stream", "type": "f32"}]},
        {"scalars": [{"name": "a", "type": "f64"}]},
        {"scalars": [{"name": "a", "type": "u32", "default": -1}]},
        {"scalars": [{"name": "a", "type": "u32", "default": "b", "choices": ["c"]}]},
        {"scalars": [{"type": "u32"}]},
    ],
)
def test_kernels_that_cannot_be(tmp_path: Path, change: tools.Record) -> None:
    with pytest.raises(ArtifactError):
        load(tmp_path, {**SCALE, **change}, SCALE_ENTRY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"args": [["z", "ptr", "in"]]}, "argument 'z' of unknown role 'in'"),
        ({"args": [["x.codes", "ptr", "in"]]}, r"argument 'x\.codes' of unknown role 'in'"),
        ({"args": [["beta", "f32", "scalar"]]}, "argument 'beta' of unknown role 'scalar'"),
        ({"args": [["x", "map", "in"]]}, "argument 'x' of unknown role 'in'"),
        ({"when": [["eq", "has_scale", 1]]}, "uses 'has_scale'"),
        ({"stub": "scale_i8"}, "needs a stub, and the index has none"),
        ({"cluster": [2, 1, 1]}, "asks for what cpu lacks"),
        ({"shared": ["mul", "m", 4]}, "asks for what cpu lacks"),
        ({"workspace": ["pow", "m", 4]}, "does not know"),
        ({"prologue": [{"symbol": "first"}]}, "cannot be read"),
        (
            {
                "args": [["w", "map", "map"]],
                "maps": {"w": {"of": "x", "dtype": "i8", "dims": ["k"], "strides": [], "box": [8]}},
            },
            "tensor maps, which this device's loader does not take",
        ),
    ],
)
def test_entries_that_cannot_be(tmp_path: Path, change: tools.Record, message: str) -> None:
    kernel = load(tmp_path, SCALE, {**SCALE_ENTRY, **change})
    with pytest.raises(ArtifactError, match=message):
        kernel(X, S)


def test_types_that_differ_between_targets(tmp_path: Path) -> None:
    kernel = load(tmp_path, SCALE, SCALE_ENTRY, types={"y": "f16"})
    kernel._library.index.find("cells", "scale/-/i8/cpu")
    kernel._types = {}
    with pytest.raises(ArtifactError, match="its types are not those of other targets"):
        kernel(X, S, out=np.zeros((3, 10), np.float16))


def test_prologue_on_the_cpu(tmp_path: Path) -> None:
    """It runs before the entry, with the same workspace."""
    first = {**COUNT_ENTRY, "grid": [1, 1, 1]}
    entry = {**COUNT_ENTRY, "prologue": [first, {**first, "when": [["gt", "n", 99]]}]}
    kernel = load(tmp_path, COUNT, entry)
    assert kernel(np.zeros(8, np.int8))[0] == 2
    assert kernel(np.zeros(100, np.int8))[0] == 3
