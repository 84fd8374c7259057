"""JAX's arrays as operands, on the CPU. JAX's arrays never change, so results go into memory of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError

jax = pytest.importorskip("jax", reason="JAX is not installed")

N, K = 48, 200


@pytest.fixture(scope="module")
def weights(lib: Any) -> Any:
    w = np.random.default_rng(0).standard_normal((N, K)).astype(np.float32)
    return wootz.quantize(w, lib.format("plain"))


@pytest.fixture
def x() -> Any:
    return jax.numpy.asarray(np.random.default_rng(1).standard_normal((3, K)).astype(np.float32))


def close(y: Any, x: Any, q: Any) -> None:
    want = np.asarray(x, np.float64) @ q.dequantize().astype(np.float64).T
    assert np.abs(y - want).max() < 1e-5 * np.abs(want).max()


def test_operands_come_by_dlpack(lib: Any, weights: Any, x: Any) -> None:
    kernel, y = lib.kernel("qgemv", format="plain", dtype="f32"), np.empty((3, N), np.float32)
    for q in (weights, weights.map(jax.numpy.asarray)):
        y[:] = np.nan
        assert kernel(x, q, out=y) is y
        close(y, x, weights)


def test_what_a_jitted_function_gave(lib: Any, weights: Any, x: Any) -> None:
    y = np.empty((3, N), np.float32)
    lib.kernel("qgemv", format="plain", dtype="f32")(jax.jit(lambda x: 2 * x)(x), weights, out=y)
    close(y, 2 * np.asarray(x), weights)


def test_inside_jit_as_a_callback(lib: Any, weights: Any, x: Any) -> None:
    kernel = lib.kernel("qgemv", format="plain", dtype="f32")

    def multiply(x: Any) -> Any:
        return kernel(np.asarray(x), weights)

    shape = jax.ShapeDtypeStruct((3, N), np.float32)
    y = jax.jit(lambda x: jax.pure_callback(multiply, shape, x))(x)
    close(np.asarray(y), x, weights)


def test_without_out_the_error_says_what_to_pass(lib: Any, weights: Any, x: Any) -> None:
    wanted = r"cannot make arrays of jax: pass out= with memory for the result, float32 \[3, 48\]"
    with pytest.raises(ArgumentError, match=wanted):
        lib.kernel("qgemv", format="plain", dtype="f32")(x, weights)


def test_its_arrays_are_never_written_to(lib: Any, weights: Any, x: Any) -> None:
    y = jax.numpy.zeros((3, N))
    with pytest.raises(
        ArgumentError, match=r"out is an array of jax, whose arrays never change: .*numpy.empty"
    ):
        lib.kernel("qgemv", format="plain", dtype="f32")(x, weights, out=y)
    assert not np.asarray(y).any()
    indices = np.zeros(3, np.int32)
    with pytest.raises(
        ArgumentError, match=r"y is an array of jax, whose arrays never change: .*numpy.empty"
    ):
        lib.kernel("scatter", dtype="f32")(np.ones((3, N), np.float32), indices, y)
    assert not np.asarray(y).any()
