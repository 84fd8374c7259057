"""torch's own operations beside ours, on a GPU; on a CPU those of dense weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...staging import torch_types
from ._peer import Given, Made, Peer

Rows = Callable[[Any, dict[str, Any]], Any]
QUANTISED = ("qgemv", "qmm", "qmm_packed")


def _dense(given: Given) -> Made:
    """x w^T, weights dense."""
    torch, dtype = given.torch, given.problem.dtype
    sets = [given.dense("w", dtype, i) for i in range(min(len(given.placed.operands), 8))]
    out = given.blank(dtype)
    launches = given.each(lambda o, i: lambda: torch.mm(o["x"], sets[i % len(sets)].T, out=out))
    return Made(launches, lambda: _off(given, launches[0], out))


def _off(given: Given, launch: Callable[[], object], out: Any) -> float:
    launch()
    return given.distance(out)


def _dense_cpu(given: Given) -> Made:
    torch = given.torch
    sets = [torch.from_numpy(given.dense("w", "f32", i)) for i in range(min(len(given.placed.operands), 8))]
    out = given.blank()
    to = torch.from_numpy(out)
    xs = [torch.from_numpy(o["x"]) for o in given.placed.operands]
    launches = given.each(lambda _, i: lambda: torch.mm(xs[i], sets[i % len(sets)].T, out=to))
    return Made(launches, lambda: _off(given, launches[0], out))


def _matrices(given: Given) -> Made:
    torch, names = given.torch, [each.name for each in given.problem.signature.operands[:2]]
    out = given.blank()
    launches = given.each(lambda o, i: lambda: torch.mm(o[names[0]], o[names[1]].T, out=out))
    return Made(launches, lambda: _off(given, launches[0], out))


def _result(given: Given, compute: Callable[[dict[str, Any]], Any]) -> Made:
    """Of what allocates its result."""

    def off() -> float:
        found = compute(dict(given.placed.operands[0]))
        return given.distance(found, _dtype_of(given, found))

    return Made(given.each(lambda o, i: lambda: compute(dict(o))), off)


def _dtype_of(given: Given, array: Any) -> str:
    return next(name for name, kind in torch_types(given.torch).items() if kind == array.dtype)


def _integers(given: Given) -> Made:
    return _result(given, lambda o: given.torch._int_mm(o["a"], o["b"].T))


def _scaled(given: Given) -> Made:
    """With the scales of tensors or of rows."""
    torch = given.torch
    kind = torch_types(torch)[given.problem.types["y"]]

    def compute(o: dict[str, Any]) -> Any:
        a, b = o["scale_a"], o["scale_b"]
        rows = len(a) > 1 and len(b) > 1
        scales = (a.view(-1, 1), b.view(1, -1)) if rows else (a.view(()), b.view(()))
        return torch._scaled_mm(o["a"], o["b"].T, *scales, out_dtype=kind)

    return _result(given, compute)


def _scaled_once(given: Given) -> Made:
    """With one scale, where ours are of blocks: as fast as torch's product of 8-bit floats is."""
    torch = given.torch
    one = torch.ones((), device=given.device.name)
    kind = torch_types(torch)[given.problem.types["y"]]
    launches = given.each(lambda o, i: lambda: torch._scaled_mm(o["a"], o["b"].T, one, one, out_dtype=kind))
    return Made(launches, lambda: 0.0)


def _banked(given: Given) -> Made:
    """A product of bf16 weights for each group of rows."""
    torch, o = given.torch, given.placed.operands[0]
    w = given.dense("w", given.problem.dtype, 0) if hasattr(o["w"], "fields") else o["w"]
    ends = (o["counts"] + o["offsets"]).int()

    def run(x: Any) -> Any:
        return torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)

    launches = given.each(lambda o, i: lambda: run(o["x"]))
    return Made(launches, lambda: given.distance(run(o["x"]), given.problem.dtype))


def _attention(given: Given) -> Made:
    attend = given.torch.nn.functional.scaled_dot_product_attention
    return _result(
        given, lambda o: attend(o["q"], o["k"], o["v"], scale=o.get("scale") or None, enable_gqa=True)
    )


def _row(compute: Callable[[Any, dict[str, Any]], Any]) -> Callable[[Given], Made]:
    def make(given: Given) -> Made:
        functional = given.torch.nn.functional
        return _result(given, lambda o: compute(functional, o))

    return make


_ROWS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "unary.gelu": lambda f, o: f.gelu(o["x"]),
    "unary.silu": lambda f, o: f.silu(o["x"]),
    "unary.tanh": lambda f, o: o["x"].tanh(),
    "unary.exp": lambda f, o: o["x"].exp(),
    "binary.add": lambda f, o: o["a"] + o["b"],
    "binary.mul": lambda f, o: o["a"] * o["b"],
    "reduce.sum": lambda f, o: o["x"].sum(1),
    "reduce.max": lambda f, o: o["x"].amax(1),
    "reduce_all.sum": lambda f, o: o["x"].sum(),
    "cumsum.inclusive": lambda f, o: o["x"].cumsum(1),
    "softmax": lambda f, o: f.softmax(o["x"], 1),
    "log_softmax": lambda f, o: f.log_softmax(o["x"], 1),
    "rms_norm": lambda f, o: f.rms_norm(o["x"], o["x"].shape[1:], o["weight"], 1e-6),
    "layer_norm": lambda f, o: f.layer_norm(o["x"], o["x"].shape[1:], o["weight"], o["bias"]),
    "swiglu": lambda f, o: f.silu(o["x"].chunk(2, 1)[0]) * o["x"].chunk(2, 1)[1],
    "transpose": lambda f, o: o["x"].transpose(1, 2).contiguous(),
}

_HALF, _FLOATS = ("f16", "bf16"), ("f16", "bf16", "f32")
_MM, _LINEAR = "torch.mm", "x w^T with dense weights of x's type"
_ONE = "torch._scaled_mm with one scale of the tensor (not compared)"
_BANK = "torch._grouped_mm with dense weights"


def _peer(kernels: tuple[str, ...], computes: str, make: Callable[[Given], Made], *dtypes: str) -> Peer:
    return Peer("torch", "torch", "cuda", kernels, computes, make, dtypes=dtypes)


PEERS = (
    _peer(QUANTISED, _LINEAR, _dense, *_FLOATS),
    Peer("torch", "torch", "cpu", QUANTISED, _LINEAR, _dense_cpu, dtypes=("f32",)),
    _peer(("gemm.*", "gemv"), _MM, _matrices, *_HALF),
    _peer(("gemm.*",), "torch._int_mm", _integers, "i8"),
    _peer(("gemm_fp8.*",), "torch._scaled_mm", _scaled),
    _peer(("gemm_fp8_block.*",), _ONE, _scaled_once),
    _peer(("grouped_qmm", "grouped_gemm"), _BANK, _banked, "bf16"),
    _peer(("attention",), "scaled_dot_product_attention", _attention),
    *(_peer((name,), "torch's own", _row(compute)) for name, compute in _ROWS.items()),
)
