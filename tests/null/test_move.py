"""Kernels that move bits, and gemm_i8_dp4a, as the loader calls them on the CPU, beside NumPy's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError, ArtifactError, DtypeError
from wootz.signature import Signature

from gen.cli import main

MANIFEST = """\
version: 1
targets: {cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}}
formats: {}
kernels:
  gather: {dtypes: [f16, f32]}
  scatter: {dtypes: [f16, f32]}
  transpose: {dtypes: [f32, i8]}
  copy_strided: {dtypes: [f16, f32, i8]}
  gemm_i8_dp4a: {dtypes: [i8]}
profiles: {default: {}}
"""
Array = Any


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    folder = tmp_path_factory.mktemp("move")
    (folder / "mine.yaml").write_text(MANIFEST)
    assert main(["build", "--manifest", str(folder / "mine.yaml"), "--out", str(folder / "out")]) == 0
    return wootz.load(folder / "out")


def numbers(*shape: int, dtype: Any = np.float32) -> Array:
    return (np.arange(np.prod(shape)) % 251 - 100).reshape(shape).astype(dtype)


def ints(*values: int) -> Array:
    return np.array(values, np.int32)


# ------------------------------------------------------------ rows
@pytest.mark.parametrize("k", [1, 7, 64, 1000])
def test_rows_there_and_back(lib: wootz.Library, k: int) -> None:
    """What one collects the other puts back."""
    x = numbers(20, k)
    order = np.random.default_rng(k).permutation(20).astype(np.int32)
    y = lib.kernel("gather", dtype="f32")(x, order)
    assert np.array_equal(y, np.take(x, order, axis=0))
    back = np.zeros_like(x)
    assert lib.kernel("scatter", dtype="f32")(y, order, back) is back
    assert np.array_equal(back, x)


def test_indices_out_of_range(lib: wootz.Library) -> None:
    """Zeros are read, nothing is written; the check that reads them says which."""
    x, indices = numbers(4, 9) + 1000, ints(3, -1, 0, 4, 3, -(2**31), 2**31 - 1)
    y = lib.kernel("gather", dtype="f32")(x, indices)
    known = (indices >= 0) & (indices < 4)
    assert np.array_equal(y[known], x[[3, 0, 3]])
    assert not y[~known].any()
    assert not lib.kernel("gather", dtype="f32")(np.zeros((0, 9), np.float32), indices).any()
    kept = numbers(4, 9)
    lib.kernel("scatter", dtype="f32")(numbers(7, 9) - 500, ints(-1, 4, 2, 5, -4, 99, -(2**31)), kept)
    assert np.array_equal(kept[2], (numbers(7, 9) - 500)[2])
    assert np.array_equal(kept[[0, 1, 3]], numbers(4, 9)[[0, 1, 3]])
    with pytest.raises(ArgumentError, match=r"indices\[1\]: wanted 0 to 3, one of the 4 rows of x; got -1"):
        wootz.check_indices(indices, 4, "rows of x")


def test_nothing_to_move(lib: wootz.Library) -> None:
    none, y = np.zeros((0, 9), np.float32), numbers(4, 9)
    assert lib.kernel("gather", dtype="f32")(y, ints()).shape == (0, 9)
    assert lib.kernel("scatter", dtype="f32")(none, ints(), y) is y
    assert np.array_equal(y, numbers(4, 9))
    assert lib.kernel("scatter", dtype="f32")(numbers(2, 9), ints(0, 1), none) is none


def test_one_row_named_twice(lib: wootz.Library) -> None:
    """Each element is that of one of them."""
    x, y = numbers(2, 40), np.zeros((1, 40), np.float32)
    lib.kernel("scatter", dtype="f32")(x, ints(0, 0), y)
    assert ((y[0] == x[0]) | (y[0] == x[1])).all()


def test_nan_keeps_its_payload(lib: wootz.Library) -> None:
    bits = np.array([[0x7F800001, 0xFFC12345, 0x80000000, 0x7FFFFFFF, 1]], np.uint32)
    x = bits.view(np.float32)
    for made in (
        lib.kernel("gather", dtype="f32")(x, ints(0)),
        lib.kernel("scatter", dtype="f32")(x, ints(0), np.zeros_like(x)),
        lib.kernel("transpose", dtype="f32")(x[None]).reshape(1, 5),
        lib.kernel("copy_strided", dtype="f32")(np.repeat(x, 2, axis=1)[:, ::2]),
    ):
        assert np.array_equal(made.view(np.uint32), bits)


# ------------------------------------------------------------ what is updated in place
def test_plans_in_place(lib: wootz.Library) -> None:
    plan = lib.plan("scatter", dtype="f32", device="cpu", t=3, n=5, k=8)
    x, indices, y = numbers(3, 8), ints(4, 0, 2), np.zeros((5, 8), np.float32)
    assert plan(x, indices, y) is y
    assert np.array_equal(y[[4, 0, 2]], x)
    bound = plan.bind(x, indices, np.zeros((5, 8), np.float32))
    assert np.array_equal(bound(), y)
    assert bound.out is not y
    with pytest.raises(ArgumentError, match="n=4; the plan was made for n=5"):
        plan(x, indices, y[:4])


def test_where_the_result_goes(lib: wootz.Library) -> None:
    scatter = lib.kernel("scatter", dtype="f32")
    x, indices, y = numbers(3, 8), ints(4, 0, 2), np.zeros((5, 8), np.float32)
    assert scatter(x, indices, y, out=y) is y
    frozen = y.copy()
    frozen.setflags(write=False)
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: scatter(x, indices, y, out=np.zeros_like(y)), "out is not y; scatter(x[t, k], indices[t]"),
        (lambda: scatter(x, indices), "takes y as well"),
        (lambda: scatter(x, indices, frozen), "y is read-only; the kernel writes to it"),
        (lambda: scatter(y[:3], indices, y), "y shares memory with x"),
        (lambda: scatter(x, ints(1, 2), y), "indices has t=2, x has t=3"),
        (lambda: scatter(x, indices, y[:, :4].copy()), "y has k=4, x has k=8"),
        (lambda: lib.kernel("gather", dtype="f32")(y, indices, out=y[:3]), "out shares memory with x"),
        (lambda: lib.kernel("transpose", dtype="f32")(y[None], out=y.reshape(1, 8, 5)), "out shares memory"),
    ]
    for call, message in refused:
        with pytest.raises(ArgumentError) as caught:
            call()
        assert message in str(caught.value)
    with pytest.raises(DtypeError, match="indices has elements of type i64; the kernel takes i32"):
        scatter(x, indices.astype(np.int64), y)


def test_an_output_that_is_no_whole_operand() -> None:
    """Of the index: an output that has an operand's name is that operand, which is updated."""
    y = {"name": "y", "shape": ["n"], "updated": True}
    record = {"key": "k", "operands": [y], "output": {"name": "y", "shape": ["n"]}}
    assert Signature.parse(record).in_place
    for wrong in ({**y, "updated": False}, {**y, "shape": ["n", "m"]}):
        with pytest.raises(ArtifactError, match="the index describes kernel 'k' wrongly"):
            Signature.parse({**record, "operands": [wrong]})
    with pytest.raises(ArtifactError, match="strides are no arguments"):
        Signature.parse({**record, "operands": [{**y, "strided": True}]})


# ------------------------------------------------------------ tiles and views
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (1, 64, 32), (3, 33, 130), (0, 4, 4)])
def test_transpose(lib: wootz.Library, shape: tuple[int, int, int]) -> None:
    for dtype, kind in (("f32", np.float32), ("i8", np.int8)):
        x = numbers(*shape, dtype=kind)
        assert np.array_equal(lib.kernel("transpose", dtype=dtype)(x), np.transpose(x, (0, 2, 1)))


X = numbers(6, 8, 10, 12)


@pytest.mark.parametrize(
    "view",
    [
        X,
        X[2:, 1:, 3:, 5:],
        X[::2, ::3, ::4, ::5],
        X.T,
        X[::-1, :, ::-2, ::-1],
        X.transpose(1, 3, 0, 2)[::-1],
        X[3, :, 4],
        X[:, None, :, 2:3, 4:9],
        X[1, 2, 3, 4:5].reshape(()),
        np.broadcast_to(X[:, :1], (6, 7, 10, 12)),
        np.broadcast_to(np.float32(3), (4, 5)),
        np.lib.stride_tricks.as_strided(X, (100, 7), (4, 8)),
        X[:, :0],
        X[0, 0, 0, 1:],
    ],
)
def test_views_become_dense(lib: wootz.Library, view: Array) -> None:
    """Slices on 16 bytes and off, steps, turned axes, backwards, what repeats and what overlaps; none."""
    for dtype, kind in (("f32", np.float32), ("f16", np.float16), ("i8", np.int8)):
        x = view if kind is np.float32 else _like(view, kind)
        y = lib.kernel("copy_strided", dtype=dtype)(x)
        assert y.flags.c_contiguous
        assert y.dtype == kind
        assert np.array_equal(y, x)


def _like(view: Array, kind: Any) -> Array:
    """A view of other elements, with the same strides in elements, none before the first of X."""
    size = np.dtype(kind).itemsize
    start = (view.__array_interface__["data"][0] - X.__array_interface__["data"][0]) // 4
    inside = 0 <= start < X.size
    base = numbers(X.size + 1000, dtype=kind)
    strides = [stride // 4 * size for stride in view.strides]
    return np.lib.stride_tricks.as_strided(base[start if inside else 0 :], view.shape, strides)


def test_views_that_no_kernel_walks(lib: wootz.Library) -> None:
    copy = lib.kernel("copy_strided", dtype="f32")
    bytes_ = np.zeros(4 * 40 + 1, np.uint8)
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: copy(numbers(3, 3, 3, 3, 3)[::2, ::2, ::2, ::2, ::2]), "crosses 5 axes that do not join"),
        (lambda: copy(bytes_[1:].view(np.float32)), "no multiple of its elements' 4 bytes"),
        (lambda: copy(X.T, out=np.zeros((12, 10, 8, 5), np.float32)), "out has shape"),
        (lambda: copy(X[:, :, :, ::2], out=X.reshape(-1)[: X.size // 2].reshape(6, 8, 10, 6)), "out shares"),
        (lambda: lib.plan("copy_strided", dtype="f32", device="cpu", n=4), "the plan cannot be of copy_str"),
    ]
    for call, message in refused:
        with pytest.raises(ArgumentError) as caught:
            call()
        assert message in str(caught.value)
    with pytest.raises(DtypeError, match="x has elements of type f64; the kernel takes f32"):
        copy(X.T.astype(np.float64))
    with pytest.raises(ArgumentError, match="kernels take dense row-major arrays"):
        lib.kernel("transpose", dtype="f32")(X[0, :, :, ::2])


# ------------------------------------------------------------ products of bytes
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (5, 6, 7), (9, 70, 64), (3, 2, 0), (0, 3, 8), (2, 3, 1001)]
)
def test_products_of_bytes(lib: wootz.Library, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(k)
    x, w = (rng.integers(-128, 128, (rows, k)).astype(np.int8) for rows in (m, n))
    y = lib.kernel("gemm_i8_dp4a", dtype="i8")(x, w)
    assert y.dtype == np.int32
    wanted = [[sum(int(a) * int(b) for a, b in zip(row, column)) for column in w] for row in x]
    assert np.array_equal(y, np.array(wanted, np.int64).reshape(m, n))


def test_the_largest_sum(lib: wootz.Library) -> None:
    """131071 products of -128 and -128 fit an i32, 131072 do not and are refused."""
    least = np.full((1, 131071), -128, np.int8)
    gemm = lib.kernel("gemm_i8_dp4a", dtype="i8")
    assert gemm(least, least)[0, 0] == 131071 * 2**14
    assert gemm(least, -(least + 1))[0, 0] == -131071 * 128 * 127
    longer = np.full((1, 131072), -128, np.int8)
    with pytest.raises(ArgumentError, match="x has k=131072; gemm_i8_dp4a takes k from 0 to 131071"):
        gemm(longer, longer)
