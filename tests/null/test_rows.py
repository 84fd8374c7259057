"""Elementwise, reduction and row kernels as the loader calls them, on the CPU, against packages that others
wrote (scipy; torch where it is installed); what may be written over, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import wootz
from scipy import special
from wootz.errors import ArgumentError, ArtifactError, DtypeError
from wootz.signature import Signature

from gen.cli import main

MANIFEST = """\
version: 1
targets: {cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}}
formats: {}
kernels:
  unary: {dtypes: [f32], options: {op: [erf, gelu, gelu_tanh, silu, softplus, sigmoid, logical_not]}}
  cast: {dtypes: [f32, f16], options: {out: [f32, f16]}}
  compare: {dtypes: [f32], options: {op: [le]}}
  where: {dtypes: [f32]}
  binary: {dtypes: [f32], options: {op: [add]}}
  binary_broadcast: {dtypes: [f32], options: {op: [add]}}
  reduce: {dtypes: [f32], options: {op: [sum, mean, prod, max, argmax, argmin, any, all]}}
  cumsum: {dtypes: [f32], options: {mode: [inclusive, exclusive]}}
  softmax: {dtypes: [f32]}
  log_softmax: {dtypes: [f32]}
  rms_norm: {dtypes: [f32]}
  layer_norm: {dtypes: [f32]}
  add_rms_norm: {dtypes: [f32]}
  swiglu: {dtypes: [f32]}
  geglu: {dtypes: [f32], options: {approximate: [none, tanh]}}
  rope: {dtypes: [f32], options: {layout: [half, interleaved]}}
profiles: {default: {}}
"""
Call = Callable[..., Any]
Array = Any


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "mine.yaml").write_text(MANIFEST)
    assert main(["build", "--manifest", str(folder / "mine.yaml"), "--out", str(folder / "out")]) == 0
    return wootz.load(folder / "out")


@pytest.fixture(scope="module")
def call(lib: wootz.Library) -> Call:
    """call(kernel, *operands, dtype="f32", **options and names)."""
    options = {each["key"]: each["options"] for each in lib.index.records("kernels")}

    def run(kernel: str, *operands: Any, dtype: str = "f32", **named: Any) -> Any:
        chosen = {name: named.pop(name) for name in options[kernel] if name in named}
        return lib.kernel(kernel, dtype=dtype, **chosen)(*operands, **named)

    return run


def random(*shape: int, scale: float = 1.0) -> Array:
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) * scale + rng.uniform(-1, 1, (*shape[:-1], 1))).astype(np.float32)


def close(found: Array, wanted: Array, most: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=most, atol=most)


# ------------------------------------------------------------ against other packages
@pytest.mark.parametrize("n", [1, 5, 64, 1000, 4099])
def test_rows_against_scipy(call: Call, n: int) -> None:
    x = random(6, n, scale=3.0)
    close(call("softmax", x), special.softmax(x.astype(np.float64), axis=1))
    close(call("log_softmax", x), special.log_softmax(x.astype(np.float64), axis=1))
    wide = random(4, 2 * n, scale=3.0)
    gate, up = np.split(wide.astype(np.float64), 2, axis=1)
    close(call("swiglu", wide), gate * special.expit(gate) * up, 1e-5)
    close(call("geglu", wide, approximate="none"), gate * special.ndtr(gate) * up, 1e-5)


def test_elementwise_against_scipy(call: Call) -> None:
    x = np.linspace(-12, 12, 10001, dtype=np.float32)
    wide = x.astype(np.float64)
    wanted = {"erf": special.erf(wide), "sigmoid": special.expit(wide), "silu": wide * special.expit(wide)}
    wanted |= {"gelu": wide * special.ndtr(wide), "softplus": np.logaddexp(0, wide)}
    for op, value in wanted.items():
        close(call("unary", x, op=op), value)


@pytest.mark.parametrize("n", [1, 8, 1000, 4099])
def test_rows_against_torch(call: Call, n: int) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    x, weight, bias, residual = (
        random(5, n, scale=4.0),
        random(n),
        random(1, n)[0],
        random(5, n + 1)[:, :n].copy(),
    )
    wide = {name: torch.from_numpy(a).double() for name, a in (("x", x), ("weight", weight), ("bias", bias))}
    normed = functional.rms_norm(wide["x"], (n,), wide["weight"], 1e-6)
    close(call("rms_norm", x, weight), normed.numpy(), 1e-5)
    found = functional.layer_norm(wide["x"], (n,), wide["weight"], wide["bias"], 1e-5)
    close(call("layer_norm", x, weight, bias), found.numpy(), 2e-5)
    total = torch.from_numpy(x + residual)
    found = functional.rms_norm(total.double(), (n,), wide["weight"], 1e-6)
    close(call("add_rms_norm", x, residual, weight), found.numpy(), 1e-5)
    assert np.array_equal(residual, total.numpy()), "the residual is the sum from then on"
    close(call("cumsum", x, mode="inclusive"), wide["x"].cumsum(1).numpy(), 1e-4)
    for op in ("sum", "mean", "amax"):
        found = getattr(torch, op)(wide["x"], 1)
        close(call("reduce", x, op=op.removeprefix("a")), found.numpy(), 1e-5)


def test_activations_against_torch(call: Call) -> None:
    torch = pytest.importorskip("torch")
    x = torch.linspace(-9, 9, 4001)
    for op, approximate in (("gelu", "none"), ("gelu_tanh", "tanh")):
        wanted = torch.nn.functional.gelu(x.double(), approximate=approximate)
        close(call("unary", x.numpy(), op=op), wanted.numpy())
    close(call("unary", x.numpy(), op="softplus"), torch.nn.functional.softplus(x.double()).numpy())


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary", [0, 6, 16])
def test_rope_against_complex_numbers(call: Call, layout: str, rotary: int) -> None:
    """A pair is a complex number, and turns by a product."""
    x, positions = random(7, 3, 16), np.arange(40, 47, dtype=np.int32)
    pairs = (rotary or 16) // 2
    turn = np.exp(1j * positions[:, None, None] * 100.0 ** (-np.arange(pairs) / pairs))
    part = x[..., : 2 * pairs].astype(np.float64)
    wanted = x.astype(np.float64)
    if layout == "half":
        turned = (part[..., :pairs] + 1j * part[..., pairs:]) * turn
        wanted[..., : 2 * pairs] = np.concatenate([turned.real, turned.imag], axis=-1)
    else:
        turned = (part[..., 0::2] + 1j * part[..., 1::2]) * turn
        wanted[..., 0 : 2 * pairs : 2], wanted[..., 1 : 2 * pairs : 2] = turned.real, turned.imag
    found = call("rope", x, positions, layout=layout, theta=100.0, rotary_dim=rotary)
    close(found, wanted, 2e-5)
    assert np.array_equal(found[..., 2 * pairs :], x[..., 2 * pairs :])


# ------------------------------------------------------------ ties, ends, types
def test_places_and_truth(call: Call) -> None:
    nan, x = (
        np.nan,
        np.array([[1, 3, 3, -2], [np.nan, 5, np.nan, 9], [-np.inf] * 4, [0, 0, 0, 0]], np.float32),
    )
    place = call("reduce", x, op="argmax")
    assert (place.dtype, place.tolist()) == (np.int32, [1, 0, 0, 0])
    assert call("reduce", x, op="argmin").tolist() == [3, 0, 0, 0]
    assert call("reduce", x, op="any").tolist() == [True, True, True, False]
    assert call("reduce", x, op="all").dtype == np.bool_
    np.testing.assert_array_equal(call("reduce", x, op="max"), np.array([3, nan, -np.inf, 0], np.float32))
    assert call("unary", x, op="logical_not").sum() == 4


def test_broadcasting(call: Call) -> None:
    a, b = random(3, 1, 4), random(5, 1)
    assert np.array_equal(call("binary_broadcast", a, b, op="add"), a + b)
    below = call("compare", a, b, op="le")
    assert (below.dtype, below.shape) == (np.bool_, (3, 5, 4))
    assert np.array_equal(below, a <= b)
    assert np.array_equal(call("where", below, a, b), np.where(below, a, b))
    same = random(7, 9)
    plain, wide = call("binary", same, same, op="add"), call("binary_broadcast", same, same, op="add")
    assert plain.tobytes() == wide.tobytes(), "the same bits as without broadcasting"
    assert call("binary_broadcast", a[:0], b, op="add").shape == (0, 5, 4)


def test_the_fused_kernel_has_the_bits_of_the_plain_ones(call: Call) -> None:
    x, residual, weight = random(4, 520), random(4, 520, scale=2.0), random(520)
    total = call("binary", x, residual, op="add")
    plain, fused = (
        call("rms_norm", total, weight, eps=0.5),
        call("add_rms_norm", x, residual, weight, eps=0.5),
    )
    assert fused.tobytes() == plain.tobytes()
    assert residual.tobytes() == total.tobytes()


def test_rows_without_a_number(call: Call) -> None:
    """A row of -inf alone, one with NaN, large numbers, zeros."""
    x = np.array([[-np.inf] * 3, [1, np.nan, 2], [3e38, 3e38, -3e38], [0, 0, 0]], np.float32)
    zeros, large, ones = np.zeros((1, 3), np.float32), x[2:3].copy(), np.ones(3, np.float32)
    found = call("softmax", x)
    assert np.isnan(found[:2]).all()
    close(found[2:], [[0.5, 0.5, 0], [1 / 3] * 3])
    assert np.isnan(call("log_softmax", x)[:2]).all()
    assert not call("rms_norm", zeros, ones).any()
    assert not call("rms_norm", large, ones).any(), "squares past float32"


# ------------------------------------------------------------ in place
def test_in_place(call: Call) -> None:
    weight = random(40)
    for kernel, more in (("softmax", ()), ("rms_norm", (weight,)), ("layer_norm", (weight, weight))):
        x = random(6, 40)
        wanted = call(kernel, x, *more)
        assert call(kernel, x, *more, out=x) is x
        assert x.tobytes() == wanted.tobytes(), kernel
    x, residual = random(6, 40), random(6, 40, scale=2.0)
    wanted = call("add_rms_norm", x, residual.copy(), weight)
    call("add_rms_norm", x, residual, weight, out=x)
    assert x.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("kernel", "operands", "named", "error", "message"),
    [
        ("softmax", ((3, 0),), {}, ArgumentError, "x has n=0; softmax takes n from 1 to 2147483647"),
        ("reduce", ((3, 0),), {"op": "sum"}, ArgumentError, "x has n=0; reduce takes n from 1"),
        ("rms_norm", ((3, 8), (9,)), {}, ArgumentError, "weight has n=9, x has n=8"),
        ("rms_norm", ((8,), (8,)), {}, ArgumentError, "x has 1 dimensions [8]"),
        ("swiglu", ((3, 7),), {}, ArgumentError, "it takes (k % 2) == 0"),
        ("rope", ((2, 1, 1032), np.zeros(2, np.int32)), {"layout": "half"}, ArgumentError, "d from 1 to"),
        ("rope", ((2, 1, 8), np.zeros(2, np.int64)), {"layout": "half"}, DtypeError, "positions has"),
        ("where", ((3,), (3,), (3,)), {}, DtypeError, "condition has elements of type f32"),
        ("binary_broadcast", ((3, 4), (3,)), {"op": "add"}, ArgumentError, "a [3, 4], b [3] do not"),
        ("compare", ((3,), (3,)), {"op": "le", "out": np.zeros(3, np.uint8)}, DtypeError, "out has elements"),
        ("unary", ((3,),), {"op": "erf", "out": np.zeros(4, np.float32)}, ArgumentError, "out has shape [4]"),
    ],
)  # fmt: skip
def test_bad_operands(
    call: Call, kernel: str, operands: Any, named: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = [np.ones(o, np.float32) if isinstance(o, tuple) else o for o in operands]
    with pytest.raises(error) as caught:
        call(kernel, *given, **named)
    assert message in str(caught.value)


def test_memory_that_may_not_be_shared(call: Call) -> None:
    x, residual, weight = random(1, 40), random(1, 40, scale=2.0), random(40)
    frozen = residual.copy()
    frozen.setflags(write=False)
    refused = [
        (("rms_norm", x, weight), {"out": weight.reshape(1, 40)}, "out shares memory with weight"),
        (("add_rms_norm", x, residual, weight), {"out": residual}, "out shares memory with residual"),
        (("add_rms_norm", x, x, weight), {}, "residual shares memory with x"),
        (("add_rms_norm", x, frozen, weight), {}, "residual is read-only; the kernel writes to it"),
        (("softmax", x[:, 4:20]), {"out": x[:, 8:24]}, "out shares a part of x's memory"),
    ]
    for (kernel, *operands), named, message in refused:
        with pytest.raises(ArgumentError) as caught:
            call(kernel, *operands, **named)
        assert message in str(caught.value)
    assert np.isfinite(x).all()


def test_an_index_that_names_no_operand() -> None:
    """Of those that the output may be written over."""
    record = {
        "key": "k",
        "operands": [{"name": "x", "shape": ["n"]}],
        "output": {"name": "y", "shape": ["n"]},
    }
    assert Signature.parse({**record, "alias": ["x"]}).alias == {"x"}
    assert Signature.parse({**record, "alias": True}).alias == {"x"}
    assert not Signature.parse(record).alias
    with pytest.raises(ArtifactError, match="the index describes kernel 'k' wrongly"):
        Signature.parse({**record, "alias": ["z"]})


def test_what_is_asked_in_another_order_is_another_problem(lib: wootz.Library) -> None:
    """Recipes are remembered by the names of extents, not by the order in which a caller gives them."""
    softmax = lib.kernel("softmax", dtype="f32")
    x = np.random.default_rng(11).standard_normal((64, 128)).astype(np.float32)
    softmax.workspace_bytes("cpu", n=64, m=128)
    np.testing.assert_allclose(softmax(x), special.softmax(x.astype(np.float64), axis=1), rtol=1e-5)


def test_kernels_that_broadcast_have_no_problem_ahead(lib: wootz.Library) -> None:
    with pytest.raises(ArgumentError, match="the plan cannot be of where"):
        lib.plan("where", dtype="f32", device="cpu", n=4)
    with pytest.raises(ArgumentError, match="workspace_bytes cannot be of where"):
        lib.kernel("where", dtype="f32").workspace_bytes("cpu", n=4)
