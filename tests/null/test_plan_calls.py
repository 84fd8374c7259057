"""Plans on the CPU: what they take, what they refuse, and what they say about themselves."""

from __future__ import annotations

import copy
import json
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError, DeviceError, DtypeError, FormatError, NoKernelError

from tests.null import loader_tools as tools

F32 = np.float32
M, N, K = 2, 5, 16


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    return wootz.load(tools.cpu_folder(tmp_path_factory.mktemp("plans") / "a", tools.image()))


def qgemv(lib: wootz.Library, m: int = M, **more: Any) -> wootz.Plan:
    return lib.plan("qgemv", format="toy", **{"device": "cpu", "m": m, "n": N, "k": K, **more})


def want(x: Any, q: wootz.QuantizedTensor) -> Any:
    return x @ q.dequantize().T


# ---- what they compute


@pytest.mark.parametrize("m", [1, 2, 8])
def test_a_plan_computes_what_its_kernel_does(lib: wootz.Library, m: int) -> None:
    plan, x, q = qgemv(lib, m), tools.random(m, K), tools.quantized(lib, N, K)
    y = plan(x, q)
    assert np.array_equal(y, lib.kernel("qgemv", format="toy")(x, q))
    np.testing.assert_allclose(y, want(x, q), rtol=1e-5, atol=1e-5)
    out = np.full((m, N), np.nan, F32)
    assert plan(x, q, out=out) is out
    assert plan(w=q, x=x, out=out) is out
    assert np.array_equal(out, y)


def test_operands_of_any_rank(lib: wootz.Library) -> None:
    plan = lib.plan("binary", op="add", device="cpu", n=60)
    for shape in ((60,), (3, 20), (5, 2, 6), (60, 1)):
        a, b = tools.random(*shape), tools.random(*shape)
        assert np.array_equal(plan(a, b), a + b)
        assert plan(a, b, out=a) is a, "this kernel works in place"
    with pytest.raises(ArgumentError, match=r"n=61; the plan was made for n=60"):
        plan(tools.random(61), tools.random(61))
    with pytest.raises(ArgumentError, match=r"b has shape \[60\], a has \[3, 20\]"):
        plan(tools.random(3, 20), tools.random(60))
    with pytest.raises(ArgumentError, match=r"out has shape \[60\]; want \[3, 20\]"):
        plan(tools.random(3, 20), tools.random(3, 20), out=tools.random(60))


def test_no_rows_launch_nothing(lib: wootz.Library) -> None:
    plan, q = qgemv(lib, 0), tools.quantized(lib, N, K)
    assert plan(np.zeros((0, K), F32), q).shape == (0, N)
    out = np.zeros((0, N), F32)
    assert plan(np.zeros((0, K), F32), q, out=out) is out
    assert plan.bind(np.zeros((0, K), F32), q, out=out)() is out
    assert plan.describe()["symbol"] is None
    with pytest.raises(ArgumentError, match="m=1; the plan was made for m=0"):
        plan(np.zeros((1, K), F32), q)


def test_a_bound_plan_keeps_its_arrays(lib: wootz.Library) -> None:
    x, q = tools.random(M, K), tools.quantized(lib, N, K)
    y, out = want(x, q), np.empty((M, N), F32)
    bound = qgemv(lib).bind(x.copy(), q.map(np.copy), out=out)
    trash = [np.full((M, K), np.nan, F32) for _ in range(50)]
    del trash
    for _ in range(3):
        out.fill(np.nan)
        assert bound() is out
        np.testing.assert_allclose(out, y, rtol=1e-5, atol=1e-5)
    made = qgemv(lib).bind(x, q)
    assert made.out is made()
    with pytest.raises(ArgumentError, match="stream is for CUDA"):
        bound(stream=3)


def test_a_bound_plan_reads_its_arrays_at_each_launch(lib: wootz.Library) -> None:
    x, q = tools.random(M, K), tools.quantized(lib, N, K)
    bound = qgemv(lib).bind(x, q)
    first = bound().copy()
    x *= 2
    assert np.array_equal(bound(), 2 * first)


# ---- what they refuse


def aligned(shape: tuple[int, ...], offset: int = 0) -> Any:
    raw = np.zeros(4 * int(np.prod(shape)) + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + 4 * int(np.prod(shape))].view(F32).reshape(shape)


def locked(array: Any) -> Any:
    array.flags.writeable = False
    return array


X = tools.random(M, K)
Bad = Callable[[wootz.Library, wootz.Plan, wootz.QuantizedTensor], Any]
BAD: dict[str, tuple[Bad, type[Exception], str]] = {
    "extent": (lambda _, p, q: p(tools.random(3, K), q), ArgumentError, "x has m=3; .* made for m=2"),
    "limits": (lambda _, p, q: p(tools.random(9, K), q), ArgumentError, "m from 0 to 8"),
    "weights": (
        lambda lib, p, q: p(tools.random(M, 20), tools.quantized(lib, N, 20)),
        ArgumentError,
        "x has k=20; the plan was made for k=16",
    ),
    "rank": (lambda _, p, q: p(X[0], q), ArgumentError, "x has 1 dimensions"),
    "dtype": (lambda _, p, q: p(X.astype(np.float64), q), DtypeError, "x has elements of type f64"),
    "order": (lambda _, p, q: p(X.astype(">f4"), q), DtypeError, "x has big-endian elements"),
    "strides": (lambda _, p, q: p(tools.random(M, 2 * K)[:, ::2], q), ArgumentError, "x has strides"),
    "alignment": (lambda _, p, q: p(aligned((M, K), 4), q), ArgumentError, "x starts at address"),
    "list": (lambda _, p, q: p(X.tolist(), q), ArgumentError, "x is a list; want an array"),
    "tensor": (lambda _, p, q: p(q, q), ArgumentError, "x is a quantised tensor"),
    "array": (lambda _, p, q: p(X, X), ArgumentError, "w is a ndarray; want a QuantizedTensor"),
    "few": (lambda _, p, q: p(X), ArgumentError, r"got 1 operands; qgemv\(.*\) takes w as well"),
    "many": (lambda _, p, q: p(X, q, q), ArgumentError, "got 3 operands; .* takes 2"),
    "twice": (lambda _, p, q: p(X, q, w=q), ArgumentError, "w is given twice"),
    "keyword": (lambda _, p, q: p(X, q, ouut=X), ArgumentError, "no argument 'ouut'; did you mean 'out'"),
    "none": (lambda _, p, q: p(None, q), ArgumentError, "x is a NoneType; want an array"),
    "out shape": (
        lambda _, p, q: p(X, q, out=np.empty((N, M), F32)),
        ArgumentError,
        r"out has shape \[5, 2\]; want \[2, 5\]",
    ),
    "out dtype": (lambda _, p, q: p(X, q, out=np.empty((M, N))), DtypeError, "out has elements of type f64"),
    "read-only": (lambda _, p, q: p(X, q, out=locked(np.empty((M, N), F32))), ArgumentError, "read-only"),
    "overlap": (
        lambda _, p, q: (lambda a: p(a[: M * K].reshape(M, K), q, out=a[16 : 16 + M * N].reshape(M, N)))(
            aligned((64,))
        ),
        ArgumentError,
        "out shares memory with x; the kernel cannot work in place",
    ),
    "stream": (lambda _, p, q: p(X, q, stream=0), ArgumentError, "stream is for CUDA devices"),
    "kind of stream": (lambda _, p, q: p(X, q, stream="a"), ArgumentError, "stream is a str"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(lib: wootz.Library, name: str) -> None:
    call, error, message = BAD[name]
    plan, q = qgemv(lib), tools.quantized(lib, N, K)
    with pytest.raises(error, match=message):
        call(lib, plan, q)
    bound = plan.bind(X, q)
    plan(X, q)
    assert np.array_equal(bound(), plan(X, q)), "a call that failed leaves the plan as it was"


def test_arrays_of_another_device(lib: wootz.Library) -> None:
    class Gpu:
        shape = (M, K)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("not from here")

    with pytest.raises(ArgumentError, match="x does not give its memory away"):
        qgemv(lib)(Gpu(), tools.quantized(lib, N, K))


def test_another_format(lib: wootz.Library) -> None:
    raw = {**tools.DESCRIPTOR, "name": "other"}
    other = wootz.quantize(tools.random(N, K), wootz.formats.Descriptor.parse(raw))
    with pytest.raises(FormatError, match="w has format other; the kernel takes toy"):
        qgemv(lib)(X, other)


def test_an_equal_format_is_taken(lib: wootz.Library) -> None:
    """Formats that are equal are one object, and a plan looks for no other."""
    same = wootz.quantize(tools.random(N, K), wootz.formats.Descriptor.parse(copy.deepcopy(tools.DESCRIPTOR)))
    assert same.format is lib.format("toy")
    np.testing.assert_allclose(qgemv(lib)(X, same), want(X, same), rtol=1e-5, atol=1e-5)


ASKED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "missing": ({"m": 1, "n": 2}, ArgumentError, "the plan needs k= of qgemv"),
    "limits": ({"m": 9, "n": 2, "k": 4}, ArgumentError, "the plan has m=9; qgemv takes m from 0 to 8"),
    "negative": ({"m": -1, "n": 2, "k": 4}, ArgumentError, "m is -1; want an extent"),
    "no number": ({"m": 1.0, "n": 2, "k": 4}, ArgumentError, "m is 1.0; want an extent"),
    "unknown": ({"m": 1, "n": 2, "k": 4, "q": 1}, ArgumentError, "qgemv has no argument 'q'"),
    "variant": ({"m": 2, "n": 2, "k": 8192}, ArgumentError, "no variant for .* on cpu: it takes"),
    "device": ({"m": 1, "n": 2, "k": 4, "device": "tpu"}, DeviceError, "device is 'tpu'"),
    "shipped": ({"m": 1, "n": 2, "k": 4, "device": "metal"}, NoKernelError, "no binary for metal"),
}


@pytest.mark.parametrize("name", ASKED)
def test_plans_that_cannot_be(lib: wootz.Library, name: str) -> None:
    asked, error, message = ASKED[name]
    with pytest.raises(error, match=message):
        lib.plan("qgemv", format="toy", **{"device": "cpu", **asked})


def test_names_that_cannot_be(lib: wootz.Library) -> None:
    with pytest.raises(NoKernelError, match=r"no kernel 'qgemw'.*did you mean 'qgemv'"):
        lib.plan("qgemw", device="cpu")
    with pytest.raises(ArgumentError, match="needs the option op="):
        lib.plan("binary", device="cpu", n=3)
    with pytest.raises(TypeError, match="device"):
        lib.plan("copy", n=3)  # type: ignore[call-arg]


# ---- what they are


def test_a_plan_describes_itself(lib: wootz.Library) -> None:
    plan = qgemv(lib)
    assert (plan.name, plan.device, plan.workspace_bytes) == ("qgemv/toy/f32", "cpu", 0)
    assert plan.shapes == {"m": M, "n": N, "k": K}
    assert str(plan.signature) == "qgemv(x[m, k], w[n, k])"
    assert "qgemv/toy/f32 on cpu" in repr(plan)
    told = json.loads(json.dumps(plan.describe()))
    assert told["symbol"] == "gemv_many"
    assert told["grid"] == [N, 1, 1]
    assert told["evidence"] == ["emitted"]
    assert told["file"] == "cpu/kernels.so"
    assert told["operands"] == {
        "x": {"shape": [M, K], "dtype": "f32", "alignment": 16},
        "w.codes": {"shape": [N, 16], "dtype": "u8", "alignment": 16},
        "w.scale": {"shape": [N, 4], "dtype": "f32", "alignment": 16},
        "y": {"shape": [M, N], "dtype": "f32", "alignment": 16},
    }


def test_plans_are_exported() -> None:
    assert wootz.Plan.__module__ == "wootz.plan"
    assert "Plan" in dir(wootz)


def test_calls_with_out_allocate_nothing_that_stays(lib: wootz.Library) -> None:
    plan, q, out = qgemv(lib), tools.quantized(lib, N, K), np.empty((M, N), F32)
    bound = plan.bind(X, q, out=out)
    for call in (lambda: plan(X, q, out=out), bound):
        for _ in range(10):
            call()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            call()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert grown < 4000, "200 calls that each keep something keep more"


def test_threads_share_a_plan(lib: wootz.Library) -> None:
    plan, q = qgemv(lib, 8), tools.quantized(lib, N, K)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((8, K)).astype(F32)
        out, expected = np.empty((8, N), F32), want(x, q)
        for _ in range(200):
            out.fill(np.nan)
            plan(x, q, out=out)
            if not np.allclose(out, expected, rtol=1e-5, atol=1e-5):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert not wrong


def test_a_kernel_keeps_minus_zero_apart(tmp_path: Path) -> None:
    from wootz.program import Program, Recipe

    made: list[Any] = []
    program = Program("k", None, None, (), (), {}, "")  # type: ignore[arg-type]
    object.__setattr__(program, "device", type("D", (), {"sms": 1})())
    object.__setattr__(program, "_choose", lambda values, arrays: made.append(values) or Recipe)
    for alpha in (0.0, -0.0, 0.0, float("nan"), float("nan")):
        program.recipe({"alpha": alpha}, {})
    assert len(made) == 3
