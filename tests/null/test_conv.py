"""Convolutions and patch embedding as the loader calls them, on the CPU: against scipy's correlation (and
torch where it is installed), against each other bit for bit, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import wootz
from scipy import signal
from wootz.errors import ArgumentError, ArtifactError, DtypeError
from wootz.signature import Signature

from gen.cli import main
from gen.emit import text as emit
from gen.plan import cells as plan

MANIFEST = """\
version: 1
targets: {cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}}
formats:
  int4: {element: {int: 4, symmetric: true}, block: 64, scale: f32}
  blocks: {element: e4m3, block: [16, 32], scale: f32}
kernels:
  conv: {dtypes: [f32]}
  qconv: {dtypes: [f32], formats: all}
  patch_embed: {dtypes: [f32]}
  qpatch_embed: {dtypes: [f32], formats: [int4]}
profiles: {default: {}}
"""
Call = Callable[..., Any]
Array = Any
AXES = ("d", "h", "w")


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    folder = tmp_path_factory.mktemp("conv")
    (folder / "mine.yaml").write_text(MANIFEST)
    assert main(["build", "--manifest", str(folder / "mine.yaml"), "--out", str(folder / "out")]) == 0
    return wootz.load(folder / "out")


@pytest.fixture(scope="module")
def conv(lib: wootz.Library) -> Call:
    return lib.kernel("conv", dtype="f32")


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def by_axis(**named: int | tuple[int, ...]) -> dict[str, int]:
    """stride=(2, 3) -> stride_h=2, stride_w=3."""
    found = {}
    for name, some in named.items():
        if isinstance(some, int):
            found[name] = some
        else:
            found.update({f"{name}_{a}": n for a, n in zip(AXES[-len(some) :], some)})
    return found


def correlated(x: Array, w: Array, stride: Any, padding: Any, dilation: Any, groups: int = 1) -> Array:
    """By scipy, one pair of channels at a time."""
    spread = np.zeros((*w.shape[:2], *((k - 1) * r + 1 for k, r in zip(w.shape[2:], dilation))))
    spread[(..., *(slice(None, None, r) for r in dilation))] = w
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *((p, p) for p in padding)))
    channels, rows = w.shape[1], len(w) // groups
    samples = []
    for sample, o in product(range(len(x)), range(len(w))):
        first = o // rows * channels
        total = sum(
            signal.correlate(padded[sample, first + i], spread[o, i], "valid", "direct")
            for i in range(channels)
        )
        samples.append(np.asarray(total)[tuple(slice(None, None, s) for s in stride)])
    return np.stack(samples).reshape(len(x), len(w), *samples[0].shape)


CASES = [
    ((2, 3, 17), (4, 3, 5), (1,), (0,), (1,), 1),
    ((1, 4, 33), (6, 2, 3), (2,), (4,), (3,), 2),
    ((2, 3, 9, 10), (5, 3, 3, 2), (1, 1), (1, 0), (1, 1), 1),
    ((1, 6, 8, 9), (6, 1, 3, 3), (2, 1), (1, 2), (1, 2), 6),
    ((1, 5, 7, 7), (20, 5, 2, 2), (4, 3), (0, 1), (1, 1), 1),
    ((1, 6, 4, 6, 5), (9, 2, 2, 3, 3), (1, 2, 1), (1, 0, 2), (2, 1, 1), 3),
    ((1, 4, 3, 3, 3), (8, 1, 3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), 4),
]


@pytest.mark.parametrize(("of_x", "of_w", "stride", "padding", "dilation", "groups"), CASES)
def test_against_scipy(
    conv: Call, of_x: Any, of_w: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    x, w, bias = random(*of_x), random(*of_w), random(of_w[0])
    named = by_axis(stride=stride, padding=padding, dilation=dilation, groups=groups)
    wanted = correlated(x, w, stride, padding, dilation, groups)
    np.testing.assert_allclose(conv(x, w, **named), wanted, rtol=1e-5, atol=1e-5)
    wanted = wanted + bias.reshape(-1, *(1,) * len(stride))
    np.testing.assert_allclose(conv(x, w, bias, **named), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("of_x", "of_w", "stride", "padding", "dilation", "groups"), CASES)
def test_against_torch(
    conv: Call, of_x: Any, of_w: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    torch = pytest.importorskip("torch")
    x, w, bias = random(*of_x), random(*of_w), random(of_w[0])
    named = by_axis(stride=stride, padding=padding, dilation=dilation, groups=groups)
    of = getattr(torch.nn.functional, f"conv{len(stride)}d")
    wanted = of(*(torch.from_numpy(a).double() for a in (x, w, bias)), stride, padding, dilation, groups)
    np.testing.assert_allclose(conv(x, w, bias, **named), wanted.numpy(), rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------ the same bits in other ways
@pytest.mark.parametrize("format", ["int4", "blocks"])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_quantised_weights_have_the_bits_of_their_numbers(
    lib: wootz.Library, conv: Call, format: str, groups: int
) -> None:
    x, w, bias = random(2, 6, 9, 8), random(18, 6 // groups, 3, 4), random(18)
    q = wootz.quantize(w.reshape(18, -1), lib.format(format))
    named = by_axis(stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=groups)
    wanted = conv(x, q.dequantize().reshape(w.shape), bias, **named)
    found = lib.kernel("qconv", format, "f32")(x, q, bias, kernel_h=3, kernel_w=4, **named)
    assert found.tobytes() == wanted.tobytes()
    assert np.abs(found - conv(x, w, bias, **named)).max() < 6


def test_axes_that_are_left_out_have_an_extent_of_one(conv: Call) -> None:
    x, w = random(2, 3, 12), random(5, 3, 4)
    line = conv(x, w, padding_w=2)
    plane = conv(x[:, :, None], w[:, :, None], padding_w=2)
    solid = conv(x[:, :, None, None], w[:, :, None, None], padding_w=2)
    assert (line.shape, plane.shape, solid.shape) == ((2, 5, 13), (2, 5, 1, 13), (2, 5, 1, 1, 13))
    assert line.tobytes() == plane.tobytes() == solid.tobytes()


def test_patches_are_a_convolution_of_their_own_size(lib: wootz.Library, conv: Call) -> None:
    x, w, bias = random(2, 3, 12, 20), random(18, 3, 4, 5), random(18)
    wanted = conv(x, w, bias, stride_h=4, stride_w=5).reshape(2, 18, 12).swapaxes(1, 2)
    found = lib.kernel("patch_embed", dtype="f32")(x, w, bias)
    assert found.tobytes() == wanted.tobytes()
    patches = x.reshape(2, 3, 3, 4, 4, 5).transpose(0, 2, 4, 1, 3, 5).reshape(2, 12, 60)
    np.testing.assert_allclose(found, patches @ w.reshape(18, 60).T + bias, rtol=1e-4, atol=1e-5)
    q = wootz.quantize(w.reshape(18, -1), lib.format("int4"))
    found = lib.kernel("qpatch_embed", "int4", "f32")(x, q, kernel_h=4, kernel_w=5)
    assert (
        found.tobytes()
        == lib.kernel("patch_embed", dtype="f32")(x, q.dequantize().reshape(w.shape)).tobytes()
    )


# ------------------------------------------------------------ ends
def test_nothing_and_everything(conv: Call, lib: wootz.Library) -> None:
    assert conv(random(0, 3, 5, 5), random(4, 3, 2, 2)).shape == (0, 4, 4, 4)
    assert lib.kernel("patch_embed", dtype="f32")(random(0, 3, 4, 4), random(4, 3, 2, 2)).shape == (0, 4, 4)
    assert conv(random(2, 3, 5, 5), random(4, 3, 5, 5)).shape == (2, 4, 1, 1)
    x, w = random(1, 2, 5), random(3, 2, 5)
    np.testing.assert_allclose(
        conv(x, w, padding_w=4), correlated(x, w, (1,), (4,), (1,)), rtol=1e-5, atol=1e-6
    )
    far = conv(x, w[:, :, :1].copy(), padding_w=1000)
    assert not far[:, :, :1000].any()
    assert not far[:, :, 1005:].any()


def test_numbers_that_are_none(conv: Call) -> None:
    x, w = np.ones((1, 1, 6), np.float32), np.ones((1, 1, 3), np.float32)
    x[0, 0, 2] = np.nan
    assert np.isnan(conv(x, w, padding_w=1)[0, 0]).tolist() == [False, True, True, True, False, False]
    x[0, 0, 2] = np.inf
    assert np.isinf(conv(x, w)[0, 0]).tolist() == [True, True, True, False]
    x[:], w[0, 0, 0] = 1, np.inf
    assert np.isnan(conv(x, w, padding_w=1)[0, 0]).tolist() == [True] + [False] * 5, "zeros times infinity"


def test_plans(lib: wootz.Library, conv: Call) -> None:
    x, w, bias = random(2, 4, 9, 8), random(6, 2, 3, 3), random(6)
    named = by_axis(stride=(2, 1), padding=(1, 1), groups=2)
    sizes = {"b": 2, "c": 4, "h": 9, "w": 8, "o": 6, "kernel_h": 3, "kernel_w": 3}
    made = lib.plan("conv", dtype="f32", device="cpu", bias=True, **sizes, **named)
    assert made.shapes["d"] == 1
    assert made(x, w, bias).tobytes() == conv(x, w, bias, **named).tobytes()
    assert made(x, w, bias, out=np.empty((2, 6, 5, 8), np.float32)).shape == (2, 6, 5, 8)
    for wrong, message in (
        ({**sizes, "h": 1}, "out_h = "),
        ({**sizes, "kernel_d": 1}, "the plan needs d= of conv"),
        ({**sizes, "groups": 0}, "groups is 0; conv takes groups from 1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            lib.plan("conv", dtype="f32", device="cpu", **wrong)
    with pytest.raises(ArgumentError, match="x has h=7; the plan was made for h=9"):
        made(random(2, 4, 7, 8), w, bias)
    q, sizes = wootz.quantize(w.reshape(6, -1), lib.format("int4")), {**sizes, **named}
    coded = lib.plan("qconv", format="int4", dtype="f32", device="cpu", **sizes)(x, q)
    assert coded.tobytes() == conv(x, q.dequantize().reshape(w.shape), **named).tobytes()


# ------------------------------------------------------------ what is refused
REACH = r"(((w + (2 * padding_w)) - ((dilation_w * (kernel_w - 1)) + 1)) // stride_w) + 1"


@pytest.mark.parametrize(
    ("x", "w", "named", "message"),
    [
        ((1, 2, 4), (3, 2, 5), {}, f"out_w = {REACH} is 0; conv takes out_w from 1 to"),
        ((1, 2, 4), (3, 2, 3), {"dilation_w": 2, "stride_w": 3}, "out_w = "),
        ((1, 2, 4), (3, 2, 9), {"padding_w": 1}, "is -2; conv takes out_w from 1"),
        ((1, 2, 4), (3, 2, 3), {"stride_w": 0}, "stride_w is 0; conv takes stride_w from 1 to"),
        ((1, 2, 4), (3, 2, 3), {"dilation_w": 0}, "dilation_w is 0; conv takes dilation_w from 1 to"),
        ((1, 2, 4), (3, 2, 3), {"groups": 0}, "groups is 0; conv takes groups from 1 to"),
        ((1, 2, 4), (3, 2, 3), {"padding_w": 2**31}, "padding_w is 2147483648; conv takes padding_w"),
        ((1, 2, 4), (3, 2, 3), {"stride_w": 1.5}, "stride_w is 1.5; want a whole number"),
        ((1, 2, 4), (3, 1, 3), {}, "weight has shape [3, 1, 1, 1, 3]; want [o, c // groups, "),
        ((1, 5, 4), (4, 2, 3), {"groups": 2}, "it takes (c % groups) == 0"),
        ((1, 4, 4), (3, 2, 3), {"groups": 2}, "it takes (o % groups) == 0"),
        ((1, 2, 4), (3, 2, 1, 3), {}, "weight has 4 dimensions [3, 2, 1, 3]; conv(x[b, c, d, h, w], "),
        ((2, 4), (3, 2, 3), {}, "x has 2 dimensions [2, 4]"),
        ((1, 2, 1, 1, 1, 4), (3, 2, 3), {}, "x has 6 dimensions"),
        ((1, 2, 0), (3, 2, 1), {}, "x has w=0; conv takes w from 1"),
        ((1, 2, 4), (3, 2, 3), {"padding_h": 1}, "out_h is 3, and y would lack that axis: give arrays of 5"),
        ((1, 2, 4), (3, 2, 3), {"padding": 1}, "conv has no argument 'padding'"),
        ((1, 2, 4), (3, 2, 3), {"bias": np.ones(2, np.float32)}, "bias has o=2, weight has o=3"),
        ((1, 2, 4), (3, 2, 3), {"out": np.ones((1, 3, 4), np.float32)}, "[1, 3, 4]; want [1, 3, 2]"),
    ],
)  # fmt: skip
def test_bad_operands(conv: Call, x: Any, w: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        conv(np.ones(x, np.float32), np.ones(w, np.float32), **named)
    assert message in str(caught.value)


def test_bad_operands_of_the_others(lib: wootz.Library, conv: Call) -> None:
    q = wootz.quantize(random(4, 18), lib.format("int4"))
    patches, qconv = lib.kernel("patch_embed", dtype="f32"), lib.kernel("qconv", "int4", "f32")
    for call, operands, named, message in (
        (
            qconv,
            (random(1, 2, 5, 5), q),
            {"kernel_h": 3},
            "weight has shape [4, 18]; want [o, (c //",
        ),
        (qconv, (random(1, 2, 5, 5), q), {}, "= [4, 2]"),
        (patches, (random(1, 2, 7, 6), random(4, 2, 3, 3)), {}, "it takes (h % kernel_h) == 0"),
        (
            patches,
            (random(1, 2, 2, 2), random(4, 2, 3, 3)),
            {},
            "positions = (h // kernel_h) * (w // kernel_w)",
        ),
        (patches, (random(1, 3, 6, 6), random(4, 2, 3, 3)), {}, "weight has c=2, x has c=3"),
    ):
        with pytest.raises(ArgumentError) as caught:
            call(*operands, **named)
        assert message in str(caught.value)
    x = random(1, 2, 6)
    with pytest.raises(DtypeError, match="bias has elements of type f16"):
        conv(x, random(3, 2, 3), np.ones(3, np.float16))
    with pytest.raises(ArgumentError, match="out shares memory with x"):
        conv(x, random(2, 2, 1), out=x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stride_w": 1}, "extents called"),
        ({"b": 1}, "extents called"),
        ({"field": ["mul", "c", "depth"]}, "'depth'"),
        (None, "axes .'out_d', 'out_h', 'out_w'., which nothing gives"),
    ],
)
def test_an_index_whose_extents_are_wrong(change: dict[str, Any] | None, message: str) -> None:
    kernels = plan.load(__file__.rpartition("tests")[0] + "kernels.yaml").kernels
    record = emit.kernel_record(kernels["conv"])
    assert Signature.parse(record).extents["field"].text.startswith("(c // groups)")
    with pytest.raises(ArtifactError, match=message):
        Signature.parse({**record, "extents": {**record["extents"], **change} if change else {}})
