"""Plans on torch's tensors, on the CPU: what is read the fast way, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError, DtypeError

from tests.null import loader_tools as tools

torch: Any = pytest.importorskip("torch")

M, N, K = 2, 5, 16


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    return wootz.load(tools.cpu_folder(tmp_path_factory.mktemp("plans") / "a", tools.image()))


@pytest.fixture
def plan(lib: wootz.Library) -> wootz.Plan:
    return lib.plan("qgemv", format="toy", device="cpu", m=M, n=N, k=K)


@pytest.fixture
def q(lib: wootz.Library) -> wootz.QuantizedTensor:
    return tools.quantized(lib, N, K).map(torch.from_numpy)


def fast_only(plan: wootz.Plan) -> wootz.Plan:
    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("this call went the careful way")

    plan._careful = fail  # type: ignore[method-assign]
    return plan


needs_table = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this torch has no table of functions"
)


@needs_table
def test_tensors_and_parameters_are_read_the_fast_way(plan: wootz.Plan, q: wootz.QuantizedTensor) -> None:
    x = torch.from_numpy(tools.random(M, K))
    want = x.numpy() @ q.dequantize().T
    fast_only(plan)
    y = plan(x, q)
    assert type(y) is torch.Tensor
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-5)
    held = q.map(lambda a: torch.nn.Parameter(a, requires_grad=False))
    out = torch.full((M, N), float("nan"))
    assert plan(torch.nn.Parameter(x, requires_grad=False), held, out=out) is out
    assert torch.equal(out, y)


@needs_table
def test_types_without_names_in_numpy(lib: wootz.Library) -> None:
    plan = fast_only(lib.plan("copy", dtype="bf16", device="cpu", n=40))
    x = torch.randn(40).bfloat16()
    assert torch.equal(plan(x), x)


@needs_table
def test_a_mix_of_libraries_on_the_cpu(plan: wootz.Plan, q: wootz.QuantizedTensor) -> None:
    x, out = tools.random(M, K), torch.empty(M, N)
    fast_only(plan)(x, q, out=out)
    np.testing.assert_allclose(out.numpy(), x @ q.dequantize().T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (lambda x: x.requires_grad_(), ArgumentError, r"x requires gradients.*x\.detach\(\)"),
        (lambda x: torch.nn.Parameter(x), ArgumentError, "x requires gradients"),
        (lambda x: torch._neg_view(x), ArgumentError, r"x has its neg bit set: pass x\.resolve_neg\(\)"),
        (lambda x: x.to(torch.complex64), DtypeError, "x has elements of type complex64"),
        (lambda x: x.to(torch.complex64).conj(), ArgumentError, "x has its conj bit set"),
        (lambda x: x.double(), DtypeError, "x has elements of type f64"),
        (lambda x: x.to(torch.float8_e4m3fnuz), DtypeError, "x has elements of type float8_e4m3fnuz"),
        (lambda x: x.to(torch.float8_e5m2fnuz), DtypeError, "x has elements of type float8_e5m2fnuz"),
        (lambda x: x.T.contiguous().T, ArgumentError, "x has strides"),
        (lambda x: x[:1], ArgumentError, "x has m=1; the plan was made for m=2"),
        (lambda x: x.to("meta"), Exception, "x"),
        (lambda x: x.to_sparse(), ArgumentError, "x "),
    ],
)  # fmt: skip
def test_bad_tensors_are_named(
    plan: wootz.Plan, q: wootz.QuantizedTensor, spoil: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        plan(spoil(torch.from_numpy(tools.random(M, K))), q)
    kernel = lambda: plan._kernel(spoil(torch.from_numpy(tools.random(M, K))), q)  # noqa: E731
    if "plan" not in says:
        with pytest.raises(error, match=says):
            kernel()


def test_packed_floats_are_named(plan: wootz.Plan, q: wootz.QuantizedTensor) -> None:
    kind = getattr(torch, "float4_e2m1fn_x2", None)
    if kind is None:
        pytest.skip("this torch has no packed 4-bit floats")
    x = torch.zeros(M, K, dtype=torch.uint8).view(kind)
    with pytest.raises(DtypeError, match="x has elements of type float4_e2m1fn"):
        plan(x, q)


class Wrapper(torch.Tensor):
    """A tensor with no memory of its own."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise AssertionError("no operation of it may run")


class Plain(torch.Tensor):
    """A subclass with nothing of its own."""


def test_wrappers_are_refused_by_name(plan: wootz.Plan, q: wootz.QuantizedTensor) -> None:
    x = torch.from_numpy(tools.random(M, K))
    with pytest.raises(ArgumentError, match=r"x is a Wrapper.*pass the plain torch\.Tensor.*to_local\(\)"):
        plan(Wrapper(x), q)
    with pytest.raises(ArgumentError, match="out is a Wrapper"):
        plan(x, q, out=Wrapper(torch.empty(M, N)))
    with pytest.raises(ArgumentError, match=r"w\.codes is a Wrapper"):
        plan(x, _with_codes(q, Wrapper(q.fields["codes"])))
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(M, K)
    with pytest.raises(ArgumentError, match="x is a FakeTensor"):
        plan(fake, q)


def _with_codes(q: wootz.QuantizedTensor, codes: Any) -> wootz.QuantizedTensor:
    return wootz.QuantizedTensor(q.format, q.shape, {**q.fields, "codes": codes})


def test_other_subclasses_go_the_careful_way(plan: wootz.Plan, q: wootz.QuantizedTensor) -> None:
    x = torch.from_numpy(tools.random(M, K))
    assert torch.equal(plan(x.as_subclass(Plain), q), plan(x, q))
    with pytest.raises(AssertionError, match="careful way"):
        fast_only(plan)(x.as_subclass(Plain), q)


def test_importing_wootz_imports_no_torch(tmp_path: Path) -> None:
    import subprocess

    code = "import sys, wootz; wootz.Plan; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
