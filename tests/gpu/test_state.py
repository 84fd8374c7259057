"""Kernels with a state that changes token by token on a CUDA device: beside loops in torch's float64, and
captured into graphs that update the state at every replay."""

from __future__ import annotations

from typing import Any

import needs
import pytest

pytestmark = pytest.mark.gpu
needs.device()

torch = pytest.importorskip("torch")
TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 5e-5}
FORMS = ("scan", "chunk")


def _close(found: Any, wanted: Any, dtype: str) -> None:
    torch.testing.assert_close(found.double(), wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def _delta(dtype: str, s: int, t: int, h: int, hk: int, dk: int, dv: int) -> dict[str, Any]:
    """Operands of gated_delta in the kernel's order."""
    torch.manual_seed(t + dk)
    normal, kind = (lambda *shape: torch.randn(*shape, device="cuda")), getattr(torch, TYPES[dtype])
    keys = [torch.nn.functional.normalize(normal(s, t, hk, dk), dim=-1) for _ in range(2)]
    given = {"q": keys[0], "k": keys[1], "v": normal(s, t, h, dv), "a": normal(s, t, h), "b": normal(s, t, h)}
    given = {name: x.to(kind) for name, x in given.items()}
    given |= {"A_log": torch.rand(h, device="cuda") * 2.0 - 2.0, "dt_bias": normal(h) - 3.0}
    return given | {"state": normal(s, h, dv, dk)}


def _rule(o: dict[str, Any]) -> tuple[Any, Any]:
    """y and the state by a loop in float64."""
    q, k, v, a, b, rate, bias, state = (x.double() for x in o.values())
    q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], dim=2) for x in (q, k))
    g = (-rate.exp() * torch.nn.functional.softplus(a + bias)).exp()[..., None]
    y, state = torch.empty_like(v), state.clone()
    for i in range(v.shape[1]):
        state = state * g[:, i, ..., None]
        d = b[:, i].sigmoid()[..., None] * (v[:, i] - (state @ k[:, i, ..., None])[..., 0])
        state = state + d[..., None] * k[:, i, :, None, :]
        y[:, i] = (state @ q[:, i, ..., None])[..., 0]
    return y, state


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "shape",
    [(2, 100, 4, 2, 128, 128), (1, 33, 3, 1, 100, 50), (1, 64, 2, 2, 256, 64), (3, 17, 2, 2, 7, 9)],
    ids=str,
)
def test_delta_rule(lib: Any, dtype: str, form: str, shape: tuple[int, ...]) -> None:
    o = _delta(dtype, *shape)
    y, state = _rule(o)
    found = lib.kernel("gated_delta", dtype=dtype, form=form)(*o.values())
    _close(found, y, dtype)
    _close(o["state"], state, "f32")


@pytest.mark.parametrize("dtype", TYPES)
def test_steps_are_the_scan(lib: Any, dtype: str) -> None:
    """To the bit; and with a state of 16 bits close to it."""
    o = _delta(dtype, 2, 6, 4, 2, 128, 128)
    names, now, short = ("q", "k", "v", "a", "b"), o["state"].clone(), o["state"].to(o["q"].dtype)
    y = lib.kernel("gated_delta", dtype=dtype, form="scan")(*o.values())
    step, half = (lib.kernel("gated_delta_step", dtype=dtype, state=kind) for kind in ("f32", "same"))
    for i in range(6):
        token = [o[name][:, i].contiguous() for name in names]
        assert torch.equal(step(*token, o["A_log"], o["dt_bias"], now), y[:, i])
        half(*token, o["A_log"], o["dt_bias"], short)
    assert torch.equal(now, o["state"])
    torch.testing.assert_close(short.float(), now, rtol=TOLERANCE[dtype] * 8, atol=TOLERANCE[dtype] * 8)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_bits_each_time(lib: Any, form: str) -> None:
    o = _delta("bf16", 1, 2000, 8, 4, 128, 128)
    kernel, states = lib.kernel("gated_delta", dtype="bf16", form=form), []
    found = []
    for _ in range(3):
        states.append(o["state"].clone())
        found.append(kernel(*{**o, "state": states[-1]}.values()))
    assert all(torch.equal(each, found[0]) for each in found)
    assert all(torch.equal(each, states[0]) for each in states)


@pytest.mark.parametrize("kernel", ["step", "scan", "chunk"])
def test_a_captured_graph_updates_the_state(lib: Any, kernel: str) -> None:
    """Each replay takes the state a token, or a sequence, on."""
    o = _delta("f16", 2, 20, 4, 2, 128, 64)
    if kernel == "step":
        call = lib.kernel("gated_delta_step", dtype="f16", state="f32", device="cuda:0")
        o = {n: x[:, 0].contiguous() if n in ("q", "k", "v", "a", "b") else x for n, x in o.items()}
    else:
        call = lib.kernel("gated_delta", dtype="f16", form=kernel, device="cuda:0")
    start, y = o["state"].clone(), torch.empty_like(o["v"])
    call.preload("cuda:0")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(*o.values(), out=y)
    assert torch.equal(o["state"], start), "a capture runs nothing"
    expected = {**o, "state": start}
    for _ in range(3):
        wanted = call(*expected.values())
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, wanted)
        assert torch.equal(o["state"], expected["state"])
    assert not torch.equal(o["state"], _delta("f16", 2, 20, 4, 2, 128, 64)["state"])


def _scanned(o: dict[str, Any], smooth: bool) -> tuple[Any, Any]:
    """y and the state by a loop in float64."""
    wide = {name: x.double() for name, x in o.items()}
    step = wide["delta"] + wide.get("dt_bias", 0.0)
    step = torch.nn.functional.softplus(step) if smooth else step
    h, y = wide["state"].clone(), torch.empty_like(wide["x"])
    for i in range(y.shape[1]):
        keep = (step[:, i, :, None] * wide["A"]).exp()
        h = keep * h + (step[:, i] * wide["x"][:, i])[..., None] * wide["B"][:, i, None]
        y[:, i] = (h * wide["C"][:, i, None]).sum(-1)
    y = y + wide["D"] * wide["x"] if "D" in wide else y
    return (y * torch.nn.functional.silu(wide["z"]) if "z" in wide else y), h


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "shape", [(2, 70, 300, 16), (1, 20, 33, 64), (1, 12, 20, 128), (2, 9, 5, 10)], ids=str
)
@pytest.mark.parametrize("whole", [True, False])
def test_selective_scan(lib: Any, dtype: str, shape: tuple[int, ...], whole: bool) -> None:
    s, t, c, n = shape
    kind = getattr(torch, TYPES[dtype])
    x, delta, z = (torch.randn(s, t, c, device="cuda") for _ in range(3))
    rows = [torch.randn(s, t, n, device="cuda").to(kind) for _ in range(2)]
    delta = delta if whole else delta.abs() * 0.1
    o = {"x": x.to(kind), "delta": delta.to(kind), "A": -torch.rand(c, n, device="cuda") * 8.0}
    o |= {"B": rows[0], "C": rows[1], "state": torch.randn(s, c, n, device="cuda")}
    more = {"D": torch.randn(c, device="cuda"), "z": z.to(kind), "dt_bias": torch.randn(c, device="cuda")}
    o |= more if whole else {}
    y, state = _scanned(o, whole)
    found = lib.kernel("selective_scan", dtype=dtype)(**o, **({"softplus": 1} if whole else {}))
    _close(found, y, dtype)
    _close(o["state"], state, "f32")
