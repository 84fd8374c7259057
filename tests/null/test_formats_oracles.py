"""Whole formats against packages that other people wrote: gguf and mlx, both on the CPU.

Known disagreements, each pinned down by a test here:
- gguf's MXFP4 takes scale code 255 for 2^128, OCP and this project for NaN.
- gguf's NVFP4 ignores the sign of a scale, takes 0x7F for 0 and 0xFF for 480; E4M3 has a sign
  and two NaNs.
- gguf picks Q8_0 codes with the scale before it is rounded to f16, and rounds halves away from zero; here
  codes are nearest with the scale as stored, which is nowhere worse. Q4_0's rule is GGUF's own, bit for bit.
- mlx (0.32) rounds power-of-two scales up: the rule ceil here. Older versions rounded to nearest.
- mlx breaks ties toward zero when it quantises, so it serves as an oracle for dequantisation alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest
from wootz.formats import from_fields, quantize

from gen.formats import axes, layout
from gen.manifest import reader as manifest
from tests.null.format_cases import E2M1, E4M3, E8M0, F16, F32, format_of, split_half

FORMATS = manifest.load(Path(__file__).parents[2] / "kernels.yaml").formats
Q4_0, Q8_0 = (FORMATS[name].descriptor() for name in ("q4_0", "q8_0"))
GGUF_MXFP4 = format_of(E2M1, (1, 32), (E8M0, "floor"), planes=split_half(4), order=("scale", "codes"))
GGUF_NVFP4 = format_of(
    E2M1,
    (1, 16),
    (E4M3, "absmax"),
    planes=(layout.Plane(4, split=2, over=16),),
    order=("scale", "codes"),
    unit=64,
)
KINDS = gguf.GGMLQuantizationType


def weights(n: int, k: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((n, k)) * 2.0 ** rng.uniform(-12, 8, (n, 1))
    w[0, :32] = 0
    w[1, :64] = np.round(w[1, :64])  # many ties, and extremes of both signs
    w[2, :32] = np.tile([1.0, -1.0], 16)
    return w.astype(np.float32)


def natural(q: Any) -> Any:
    return q.fields["codes"][:, : q.format.layout.natural_bytes(q.shape[1])]


def same_numbers(actual: Any, expected: Any) -> None:
    """Bit for bit, except that any NaN is as good as another."""
    actual, expected = np.asarray(actual, np.float32), np.asarray(expected, np.float32)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), nan)
    np.testing.assert_array_equal(actual.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


# ------------------------------------------------------------ gguf
def test_q4_0_quantises_to_the_bytes_of_gguf() -> None:
    w = weights(64, 512)
    np.testing.assert_array_equal(natural(quantize(w, Q4_0)), gguf.quants.quantize(w, KINDS.Q4_0))
    rng = np.random.default_rng(5)
    some = rng.integers(-40, 41, (256, 256)).astype(np.float32)  # ties everywhere
    np.testing.assert_array_equal(natural(quantize(some, Q4_0)), gguf.quants.quantize(some, KINDS.Q4_0))


def test_q8_0_scales_are_those_of_gguf_and_codes_where_no_rounding_differs() -> None:
    # With amax = 127 * 2^e the scale is exact in f16: it does not matter which scale divides; no ties.
    rng = np.random.default_rng(6)
    w = rng.integers(-126, 127, (64, 256)) + rng.uniform(-0.49, 0.49, (64, 256))
    w[:, ::32] = 127
    w = (w * 2.0 ** rng.integers(-6, 6, (64, 1))).astype(np.float32)
    np.testing.assert_array_equal(natural(quantize(w, Q8_0)), gguf.quants.quantize(w, KINDS.Q8_0))


def test_q8_0_codes_differ_from_gguf_by_rounding_only() -> None:
    w = weights(64, 512)
    ours, theirs = natural(quantize(w, Q8_0)), gguf.quants.quantize(w, KINDS.Q8_0)
    ours, theirs = ours.reshape(-1, 34), theirs.reshape(-1, 34)
    np.testing.assert_array_equal(ours[:, :2], theirs[:, :2])
    apart = np.abs(ours[:, 2:].view(np.int8).astype(int) - theirs[:, 2:].view(np.int8))
    assert apart.max() == 1
    assert (apart > 0).mean() < 0.03
    error = [np.abs(gguf.quants.dequantize(b.reshape(64, -1), KINDS.Q8_0) - w) for b in (ours, theirs)]
    assert (error[0] <= error[1]).all()


@pytest.mark.parametrize(("descriptor", "kind", "size"), [(Q4_0, KINDS.Q4_0, 18), (Q8_0, KINDS.Q8_0, 34)])
def test_any_bytes_dequantise_as_gguf_does(descriptor: Any, kind: Any, size: int) -> None:
    rng = np.random.default_rng(7)
    data = rng.integers(0, 256, (65536 // 8, 8 * size), dtype=np.uint8)
    data.reshape(-1, size)[:, :2] = np.arange(1 << 16, dtype="<u2").view(np.uint8).reshape(-1, 2)  # every f16
    with np.errstate(invalid="ignore"):
        expected = gguf.quants.dequantize(data, kind)
    same_numbers(from_fields(descriptor, (data.shape[0], 8 * 32), {"codes": data}).dequantize(), expected)


def test_mxfp4_dequantises_as_gguf_does_but_for_code_255() -> None:
    rng = np.random.default_rng(8)
    data = rng.integers(0, 256, (256, 4 * 17), dtype=np.uint8)
    data.reshape(256, 4, 17)[:, :, 0] = np.arange(256, dtype=np.uint8)[:, None]
    actual = from_fields(GGUF_MXFP4, (256, 128), {"codes": data}).dequantize()
    with np.errstate(over="ignore"):
        expected = gguf.quants.dequantize(data, KINDS.MXFP4)
    same_numbers(actual[:254] + 0.0, expected[:254] + 0.0)  # its table has no -0
    # 2^127 overflows times 4 or 6 here; it halves the scale and doubles the table, with the same result.
    same_numbers(actual[254] + 0.0, expected[254] + 0.0)
    assert np.isnan(actual[255]).all()
    assert not np.isnan(expected[255]).any()


def test_nvfp4_dequantises_as_gguf_does_but_for_nan_and_signs() -> None:
    rng = np.random.default_rng(9)
    data = rng.integers(0, 256, (256, 36), dtype=np.uint8)
    data[:, :4] = np.arange(256, dtype=np.uint8)[:, None]
    actual = from_fields(GGUF_NVFP4, (256, 64), {"codes": data}).dequantize()
    expected = gguf.quants.dequantize(data, KINDS.NVFP4)
    same_numbers(actual[:0x7F] + 0.0, expected[:0x7F] + 0.0)
    same_numbers(-actual[0x81:0xFF] + 0.0, expected[0x81:0xFF] + 0.0)
    assert np.isnan(actual[[0x7F, 0xFF]]).all()
    assert not expected[0x7F].any()
    assert np.abs(expected[0xFF]).max() == 480 * 6


# ------------------------------------------------------------ mlx
def through_mlx(codes: Any, *args: Any, **options: Any) -> Any:
    words = mx.array(np.ascontiguousarray(codes).view(np.uint32))
    return np.array(mx.dequantize(words, *args, dtype=mx.float32, stream=mx.cpu, **options))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_affine_dequantises_as_mlx_does(bits: int, group: int) -> None:
    descriptor = format_of(
        axes.integer(bits, signed=False), (1, group), (F32, "minmax"), zero=axes.Zero(F32, "value"),
        planes=(layout.Plane(bits, word=32),),
    )  # fmt: skip
    rng = np.random.default_rng(bits)
    n, k = 33, 3 * group
    codes = rng.integers(0, 256, (n, k * bits // 8), dtype=np.uint8)
    scale = rng.standard_normal((n, 3)).astype(np.float32)  # of either sign
    zero = rng.standard_normal((n, 3)).astype(np.float32)
    actual = from_fields(descriptor, (n, k), {"codes": codes, "scale": scale, "zero": zero}).dequantize()
    expected = through_mlx(codes, mx.array(scale), mx.array(zero), group_size=group, bits=bits)
    # mlx may or may not fuse the multiplication with the addition.
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2.0**-22 * (2**bits * 4 + 4))
    same_numbers(np.float32(actual), np.where(actual == expected, expected, actual))


def test_affine_of_the_manifest_reads_what_mlx_quantised() -> None:
    w = weights(64, 256, 3).clip(-8, 8)
    words, scales, zeros = mx.quantize(mx.array(w.astype(np.float16)), group_size=64, bits=4)
    q = from_fields(
        FORMATS["affine4"].descriptor(), w.shape,
        {"codes": np.array(words).view(np.uint8), "scale": np.array(scales), "zero": np.array(zeros)},
    )  # fmt: skip
    expected = np.array(mx.dequantize(words, scales, zeros, group_size=64, bits=4), dtype=np.float32)
    np.testing.assert_allclose(q.dequantize(), expected, rtol=2.0**-10, atol=1e-2)
    # mlx moves the zero point to a multiple of the scale, so that one end may be off by a whole step.
    assert (np.abs(q.dequantize() - w) <= np.abs(np.array(scales)).repeat(64, 1) * 1.01 + 1e-2).all()


@pytest.mark.parametrize(("mode", "name"), [("mxfp4", "mxfp4"), ("mxfp8", "mxfp8_e4m3")])
def test_mx_modes_dequantise_as_mlx_does(mode: str, name: str) -> None:
    descriptor = FORMATS[name].descriptor()
    bits = descriptor["element"]["bits"]
    rng = np.random.default_rng(11)
    codes = rng.integers(0, 256, (256, 64 * bits // 8), dtype=np.uint8)
    scale = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2, 1)
    actual = from_fields(descriptor, (256, 64), {"codes": codes, "scale": scale}).dequantize()
    expected = through_mlx(codes, mx.array(scale), group_size=32, bits=bits, mode=mode)
    same_numbers(actual[:255], expected[:255])


def test_nvfp4_dequantises_as_mlx_does() -> None:
    descriptor = format_of(E2M1, (1, 16), (E4M3, "absmax"))
    rng = np.random.default_rng(12)
    codes = rng.integers(0, 256, (256, 16), dtype=np.uint8)
    scale = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2, 1)
    actual = from_fields(descriptor, (256, 32), {"codes": codes, "scale": scale}).dequantize()
    expected = through_mlx(codes, mx.array(scale), group_size=16, bits=4, mode="nvfp4")
    same_numbers(actual, expected)


def test_scales_rounded_up_are_those_of_mlx() -> None:
    w = weights(64, 512, 4)
    w[3, :32] = 448 * 2.0**-5  # exact powers of two stay
    w[4, :32] = 6 * 2.0**-5
    for element, mode in ((E2M1, "mxfp4"), (E4M3, "mxfp8")):
        _, scales = mx.quantize(mx.array(w), mode=mode, stream=mx.cpu)
        ours = quantize(w, format_of(element, (1, 32), (E8M0, "ceil"))).fields["scale"]
        np.testing.assert_array_equal(ours, np.array(scales))


@pytest.mark.parametrize("kind", [F16, F32])
def test_a_global_scale_is_one_more_factor_for_mlx(kind: axes.Element) -> None:
    descriptor = format_of(E2M1, (1, 16), (E4M3, "absmax"), (kind, "absmax", (0, 0)))
    q = quantize(weights(8, 64, 5), descriptor)
    scale = np.float32(q.fields["scale1"][0, 0])
    expected = through_mlx(
        q.fields["codes"], mx.array(q.fields["scale"]), group_size=16, bits=4, mode="nvfp4"
    )
    np.testing.assert_allclose(q.dequantize(), expected * scale, rtol=2.0**-22)
