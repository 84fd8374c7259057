"""wootz.torch on the CPU: the ops, and QuantLinear. On a device: tests/gpu/test_torch.py."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz.errors import ArgumentError, ArtifactError, DeviceError, DtypeError, FormatError, NoKernelError

torch = pytest.importorskip("torch", reason="wootz.torch needs torch, which is not installed: wootz[torch]")

import wootz.torch as wt  # noqa: E402

N, K = 48, 200
NAMESPACE = "wootz_frameworks"


@pytest.fixture(scope="module")
def ops(lib: Any) -> Any:
    return wt.register(lib, NAMESPACE)


def quantised(lib: Any, format: str, seed: int = 0, n: int = N, k: int = K) -> Any:
    w = np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32)
    return wootz.quantize(w, lib.format(format)).map(torch.from_numpy)


def layer(lib: Any, format: str = "plain", seed: int = 0, bias: bool = True) -> Any:
    b = torch.linspace(-1, 1, N) if bias else None
    return wt.QuantLinear(quantised(lib, format, seed), b, namespace=NAMESPACE)


def product(x: Any, q: Any) -> Any:
    return x.double() @ torch.from_numpy(q.dequantize()).double().T


def close(y: Any, want: Any) -> None:
    unit = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-24}[y.dtype]
    assert y.shape == want.shape
    scale = max(1.0, float(want.abs().max())) if want.numel() else 1.0
    assert not y.numel() or float((y.double() - want).abs().max()) < 8 * unit * scale


# ---- the ops


@pytest.mark.parametrize("format", ["plain", "levels"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(0, K), (1, K), (3, K), (8, K), (9, K), (2, 33, K), (0, 4, K), (K,)])
def test_linear_takes_any_number_of_rows(lib: Any, ops: Any, format: str, dtype: Any, shape: Any) -> None:
    q, x = quantised(lib, format), torch.randn(shape).to(dtype)
    y = ops.linear(x, q)
    assert y.dtype == dtype
    close(y, product(x, q))


def test_the_index_says_which_kernel_takes_the_rows(lib: Any, ops: Any) -> None:
    def rule(layout: str, dtype: str) -> Any:
        return [(p.request.name, p.most) for p in ops.dispatch.products(layout, "plain", dtype, "cpu")]

    assert rule("quantised", "f16") == [("qgemv", 8), ("qmm", None)]
    assert rule("quantised", "f32") == [("qgemv", 8)]
    with pytest.raises(
        NoKernelError, match="no product of bf16 activations and plain weights in the natural"
    ):
        rule("quantised", "bf16")
    with pytest.raises(NoKernelError, match=r"the packed layout on cpu; .* ships: none in this layout"):
        rule("packed", "f16")


def test_a_problem_that_comes_again_has_a_plan(lib: Any, ops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    plan = type(lib).plan
    monkeypatch.setattr(type(lib), "plan", lambda *a, **named: made.append(named) or plan(*a, **named))
    q, x = quantised(lib, "plain"), torch.randn(7, K).half()
    results = [ops.linear(x, q) for _ in range(4)]
    assert [(each["m"], each["n"], each["k"]) for each in made] == [(7, N, K)]
    assert all(torch.equal(each, results[0]) for each in results)


def test_plans_are_bounded() -> None:
    from wootz.torch.plans import Plans

    plans, made = Plans(2), iter(range(9))
    assert [plans.find("a", lambda: next(made)) for _ in range(3)] == [None, 0, 0]
    assert [plans.find(name, lambda: next(made)) for name in "bcab"] == [None] * 4
    assert len(plans._known) == 2
    assert plans.find("b", lambda: next(made)) == 1


def test_every_kernel_is_a_function(lib: Any, ops: Any) -> None:
    q, x = quantised(lib, "levels"), torch.randn(3, K)
    close(ops.qgemv(x, q), product(x, q))
    close(ops.qmm(torch.randn(20, K).half() * 0, q), torch.zeros(20, N).double())
    assert torch.equal(ops.dequant(q, dtype=torch.float32), torch.from_numpy(q.dequantize()))
    packed, want = ops.prepack(q), wootz.prepack(q)
    assert isinstance(packed, wootz.PackedTensor)
    assert all(np.array_equal(packed.fields[name], each) for name, each in want.fields.items())
    w = torch.randn(32, 64).half()
    close(ops.gemv(x[:, :64].half(), w), x[:, :64].half().double() @ w.double().T)
    assert {"dequant", "linear", "qmm"} <= set(dir(ops))
    assert NAMESPACE in repr(ops)


def test_a_quantised_operand_that_may_be_left_out(lib: Any, ops: Any) -> None:
    x, (a, b, c) = torch.randn(2, K), (quantised(lib, "levels", i, n) for i, n in enumerate((5, 9, 130)))
    for _ in range(2):  # twice, for what is met again has a plan
        three, two = ops.qgemv_batched(x, a, b, c), ops.qgemv_batched(x, a, b)
        assert torch.equal(three, torch.cat([ops.qgemv(x, each) for each in (a, b, c)], 1))
        assert torch.equal(two, three[:, :14])
        assert torch.equal(ops.qgemv_batched(x, a, b, w2=c), three)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: ops.qgemv_batched(x, a, b) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), two + 1)
    op = getattr(torch.ops, NAMESPACE).qgemv_batched.default
    for weights in ((a, b), (a, b, c)):
        args = (x, *(each for w in weights for each in flat(w)))
        assert set(torch.library.opcheck(op, args, {}).values()) == {"SUCCESS"}
    with pytest.raises(FormatError, match="w1 has format plain; the kernel takes levels"):
        ops.qgemv_batched(x, a, quantised(lib, "plain", 0, 9))


def test_a_bank_in_the_natural_layout(lib: Any, ops: Any) -> None:
    members = [quantised(lib, "levels", i) for i in range(3)]
    bank, x = wootz.stack(members).map(torch.from_numpy), torch.randn(4, K)
    y = ops.moe_gather_qgemv(x, bank, torch.tensor([2, 0, 5, 2], dtype=torch.int32))
    for i, expert in enumerate((2, 0, None, 2)):
        row = torch.zeros(1, N) if expert is None else ops.qgemv(x[i : i + 1], members[expert])
        assert torch.equal(y[i : i + 1], row)
    with pytest.raises(ArgumentError, match="weight is a bank of 3; want a matrix"):
        wt.QuantLinear(bank, namespace=NAMESPACE)
    with pytest.raises(ArgumentError, match="w is a bank of 3; want a matrix"):
        ops.linear(x, bank)


@pytest.mark.parametrize("rows", [0, 5])
def test_activations_become_a_tiled_tensor(lib: Any, ops: Any, rows: int) -> None:
    x, level = torch.randn(rows, 256), torch.full((1, 1), 0.5)
    tiled = ops.quantize_activations(x, scale1=level, format="levels")
    want = lib.kernel("quantize_activations", format="levels", dtype="f32")(x.numpy(), scale1=level.numpy())
    assert isinstance(tiled, wootz.TiledTensor)
    assert tiled.fields["scale1"] is level
    assert all(np.array_equal(tiled.fields[name], each) for name, each in want.fields.items())


@pytest.mark.parametrize("format", ["plain", "levels"])
def test_a_matrix_is_quantised(lib: Any, ops: Any, format: str) -> None:
    x = torch.randn(5, 200)
    made, want = ops.quantize(x, format=format), wootz.quantize(x, lib.format(format))
    assert isinstance(made, wootz.QuantizedTensor)
    assert set(made.fields) == set(want.fields)
    assert all(torch.equal(made.fields[name], torch.from_numpy(each)) for name, each in want.fields.items())


def test_rows_of_a_quantised_matrix(lib: Any, ops: Any) -> None:
    q, indices = quantised(lib, "plain"), torch.tensor([3, 0, -1, 3, N], dtype=torch.int32)
    found, every = ops.dequant_gather(q, indices, dtype=torch.float32), torch.from_numpy(q.dequantize())
    wanted = torch.stack([every[3], every[0], torch.zeros(K), every[3], torch.zeros(K)])
    assert torch.equal(found, wanted)


def flat(q: Any) -> tuple[Any, ...]:
    return list(q.fields.values()), q.format.name, list(q.shape)


CALLS = {
    "linear": lambda q, x: ((x, *flat(q), "natural"), {}),
    "qgemv": lambda q, x: ((x[:4], *flat(q)), {}),
    "qmm": lambda q, x: ((x.half(), *flat(q)), {}),
    "dequant": lambda q, x: (flat(q), {"dtype": torch.float16}),
    "prepack": lambda q, x: (flat(q), {}),
    "gemv": lambda q, x: ((x[:4].half(), torch.randn(16, K).half()), {}),
    "quantize_activations": lambda q, x: ((x, torch.ones(1, 1)), {"format": "levels"}),
    "conv": lambda q, x: (
        (x.reshape(2, 10, 20, 10), torch.randn(4, 5, 3, 3)),
        {"stride_h": 2, "padding_w": 1, "groups": 2},
    ),
    "qconv": lambda q, x: ((x.reshape(1, 50, 8, 10), *flat(q)), {"kernel_h": 2, "kernel_w": 2}),
    "quantize": lambda q, x: ((x,), {"format": "levels"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_opcheck(lib: Any, ops: Any, name: str) -> None:
    args, named = CALLS[name](quantised(lib, "levels"), torch.randn(20, K))
    found = torch.library.opcheck(getattr(getattr(torch.ops, NAMESPACE), name).default, args, named)
    assert set(found.values()) == {"SUCCESS"}


def test_make_fx(lib: Any, ops: Any) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    q, x = quantised(lib, "plain"), torch.randn(5, K)
    op = getattr(torch.ops, NAMESPACE).linear
    traced = make_fx(
        lambda x, codes, scale: op(x, [codes, scale], "plain", [N, K], "natural"), tracing_mode="symbolic"
    )
    graph = traced(x, *q.fields.values())
    longer = torch.randn(11, K)
    assert torch.equal(graph(longer, *q.fields.values()), ops.linear(longer, q))


@pytest.mark.parametrize("name", ["linear", "qgemv", "dequant"])
def test_functions_compile_whole(lib: Any, ops: Any, name: str) -> None:
    """The tensor is closed over: its definition is a constant of the graph."""
    q = quantised(lib, "plain")
    function = getattr(ops, name)
    call = (lambda x: function(q, dtype=torch.float32) + x.sum()) if name == "dequant" else (
        lambda x: function(2 * x, q) + 1
    )  # fmt: skip
    x = torch.randn(3, K)
    torch._dynamo.reset()
    close(torch.compile(call, fullgraph=True, backend="aot_eager")(x), call(x).double())


# ---- kernels that broadcast, give bools, or write to an operand


def broadcasting(ops: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    positive = ops.reduce(x, op="any")  # one bool a row
    return ops.where(positive[:, None], ops.binary_broadcast(x, y, op="add"), x)


def test_broadcasting_kernels(ops: Any) -> None:
    """Twice, for what is met again may take another way; compiled, with extents that are not known."""
    x, y = torch.randn(4, 6), torch.randn(6)
    x[1] = 0
    want = torch.where(x.any(1)[:, None], x + y, x)
    for _ in range(3):
        assert torch.equal(broadcasting(ops, x, y), want)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, y: broadcasting(ops, x, y), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for rows in (4, 5, 9):
        x = torch.randn(rows, 6)
        assert torch.equal(compiled(x, y), torch.where(x.any(1)[:, None], x + y, x))


# ---- outputs whose extents follow from scalars


def test_convolutions(lib: Any, ops: Any) -> None:
    functional, weight, bias = torch.nn.functional, torch.randn(6, 2, 3, 2), torch.randn(6)

    def ours(x: torch.Tensor) -> torch.Tensor:
        named = {"stride_h": 2, "padding_h": 1, "dilation_w": 2, "groups": 2}
        return ops.conv(x, weight, bias, **named) + 0

    torch._dynamo.reset()
    compiled = torch.compile(ours, fullgraph=True, dynamic=True, backend="aot_eager")
    for b, h in ((2, 9), (3, 12), (1, 5)):
        x = torch.randn(b, 4, h, 8)
        want = functional.conv2d(x.double(), weight.double(), bias.double(), (2, 1), (1, 0), (1, 2), 2)
        close(ours(x), want)
        close(compiled(x), want)
    q, line = quantised(lib, "levels", n=6, k=12), torch.randn(2, 4, 9)
    numbers = torch.from_numpy(q.dequantize()).reshape(6, 4, 3)
    close(ops.qconv(line, q, bias, kernel_w=3), functional.conv1d(line, numbers, bias).double())
    with pytest.raises(ArgumentError, match=r"out_w = .* is -2; conv takes out_w from 1"):
        ops.conv(torch.randn(1, 2, 3), torch.randn(1, 2, 6))


def test_an_operand_that_is_written_to_is_not_forgotten(ops: Any) -> None:
    def step(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        residual = residual + 0
        ops.add_rms_norm(x, residual, weight)
        return residual + 0

    x, residual, weight = torch.randn(3, 8), torch.randn(3, 8), torch.ones(8)
    assert torch.equal(step(x, residual, weight), x + residual)
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, residual, weight), x + residual)


def test_rows_put_into_an_array(ops: Any) -> None:
    """The op gives back what it writes to; a compiled program sees the change."""

    def step(x: torch.Tensor, indices: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y = y + 0
        ops.scatter(x, indices, y)
        return ops.gather(y, indices) + y.sum()

    x, y, indices = torch.randn(3, 8), torch.zeros(5, 8), torch.tensor([4, -1, 2], dtype=torch.int32)
    assert ops.scatter(x, indices, y) is y
    assert torch.equal(y[[4, 2]], x[[0, 2]])
    assert not y[[0, 1, 3]].any()
    wanted = torch.stack([x[0], torch.zeros(8), x[2]]) + (x[0] + x[2]).sum()
    torch._dynamo.reset()
    for run in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        torch.testing.assert_close(run(x, indices, torch.zeros(5, 8)), wanted)


def test_views_that_are_not_dense(ops: Any) -> None:
    x = torch.randn(4, 6, 10)
    for view in (x.transpose(0, 2), x[:, ::2, 1:], x[:1].expand(3, 6, 10), x[2, 3, 4]):
        made = ops.copy_strided(view)
        assert made.is_contiguous()
        assert torch.equal(made, view)


# ---- what is refused


def test_operands_that_require_grad(lib: Any, ops: Any) -> None:
    module, x = layer(lib), torch.randn(2, K, requires_grad=True)
    with pytest.raises(ArgumentError, match=r"x requires grad.*no_grad\(\)"):
        module(x)
    with pytest.raises(ArgumentError, match="w requires grad"):
        ops.gemv(torch.randn(1, 8).half(), torch.randn(4, 8).half().requires_grad_())
    torch._dynamo.reset()
    with pytest.raises(Exception, match="x requires grad"):
        torch.compile(module, fullgraph=True, backend="aot_eager")(x)
    with torch.no_grad():
        y = module(x)
    with torch.inference_mode():
        assert torch.equal(module(x), y)
        assert torch.equal(module(torch.clone(x)), y)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda o, q, x: o.linear(x[:, 1:], q), ArgumentError, r"x has shape \[2, 199\]; want \[..., 200\]"),
        (lambda o, q, x: o.linear(torch.tensor(1.0), q), ArgumentError, r"x has shape \[\]"),
        (lambda o, q, x: o.linear(x.double(), q), DtypeError, "x has elements of type torch.float64"),
        (lambda o, q, x: o.linear(x.numpy(), q), ArgumentError, "x is a ndarray; want a torch tensor"),
        (lambda o, q, x: o.linear(x, x), ArgumentError, "w is a Tensor; want a quantised tensor"),
        (lambda o, q, x: o.linear(x, q.to("cpu")), ArgumentError, "fields of type ndarray; want torch"),
        (lambda o, q, x: o.qgemv(x, wootz.prepack(q)), ArgumentError, "in the packed layout; qgemv takes"),
        (lambda o, q, x: o.qgemv(x), ArgumentError, "takes w"),
        (lambda o, q, x: o.qgemv(x, q, y=1), ArgumentError, "no argument 'y'"),
        (lambda o, q, x: o.qgemv(torch.randn(9, K), q), ArgumentError, "m from 0 to 8"),
        (lambda o, q, x: o.dequant(q), ArgumentError, "dequant needs dtype="),
        (lambda o, q, x: o.dequant(q, dtype=torch.int64), DtypeError, "int64"),
        (lambda o, q, x: o.quantize_activations(x), ArgumentError, "needs format="),
        (lambda o, q, x: o.quantize_activations(x, format="levles"), NoKernelError, "did you mean 'levels'"),
        (lambda o, q, x: o.gemv(x[:1, :8], torch.randn(4, 8)), NoKernelError, "of this kernel and format"),
        (lambda o, q, x: o.gemv(x[:1, :8].half(), torch.randn(8, 4).half().T), ArgumentError, "w has str"),
        (lambda o, q, x: o.gemv(x[:1, :8].half(), torch.randn(4, 8)), DtypeError, "w has elements of type f"),
        (lambda o, q, x: o.qmn, AttributeError, "did you mean 'qmm'"),
    ],
)  # fmt: skip
def test_bad_calls_are_named(lib: Any, ops: Any, call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(ops, quantised(lib, "plain"), torch.randn(2, K))


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (lambda q: (q[:1], "plain", [N, K], "natural"), ArgumentError, "w has 1 tensors; want those"),
        (lambda q: (q, "plain", [N, K], "woven"), ArgumentError, "w_layout is 'woven'; want one of natural"),
        (lambda q: (q, "plain@0123", [N, K], "natural"), FormatError, "plain has another definition"),
        (lambda q: (q, "plane", [N, K], "natural"), NoKernelError, "did you mean 'plain'"),
        (lambda q: (q, "plain", [N + 1, K], "natural"), ArgumentError, r"w\.codes has shape"),
        (lambda q: ([q[0], q[1].float()], "plain", [N, K], "natural"), DtypeError, r"w\.scale"),
    ],
)  # fmt: skip
def test_the_raw_op_checks_too(lib: Any, ops: Any, arguments: Any, error: type[Exception], says: str) -> None:
    fields = list(quantised(lib, "plain").fields.values())
    with pytest.raises(error, match=says):
        getattr(torch.ops, NAMESPACE).linear(torch.randn(2, K), *arguments(fields))


def test_another_definition_of_a_format(lib: Any, ops: Any) -> None:
    q = quantised(lib, "plain")
    other = wootz.formats.Descriptor.parse({**q.format.raw, "name": "levels"})
    with pytest.raises(FormatError, match="levels has another definition than in"):
        ops.linear(torch.randn(2, K), wootz.QuantizedTensor(other, q.shape, q.fields))


def test_operands_with_gaps_are_copied(lib: Any, ops: Any) -> None:
    q = quantised(lib, "plain")
    for x in (
        torch.randn(K, 20).T,
        torch.randn(20 * K + 1)[1:].view(20, K),
        torch.randn(2, 4, 2 * K)[..., ::2],
    ):
        close(ops.linear(x, q), product(x, q))
    close(ops.qgemv(torch.zeros(K, 2).T, q), torch.zeros(2, N).double())


# ---- namespaces


def test_the_ops_of_an_installed_package(
    lib: Any, ops: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "acme_ops-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-ops\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[wootz.artifacts]\nacme-ops = acme_of_test:folder\n")
    (tmp_path / "acme_of_test.py").write_text(f"folder = {str(lib.path)!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    theirs, q, x = wt.register("acme-ops"), quantised(lib, "plain"), torch.randn(2, K)
    assert theirs.namespace == "acme_ops"
    assert hasattr(torch.ops.acme_ops, "qgemv")
    assert torch.equal(theirs.linear(x, q), ops.linear(x, q))
    assert wt.register("acme-ops") is wt.register(wootz.load(lib.path), "acme_ops") is theirs
    assert wt.register("acme-ops", "acme_other").namespace == "acme_other"
    with pytest.raises(ArtifactError, match="no installed package ships artifacts named 'acme-opera'"):
        wt.register("acme-opera")


def test_a_library_without_a_namespace(lib: Any) -> None:
    with pytest.raises(ArgumentError, match="namespace is None; want an identifier"):
        wt.register(lib)


def test_a_namespace_has_one_library(lib: Any, ops: Any, tmp_path: Path) -> None:
    import shutil

    assert wt.register(lib, NAMESPACE) is ops
    shutil.copytree(lib.path, tmp_path / "other")
    other = wootz.load(tmp_path / "other")
    with pytest.raises(ArgumentError, match=f"namespace '{NAMESPACE}' has the ops of"):
        wt.register(other, NAMESPACE)
    with pytest.raises(ArgumentError, match="want an identifier"):
        wt.register(other, "no-name")
    second, q, x = wt.register(other, NAMESPACE + "2"), quantised(lib, "plain"), torch.randn(2, K)
    assert torch.equal(second.linear(x, q), ops.linear(x, q))
    with pytest.raises(ArgumentError, match=r"no ops in namespace 'absent': call wootz.torch.register"):
        wt.QuantLinear.from_float(torch.randn(4, 8), "plain", namespace="absent")


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wootz_does_not_import_torch() -> None:
    code = "import sys, wootz; dir(wootz); wootz.Library, wootz.prepack; print('torch' in sys.modules)"
    assert run(code).strip() == "False"


def test_without_a_default_library_it_imports_and_says_what_is_missing(tmp_path: Path) -> None:
    code = """
import wootz, wootz.torch
try:
    wootz.torch.qgemv
except wootz.errors.ArtifactError as error:
    print(error)
"""
    assert "does not exist; build the artifacts" in run(code, WOOTZ_ARTIFACTS=str(tmp_path / "none"))


def test_the_default_library_has_the_namespace_wootz(lib: Any) -> None:
    code = """
import torch, wootz, wootz.torch
layer = wootz.torch.QuantLinear.from_linear(torch.nn.Linear(32, 16), "plain")
q = layer.weight
x = torch.ones(3, 32)
assert torch.equal(wootz.torch.linear(x, q, layer.bias), layer(x))
print(torch.ops.wootz.linear, "gemv" in dir(wootz.torch))
"""
    assert run(code, WOOTZ_ARTIFACTS=str(lib.path)).strip() == "wootz.linear True"


# ---- QuantLinear


@pytest.mark.parametrize("format", ["plain", "levels", "brain"])
def test_a_layer_multiplies(lib: Any, ops: Any, format: str) -> None:
    module, x = layer(lib, format), torch.randn(2, 5, K)
    close(module(x), product(x, module.weight) + module.bias.double())
    assert module.format == lib.format(format)
    assert f"in_features=200, out_features=48, format={format}, layout=natural, bias=True" in repr(module)


def test_from_linear(lib: Any, ops: Any) -> None:
    linear = torch.nn.Linear(K, N)
    module = wt.QuantLinear.from_linear(linear, "plain", namespace=NAMESPACE)
    want = wootz.quantize(linear.weight.detach().numpy(), lib.format("plain"))
    assert np.array_equal(module.codes, want.fields["codes"])
    assert torch.equal(module.bias, linear.bias)
    assert module.bias is not linear.bias
    packed = wt.QuantLinear.from_linear(linear, lib.format("levels"), packed=True, namespace=NAMESPACE)
    assert isinstance(packed.weight, wootz.PackedTensor)
    assert "layout=packed" in repr(packed)
    with pytest.raises(NoKernelError, match="in the packed layout on cpu"):
        packed(torch.randn(1, K))
    without = wt.QuantLinear.from_linear(torch.nn.Linear(K, N, bias=False), "plain", namespace=NAMESPACE)
    assert without.bias is None
    assert without(torch.ones(K)).shape == (N,)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda q: wt.QuantLinear(q.fields["codes"]), "weight is a Tensor; want a QuantizedTensor"),
        (lambda q: wt.QuantLinear(q, torch.zeros(N + 1)), r"bias is torch.float32 \[49\]; want .* \[48\]"),
        (lambda q: wt.QuantLinear(q, torch.zeros(N, dtype=torch.int32)), "want a floating-point tensor"),
        (lambda q: wt.QuantLinear(q, [0.0] * N), "bias is list"),
        (lambda q: wt.QuantLinear.from_linear(q, "plain"), "linear is a QuantizedTensor; want a torch.nn"),
    ],
)  # fmt: skip
def test_a_layer_is_made_of_the_right_things(lib: Any, ops: Any, make: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        make(quantised(lib, "plain"))


def test_a_layer_names_what_is_wrong_with_x(lib: Any, ops: Any) -> None:
    module = layer(lib)
    with pytest.raises(ArgumentError, match=r"x has shape \[2, 199\]"):
        module(torch.randn(2, K - 1))
    with pytest.raises(DtypeError, match="float64"):
        module(torch.randn(2, K).double())
    with pytest.raises(DeviceError, match="x is on meta, the weights are on cpu"):
        module(torch.empty(2, K, device="meta"))
    with pytest.raises(NoKernelError, match="of bf16 activations"):
        module(torch.randn(2, K).bfloat16())


@pytest.mark.parametrize("format", ["plain", "levels", "brain"])
@pytest.mark.parametrize(
    "cast",
    [
        lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.double(),
        lambda m: m.type(torch.half), lambda m: m.to("cpu", torch.float16),
        lambda m: torch.nn.Sequential(m).half()[0],
    ],
)  # fmt: skip
def test_casts_leave_codes_and_scales_alone(lib: Any, ops: Any, format: str, cast: Any) -> None:
    module, x = layer(lib, format), torch.randn(3, K)
    before = {name: each.clone() for name, each in module.named_buffers()}
    y = module(x)
    module = cast(module)
    assert module.bias.dtype != torch.float32
    for name, each in module.named_buffers():
        assert each.dtype == before[name].dtype
        assert torch.equal(each.view(torch.uint8), before[name].view(torch.uint8))
    assert (module(x) - y).abs().max() < 1e-2
    assert module(x).dtype == torch.float32


def test_a_layer_moves_to_another_device(lib: Any, ops: Any) -> None:
    module = layer(lib, "levels").to("meta", torch.float16)
    assert {each.device.type for each in (*module.buffers(), module.bias)} == {"meta"}
    assert module.scale1.dtype == torch.float32
    assert module(torch.empty(4, K, device="meta")).shape == (4, N)
    assert module.to_empty(device="cpu").codes.device.type == "cpu"


@pytest.mark.parametrize("format", ["plain", "levels", "brain"])
def test_copies_and_pickles_are_whole(lib: Any, ops: Any, format: str) -> None:
    module, x = layer(lib, format), torch.randn(3, K)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.codes is not module.codes
        assert torch.equal(other(x), module(x))
        assert other.weight.format == module.weight.format


@pytest.mark.parametrize("format", ["plain", "levels", "brain"])
def test_a_state_dict_goes_to_a_file_and_back(lib: Any, ops: Any, format: str) -> None:
    module, other, x = layer(lib, format), layer(lib, format, seed=1), torch.randn(3, K)
    file = io.BytesIO()
    torch.save(torch.nn.Sequential(module).state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    assert not torch.equal(other(x), module(x))
    torch.nn.Sequential(other).load_state_dict(saved)
    assert torch.equal(other(x), module(x))
    assert all(isinstance(each, torch.Tensor) for each in saved.values())  # as safetensors wants them
    empty = layer(lib, format, seed=1).to("meta")
    torch.nn.Sequential(empty).load_state_dict(saved, assign=True)
    assert torch.equal(empty(x), module(x))


def test_a_state_dict_of_another_layer_is_refused_whole(lib: Any, ops: Any) -> None:
    module = layer(lib)
    saved = module.state_dict()
    for other, says in (
        (layer(lib, "levels"), "have format plain, this layer has levels: make"),
        (wt.QuantLinear(quantised(lib, "plain", k=2 * K), torch.zeros(N)), r"have shape \[48, 200\], this"),
        (wt.QuantLinear(wootz.prepack(quantised(lib, "plain")), torch.zeros(N)), "have layout natural, this"),
    ):
        before = copy.deepcopy(other.state_dict())
        with pytest.raises(FormatError, match=says):
            other.load_state_dict(saved)
        assert all(torch.equal(each.view(torch.uint8), before[name].view(torch.uint8))
                   for name, each in other.state_dict().items())  # fmt: skip
    other = layer(lib)
    other._format["block"] = [1, 64]
    with pytest.raises(
        FormatError, match="have format plain, this layer has plain; the formats have one name"
    ):
        module.load_state_dict(other.state_dict())
    with pytest.raises(FormatError, match="no description of a QuantLinear"):
        module.load_state_dict({**saved, "_extra_state": torch.zeros(3, dtype=torch.uint8)})
    with pytest.raises(RuntimeError, match="Missing key"):
        module.load_state_dict({name: each for name, each in saved.items() if name != "_extra_state"})


@pytest.mark.parametrize("format", ["plain", "levels"])
def test_a_layer_compiles_whole_for_any_number_of_rows(lib: Any, ops: Any, format: str) -> None:
    module, graphs = layer(lib, format), []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=backend)
    for rows in (2, 3, 9, 64):  # kernels of two kinds: the op chooses, and the graph knows nothing of it
        x = torch.randn(rows, K)
        assert torch.equal(compiled(x), module(x))
    assert len(graphs) == 1
    assert torch.equal(compiled(torch.empty(0, K)), torch.empty(0, N))


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_a_layer_is_exported_and_loaded(lib: Any, ops: Any) -> None:
    module = layer(lib, "levels")
    rows = {"x": {0: torch.export.Dim("m", min=0, max=4096)}}
    program, file = torch.export.export(module, (torch.randn(4, K),), dynamic_shapes=rows), io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for count in (1, 9, 70):
        x = torch.randn(count, K)
        assert torch.equal(loaded(x), module(x))


def test_a_model_of_layers(lib: Any, ops: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(K, K), torch.nn.GELU(), torch.nn.Linear(K, N)).eval()
    small = copy.deepcopy(model)
    for i in (0, 2):
        small[i] = wt.QuantLinear.from_linear(small[i], "plain", namespace=NAMESPACE)
    x = torch.randn(4, K)
    with torch.no_grad():
        assert (small(x) - model(x)).norm() < 0.2 * model(x).norm()
