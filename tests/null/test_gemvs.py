"""Vector products of several matrices, of a bank's matrices and of normalised rows, as the loader calls them
on the CPU: beside qgemv and rms_norm, beside plain float64, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError, DtypeError, FormatError
from wootz.formats import QuantizedTensor, from_fields
from wootz.groups import check_indices
from wootz.signature import Signature

from gen.cli import main

MANIFEST = """\
version: 1
targets: {cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}}
formats:
  levels: {element: e2m1, block: 16, scale: {type: e4m3, block: tensor, scale: f32}}
  squares: {element: e4m3, block: [128, 128], scale: f32}
kernels:
  qgemv: {dtypes: [f16, f32], formats: all}
  qgemv_batched: {dtypes: [f32], formats: all}
  moe_gather_qgemv: {dtypes: [f32], formats: all}
  rms_norm: {dtypes: [f16, f32]}
  rms_norm_qgemv: {dtypes: [f16, f32], formats: [levels]}
profiles: {default: {}}
"""
Array = Any
FORMATS = ("levels", "squares")


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    folder = tmp_path_factory.mktemp("gemvs")
    (folder / "mine.yaml").write_text(MANIFEST)
    assert main(["build", "--manifest", str(folder / "mine.yaml"), "--out", str(folder / "out")]) == 0
    return wootz.load(folder / "out")


def random(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def quantised(lib: wootz.Library, format: str, n: int, k: int, seed: int = 0) -> QuantizedTensor:
    return wootz.quantize(random(n, k, seed=seed) * 2.0**seed, lib.format(format))


def bank(lib: wootz.Library, format: str, experts: int, n: int, k: int) -> Any:
    return wootz.stack(quantised(lib, format, n, k, seed) for seed in range(experts))


def close(found: Array, wanted: Array, most: float) -> None:
    assert np.abs(np.asarray(found, np.float64) - wanted).max() <= most * np.abs(wanted).max()


# ------------------------------------------------------------ several matrices
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("m", [1, 2, 8])
@pytest.mark.parametrize("rows", [(1, 1, 1), (130, 7, 129), (5, 300), (300, 5)])
def test_the_bits_of_one_matrix_after_another(
    lib: wootz.Library, format: str, m: int, rows: tuple[int, ...]
) -> None:
    k, one = 300, lib.kernel("qgemv", format, "f32")
    x, weights = random(m, k), [quantised(lib, format, n, k, i) for i, n in enumerate(rows)]
    y = lib.kernel("qgemv_batched", format, "f32")(x, *weights)
    assert y.shape == (m, sum(rows))
    np.testing.assert_array_equal(y, np.hstack([one(x, w) for w in weights]))
    close(y, x.astype(np.float64) @ np.vstack([w.dequantize() for w in weights]).T, 1e-6)


def test_no_rows_and_a_plan_with_two_matrices_and_with_three(lib: wootz.Library) -> None:
    kernel, w = lib.kernel("qgemv_batched", "levels", "f32"), quantised(lib, "levels", 5, 64)
    assert kernel(random(0, 64), w, w).shape == (0, 10)
    x, sizes = random(2, 64), {"m": 2, "n0": 5, "n1": 5, "k": 64}
    two = lib.plan("qgemv_batched", format="levels", dtype="f32", device="cpu", **sizes)
    three = lib.plan("qgemv_batched", format="levels", dtype="f32", device="cpu", n2=5, w2=True, **sizes)
    for _ in range(2):
        np.testing.assert_array_equal(two(x, w, w), kernel(x, w, w))
        np.testing.assert_array_equal(three(x, w, w, w2=w), kernel(x, w, w, w2=w))
    with pytest.raises(ArgumentError, match="w2 is given; the plan was made without it"):
        two(x, w, w, w)
    with pytest.raises(ArgumentError, match="w2 is not given; the plan was made with it"):
        three(x, w, w)


def test_matrices_that_differ_are_refused_by_name(lib: wootz.Library) -> None:
    kernel = lib.kernel("qgemv_batched", "levels", "f32")
    x, w = random(2, 64), quantised(lib, "levels", 5, 64)
    with pytest.raises(FormatError, match="w1 has format squares; the kernel takes levels"):
        kernel(x, w, quantised(lib, "squares", 5, 64))
    with pytest.raises(FormatError, match="w2 has format squares; the kernel takes levels"):
        kernel(x, w, w, w2=quantised(lib, "squares", 5, 64))
    with pytest.raises(ArgumentError, match="w1 has k=80, x has k=64"):
        kernel(x, w, quantised(lib, "levels", 5, 80))
    with pytest.raises(ArgumentError, match="takes w1 as well"):
        kernel(x, w)
    with pytest.raises(ArgumentError, match="x has m=9; qgemv_batched takes m from 0 to 8"):
        kernel(random(9, 64), w, w)
    with pytest.raises(ArgumentError, match="w0 has 3 dimensions"):
        kernel(x, wootz.stack([w, w]), w)
    with pytest.raises(ArgumentError, match=r"out has shape \[2, 5\]; want \[2, 10\]"):
        kernel(x, w, w, out=np.empty((2, 5), np.float32))


# ------------------------------------------------------------ a bank
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 300), (200, 130)])
def test_each_row_has_the_bits_of_its_expert(lib: wootz.Library, format: str, n: int, k: int) -> None:
    w, chosen = bank(lib, format, 3, n, k), np.int32([2, 0, 2, -1, 1, 3, 2**31 - 1, -(2**31), 0])
    x, one = random(len(chosen), k), lib.kernel("qgemv", format, "f32")
    y = np.full((len(chosen), n), np.nan, np.float32)
    lib.kernel("moe_gather_qgemv", format, "f32")(x, w, chosen, out=y)
    values = w.dequantize().astype(np.float64)
    for i, expert in enumerate(chosen):
        if 0 <= expert < 3:
            alone = w.matrix(int(expert)).map(np.copy)
            np.testing.assert_array_equal(y[i : i + 1], one(np.copy(x[i : i + 1]), alone))
            close(y[i], values[expert] @ x[i], 1e-6)
        else:
            assert not y[i].any()


def test_a_plan_of_a_bank_and_no_rows(lib: wootz.Library) -> None:
    kernel, w = lib.kernel("moe_gather_qgemv", "levels", "f32"), bank(lib, "levels", 2, 5, 64)
    assert kernel(random(0, 64), w, np.int32([])).shape == (0, 5)
    sizes = {"t": 3, "experts": 2, "n": 5, "k": 64}
    plan = lib.plan("moe_gather_qgemv", format="levels", dtype="f32", device="cpu", **sizes)
    x, chosen = random(3, 64), np.int32([1, 1, 0])
    for _ in range(2):
        np.testing.assert_array_equal(plan(x, w, chosen), kernel(x, w, chosen))
    with pytest.raises(ArgumentError, match="w has experts=3; the plan was made for experts=2"):
        plan(x, bank(lib, "levels", 3, 5, 64), chosen)


def test_a_row_with_no_expert_is_zero_whatever_it_holds(lib: wootz.Library) -> None:
    x = np.full((2, 64), np.nan, np.float32)
    w = bank(lib, "levels", 2, 5, 64)
    y = lib.kernel("moe_gather_qgemv", "levels", "f32")(x, w, np.int32([7, 1]))
    assert not y[0].any()
    assert np.isnan(y[1]).all()
    with pytest.raises(ArgumentError, match=r"indices\[0\]: wanted 0 to 1, .* got 7"):
        check_indices(np.int32([7, 1]), w.shape[0])


def test_what_is_no_bank_is_refused(lib: wootz.Library) -> None:
    kernel, w = lib.kernel("moe_gather_qgemv", "levels", "f32"), bank(lib, "levels", 2, 5, 64)
    x, chosen = random(2, 64), np.int32([0, 1])
    with pytest.raises(ArgumentError, match=r"w has 2 dimensions \[5, 64\]; moe_gather_qgemv\(.*\) takes 3"):
        kernel(x, w.matrix(0), chosen)
    with pytest.raises(ArgumentError, match=r"w has 3 dimensions \[2, 5, 64\]; qgemv\(.*\) takes 2"):
        lib.kernel("qgemv", "levels", "f32")(x, w)
    packed = wootz.stack(map(wootz.prepack, w.matrices()))
    with pytest.raises(ArgumentError, match="w is in the packed layout; moe_gather_qgemv takes the natural"):
        kernel(x, packed, chosen)
    with pytest.raises(FormatError, match="w has format squares; the kernel takes levels"):
        kernel(x, bank(lib, "squares", 2, 5, 64), chosen)
    with pytest.raises(ArgumentError, match="w has k=80, x has k=64"):
        kernel(x, bank(lib, "levels", 2, 5, 80), chosen)
    with pytest.raises(ArgumentError, match="indices has t=3, x has t=2"):
        kernel(x, w, np.int32([0, 1, 0]))
    with pytest.raises(DtypeError, match="indices has elements of type i64"):
        kernel(x, w, np.array([0, 1]))
    fields = {**w.fields, "scale1": w.fields["scale1"][:1]}
    with pytest.raises(ArgumentError, match=r"field scale1: wanted shape \(2, 1, 1\) for 5x64; got"):
        QuantizedTensor(w.format, w.shape, fields)


# ------------------------------------------------------------ normalised rows
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 70, 4201), (3, 33, 520), (8, 40, 2100)])
def test_normalised_and_multiplied(lib: wootz.Library, dtype: Any, m: int, n: int, k: int) -> None:
    """Beside plain float64 with the activations rounded, and beside the two kernels one after the other."""
    short, most = ("f16", 2e-3) if dtype is np.float16 else ("f32", 3e-6)
    x, weight, w = random(m, k, dtype=dtype), random(k, dtype=dtype), quantised(lib, "levels", n, k)
    fused = lib.kernel("rms_norm_qgemv", "levels", short)
    y = fused(x, weight, w, eps=0.01)
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + 0.01)
    normed = (wide * scale * weight.astype(np.float64)).astype(dtype).astype(np.float64)
    close(y, normed @ w.dequantize().astype(np.float64).T, most)
    apart = lib.kernel("rms_norm", None, short)(x, weight, eps=0.01)
    close(y, lib.kernel("qgemv", "levels", short)(apart, w).astype(np.float64), most)


def test_normalised_rows_that_are_not_numbers(lib: wootz.Library) -> None:
    x, weight, w = random(4, 300), random(300), quantised(lib, "levels", 9, 300)
    x[1, 7], x[2, 8], x[3] = np.nan, -np.inf, 0.0
    y = lib.kernel("rms_norm_qgemv", "levels", "f32")(x, weight, w)
    assert np.isfinite(y[0]).all()
    assert np.isnan(y[1:3]).all()
    assert not y[3].any()


def test_normalised_rows_that_do_not_fit_are_refused(lib: wootz.Library) -> None:
    kernel, w = lib.kernel("rms_norm_qgemv", "levels", "f32"), quantised(lib, "levels", 5, 64)
    assert kernel(random(0, 64), random(64), w).shape == (0, 5)
    with pytest.raises(ArgumentError, match="weight has k=63, x has k=64"):
        kernel(random(2, 64), random(63), w)
    with pytest.raises(ArgumentError, match="w has k=80, x has k=64"):
        kernel(random(2, 64), random(64), quantised(lib, "levels", 5, 80))
    with pytest.raises(ArgumentError, match="x has m=9; rms_norm_qgemv takes m from 0 to 8"):
        kernel(random(9, 64), random(64), w)
    with pytest.raises(FormatError, match="w has format squares"):
        kernel(random(2, 64), random(64), quantised(lib, "squares", 5, 64))


def test_signatures(lib: wootz.Library) -> None:
    spelt = {each["key"]: str(Signature.parse(each)) for each in lib.index.records("kernels")}
    assert spelt["qgemv_batched"] == "qgemv_batched(x[m, k], w0[n0, k], w1[n1, k], w2[n2, k]?)"
    assert spelt["moe_gather_qgemv"] == "moe_gather_qgemv(x[t, k], w[experts, n, k], indices[t])"
    assert spelt["rms_norm_qgemv"] == "rms_norm_qgemv(x[m, k], weight[k], w[n, k], eps=)"


def test_from_fields_takes_matrices(lib: wootz.Library) -> None:
    w = bank(lib, "levels", 2, 5, 64)
    with pytest.raises(ArgumentError, match="shape: wanted"):
        from_fields(w.format, w.shape, w.fields)
