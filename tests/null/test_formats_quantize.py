"""The quantiser: rules of scales and zero points, special numbers, bad input; properties."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wootz.errors import ArgumentError, DtypeError, FormatError
from wootz.formats import Descriptor, decode_exact, quantize
from wootz.formats.bits import fma32
from wootz.formats.dequantize import CHUNK, combine_scales, expand, scale_block, zero_values
from wootz.formats.tensor import side_entries, unpack_rows

from gen.formats import axes
from tests.null.format_cases import BF16, E2M1, E4M3, E5M2, E8M0, F16, F32, descriptors, format_of

INT4 = axes.integer(4, symmetric=True)
UINT4 = axes.integer(4, signed=False)
MXFP4 = format_of(E2M1, (1, 32), (E8M0, "nearest"))
NVFP4 = format_of(E2M1, (1, 16), (E4M3, "absmax"), (F32, "absmax", (0, 0)))


def scale_of(w: Any, descriptor: dict[str, Any]) -> Any:
    """The combined scale by block."""
    q = quantize(w, descriptor)
    return combine_scales(q.format, side_entries(q), q.shape, np.float32)


def row(*values: float) -> Any:
    return np.array([values])


# ------------------------------------------------------------ scale rules
def exponent(a: float, rule: str, element: axes.Element) -> int:
    code = quantize(row(a), format_of(element, (1, 32), (E8M0, rule))).fields["scale"]
    return int(code[0, 0]) - 127


# OCP: floor(log2 amax) - emax, with the emax of the specification.
@pytest.mark.parametrize(
    ("element", "emax"),
    [(E2M1, 2), (axes.floating(2, 3), 2), (axes.floating(3, 2), 4), (E4M3, 8), (E5M2, 15), (INT4, 2)],
)
@pytest.mark.parametrize("a", [1.0, 1.999, 0.75, 3e-5, 123.0, 2.0**60])
def test_floor_is_the_rule_of_ocp(element: axes.Element, emax: int, a: float) -> None:
    assert exponent(a, "floor", element) == math.floor(math.log2(a)) - emax


@pytest.mark.parametrize("element", [E2M1, E4M3, INT4, axes.integer(2, symmetric=True)])
def test_nearest_and_ceil_in_the_logarithm(element: axes.Element) -> None:
    rng = np.random.default_rng(0)
    for a in [*(2.0 ** rng.uniform(-30, 30, 200)), element.max, element.max * 4]:
        exact = math.log2(a / element.max)
        assert exponent(a, "nearest", element) == round(exact)
        assert exponent(a, "ceil", element) == math.ceil(exact)
    assert exponent(np.nextafter(element.max * 4, np.inf), "ceil", element) == 3


def torchao_even(a: float, mantissa_bits: int, emax: int) -> int:
    """torchao's ScaleCalculationMode.EVEN in its own words: half a last place is added to the bits."""
    bits = int(np.float32(a).view(np.uint32)) + (1 << (23 - mantissa_bits - 1))
    return (bits >> 23) - 127 - emax


@pytest.mark.parametrize(
    ("element", "mantissa", "emax"), [(E2M1, 1, 2), (axes.floating(2, 3), 3, 2), (E5M2, 2, 15)]
)
def test_even_is_the_rule_of_torchao(element: axes.Element, mantissa: int, emax: int) -> None:
    rng = np.random.default_rng(1)
    for a in [*np.float32(2.0 ** rng.uniform(-20, 20, 200)), 7.0, 6.9999, 3.5, 1.875]:
        assert exponent(float(a), "even", element) == torchao_even(a, mantissa, emax)


def test_exponents_saturate() -> None:
    for rule in ("floor", "nearest", "ceil", "even", "absmax"):
        tiny = quantize(row(1e-45), format_of(E2M1, (1, 32), (E8M0, rule)))
        assert tiny.fields["scale"].tolist() == [[0]]
        huge = quantize(row(1e300), format_of(axes.integer(2, symmetric=True), (1, 32), (E8M0, rule)))
        assert huge.fields["scale"].tolist() == [[254]]


def test_absmax_is_rounded_to_the_type_of_the_scale() -> None:
    w = row(1.0, -0.3)
    assert scale_of(w, format_of(INT4, (1, 64), (F32, "absmax")))[0, 0] == np.float32(1) / np.float32(7)
    assert scale_of(w, format_of(INT4, (1, 64), (F16, "absmax")))[0, 0] == np.float16(1 / 7)
    assert scale_of(w, format_of(INT4, (1, 64), (BF16, "absmax")))[0, 0] == np.float32(
        ml_dtypes.bfloat16(1 / 7)
    )
    assert scale_of(w, format_of(INT4, (1, 64), (E4M3, "absmax")))[0, 0] == np.float32(
        ml_dtypes.float8_e4m3fn(1 / 7)
    )


def test_f16_scales_neither_overflow_nor_vanish() -> None:
    descriptor = format_of(INT4, (1, 64), (F16, "absmax"))
    assert scale_of(row(1e9), descriptor).tolist() == [[65504.0]]
    assert quantize(row(1e9, -1e9), descriptor).dequantize().tolist() == [[7 * 65504.0, -7 * 65504.0]]
    assert scale_of(row(1e-12), descriptor).tolist() == [[2.0**-24]]


def test_signed_absmax_maps_the_extreme_to_the_least_code() -> None:
    descriptor = format_of(axes.integer(4, offset=8), (1, 32), (F16, "signed_absmax"))
    q = quantize(row(3.0, -4.0, 4.0), descriptor)
    assert q.fields["scale"].tolist() == [[0.5]]  # the first of the two extremes is -4
    assert q.dequantize().tolist() == [[3.0, -4.0, 3.5]]
    assert quantize(row(3.0, 4.0, -4.0), descriptor).fields["scale"].tolist() == [[-0.5]]
    # Kept from overflow and from zero, with codes that fit the scale as stored.
    assert quantize(row(-1e9, 1e9), descriptor).dequantize().tolist() == [[-8 * 65504.0, 7 * 65504.0]]
    assert quantize(row(-(2.0**-25), 0.0), descriptor).dequantize().tolist() == [[0.0, 0.0]]


def test_nested_scales() -> None:
    w = np.zeros((2, 32))
    w[0, 0], w[0, 20], w[1, 3] = 6 * 448.0, 6 * 3.0, -6 * 0.4
    q = quantize(w, NVFP4)
    assert q.fields["scale1"].tolist() == [[1.0]]
    assert q.fields["scale"].view(ml_dtypes.float8_e4m3fn).astype(float).tolist() == [[448, 3], [0.40625, 0]]
    assert q.dequantize()[1, 3] == -6 * 0.40625
    assert quantize(w * 4, NVFP4).fields["scale1"].tolist() == [[4.0]]


def test_a_dividing_level_stores_the_reciprocal() -> None:
    descriptor = format_of(E2M1, (1, 16), (E4M3, "absmax"), (F32, "absmax", (0, 0), "divide"))
    w = np.random.default_rng(2).standard_normal((4, 64))
    q, plain = quantize(w, descriptor), quantize(w, NVFP4)
    ratio = float(q.fields["scale1"][0, 0]) * float(plain.fields["scale1"][0, 0])
    assert abs(ratio - 1) < 2.0**-22
    np.testing.assert_allclose(q.dequantize(), plain.dequantize(), rtol=1e-6)


def test_three_levels_down_to_a_row() -> None:
    six = axes.integer(6, signed=False)
    descriptor = format_of(INT4, (1, 16), (six, "absmax"), (E4M3, "absmax", (1, 64)), (F32, "absmax", (1, 0)))
    w = np.random.default_rng(3).standard_normal((5, 200)) * 2.0 ** np.arange(5)[:, None]
    q = quantize(w, descriptor)
    assert [q.fields[name].shape for name in q.fields] == [(5, 112), (5, 11), (5, 4), (5, 1)]
    step = expand(scale_of(w, descriptor), (1, 16), w.shape, 0, 5)
    assert (np.abs(q.dequantize() - w) <= 0.51 * step + 0.1 * np.abs(w)).all()


@pytest.mark.parametrize("block", [(2, 3), (0, 3), (3, 0), (0, 0), (1, 1), (128, 128), (7, 5)])
def test_blocks_in_both_directions_with_ragged_edges(block: tuple[int, int]) -> None:
    w = np.random.default_rng(4).standard_normal((7, 11))
    scale = scale_of(w, format_of(E4M3, block, (F32, "absmax")))
    rows, columns = block[0] or 7, block[1] or 11
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            part = w[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
            assert scale[i, j] == np.float32(np.abs(part).max() / 448)


def test_rows_are_worked_on_in_chunks_with_the_same_result() -> None:
    k = CHUNK // 2 + 1  # two rows would pass the chunk
    w = np.random.default_rng(5).standard_normal((3, k)).astype(np.float32)
    descriptor = format_of(INT4, (2, 64), (F32, "absmax"))
    q = quantize(w, descriptor)
    alone = quantize(w[:, : 64 * 100], descriptor)
    np.testing.assert_array_equal(q.fields["scale"][:, :100], alone.fields["scale"])
    np.testing.assert_array_equal(q.dequantize()[:, :6400], alone.dequantize())


# ------------------------------------------------------------ zero points
def affine(
    zero: axes.Element, domain: str, stored: str = "value", scale: axes.Element = F32
) -> dict[str, Any]:
    return format_of(UINT4, (1, 32), (scale, "minmax"), zero=axes.Zero(zero, domain, stored))


def test_integer_zero_points() -> None:
    q = quantize(row(-5.0, 10.0, 0.0), affine(UINT4, "code"))
    assert q.fields["scale"].tolist() == [[1.0]]
    assert q.fields["zero"].tolist() == [[5]]
    assert q.dequantize().tolist() == [[-5.0, 10.0, 0.0]]
    # 0 is always within the range.
    positive = quantize(row(10.0, 20.0, 30.0), affine(UINT4, "code"))
    assert (positive.fields["scale"].tolist(), positive.fields["zero"].tolist()) == ([[2.0]], [[0]])
    negative = quantize(row(-10.0, -30.0), affine(UINT4, "code"))
    assert (negative.fields["scale"].tolist(), negative.fields["zero"].tolist()) == ([[2.0]], [[15]])


def test_zero_points_stored_minus_one() -> None:
    q = quantize(row(-5.0, 10.0), affine(UINT4, "code", "minus_one"))
    assert q.fields["zero"].tolist() == [[4]]
    assert q.dequantize().tolist() == [[-5.0, 10.0]]
    q = quantize(
        row(0.0, 15.0), affine(UINT4, "code", "minus_one")
    )  # 0 - 1 is not to be had: one step is lost
    assert q.fields["zero"].tolist() == [[0]]
    assert q.dequantize().tolist() == [[0.0, 14.0]]


def test_value_domain_decodes_with_one_rounding() -> None:
    w = np.random.default_rng(7).standard_normal((40, 320))
    q = quantize(w, affine(F32, "value"))
    entries = side_entries(q)
    v, s, z = (
        q.format.element.values[unpack_rows(q, 0, 40)].astype(np.float32),
        *(np.repeat(entries[name], 32, axis=1) for name in ("scale", "zero")),
    )
    np.testing.assert_array_equal(q.dequantize(), fma32(v, s, z))
    assert (q.dequantize() != v * s + z).any()


def test_float_zero_points() -> None:
    value = quantize(row(2.0, 17.0, 3.0), affine(F16, "value"))
    assert (value.fields["scale"].tolist(), value.fields["zero"].tolist()) == ([[1.0]], [[2.0]])
    assert value.dequantize().tolist() == [[2.0, 17.0, 3.0]]
    code = quantize(row(2.0, 17.0, 3.0), affine(F16, "code"))
    assert (code.fields["scale"].tolist(), code.fields["zero"].tolist()) == ([[1.0]], [[-2.0]])
    assert code.dequantize().tolist() == [[2.0, 17.0, 3.0]]
    flat = quantize(row(3.0, 3.0, 3.0), affine(F16, "code"))
    assert np.abs(flat.dequantize() - 3).max() < 2e-3
    constant = quantize(row(0.3, 0.3), affine(F32, "value"))
    assert constant.dequantize().tolist() == [[np.float32(0.3), np.float32(0.3)]]


# ------------------------------------------------------------ zeros, infinities and NaN
@pytest.mark.parametrize(
    "element", [E2M1, INT4, axes.integer(4, offset=3), UINT4, axes.codebook([-1.0, 0.0, 0.5, 2])]
)
@pytest.mark.parametrize("scale", [F32, F16, BF16, E4M3, E8M0])
def test_a_block_of_zeros_decodes_to_zeros(element: axes.Element, scale: axes.Element) -> None:
    descriptor = format_of(element, (1, 4), (scale, "absmax"))
    w = np.zeros((2, 8))
    w[1, 6] = 1
    q = quantize(w, descriptor)
    assert q.dequantize()[:, :4].tolist() == [[0] * 4] * 2
    first = combine_scales(q.format, side_entries(q), q.shape, np.float32)[0, 0]
    assert first == (1.0 if scale is E8M0 else 0.0)


def test_a_block_of_zeros_without_a_zero() -> None:
    book = axes.codebook([-1.0, 1.0])
    assert quantize(np.zeros((1, 4)), format_of(book, (1, 4), (F32, "absmax"))).dequantize().tolist() == [
        [0] * 4
    ]
    least = quantize(np.zeros((1, 4)), format_of(book, (1, 4), (E8M0, "nearest")))
    assert least.fields["scale"].tolist() == [[0]]
    assert np.abs(least.dequantize()).max() == 2.0**-127


def test_all_zeros_under_a_global_scale() -> None:
    q = quantize(np.zeros((2, 32)), NVFP4)
    assert q.fields["scale1"].tolist() == [[1.0]]
    assert not q.dequantize().any()


@pytest.mark.parametrize("descriptor", [MXFP4, NVFP4, format_of(E5M2, (1, 32), (F32, "absmax"))])
def test_infinities_saturate_and_leave_the_range_alone(descriptor: dict[str, Any]) -> None:
    w = np.linspace(-1, 1, 64)[None]
    with_infinity = w.copy()
    with_infinity[0, 3], with_infinity[0, 40] = np.inf, -np.inf
    w[0, 3], w[0, 40] = 0, 0
    plain, q = quantize(w, descriptor), quantize(with_infinity, descriptor)
    for name in plain.fields:
        if name != "codes":
            np.testing.assert_array_equal(q.fields[name], plain.fields[name])
    d = q.dequantize()
    assert np.isfinite(d).all()
    assert d[0, 3] >= np.abs(d[0, :16]).max()
    assert d[0, 40] <= -np.abs(d[0, 32:48]).max()


def test_a_block_of_infinities_has_scale_one() -> None:
    q = quantize(row(np.inf, -np.inf, 0.0), format_of(INT4, (1, 32), (F32, "absmax")))
    assert q.dequantize().tolist() == [[7.0, -7.0, 0.0]]


def test_nan_takes_its_code_or_is_an_error_or_zero() -> None:
    w = np.ones((3, 40))
    w[1, 33] = np.nan
    with pytest.raises(ArgumentError, match=r"NaN at \[1, 33\].*nan=\"zero\""):
        quantize(w, MXFP4)
    assert quantize(w, MXFP4, nan="zero").dequantize()[1, 33] == 0
    for element in (E4M3, E5M2):
        descriptor = format_of(element, (1, 32), (F32, "absmax"))
        d = quantize(w, descriptor).dequantize()
        assert np.isnan(d[1, 33])
        assert np.isnan(d).sum() == 1
        assert quantize(w, descriptor, nan="zero").dequantize()[1, 33] == 0
    with pytest.raises(ArgumentError, match="nan: wanted"):
        quantize(w, MXFP4, nan="drop")  # type: ignore[arg-type]


def test_nan_is_found_in_a_format_without_scales() -> None:
    with pytest.raises(ArgumentError, match="NaN"):
        quantize(row(np.nan), format_of(E2M1, (1, 1)))
    assert quantize(row(5.9, -0.3, 100), format_of(E2M1, (1, 1))).dequantize().tolist() == [[6.0, -0.5, 6.0]]


# ------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("array", "error", "said"),
    [
        (np.ones(4), ArgumentError, r"2 dimensions .* got shape \(4,\)"),
        (np.ones((1, 2, 3)), ArgumentError, "2 dimensions"),
        (np.float32(1), ArgumentError, "2 dimensions"),
        (np.ones((0, 4)), ArgumentError, "at least one row"),
        (np.ones((4, 0)), ArgumentError, "at least one row"),
        (np.ones((2, 2), complex), DtypeError, "complex128"),
        (np.ones((2, 2), bool), DtypeError, "bool"),
        (np.ones((2, 2), object), DtypeError, "object"),
        (np.full((2, 2), "a"), DtypeError, "real dtype"),
        ([[1.0], [2.0, 3.0]], ArgumentError, "matrix of numbers"),
        (None, DtypeError, "real dtype"),
    ],
)
def test_bad_arrays_are_refused(array: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        quantize(array, MXFP4)


def test_bad_formats_are_refused() -> None:
    for format in (3, "nothing", None, {"name": "x"}):
        with pytest.raises(FormatError):
            quantize(np.ones((2, 2)), format)


def test_every_real_dtype_stride_and_byte_order() -> None:
    rng = np.random.default_rng(6)
    w = np.round(rng.standard_normal((6, 80)) * 8) / 8
    expected = quantize(w, NVFP4)
    kinds: list[Any] = ["<f2", ">f2", "<f4", ">f4", ">f8", "longdouble", ml_dtypes.bfloat16]
    forms = [w.astype(kind) for kind in kinds]
    forms += [np.asfortranarray(w), np.repeat(w, 2, axis=1)[:, ::2], w[::-1][::-1], w[:, ::-1][:, ::-1]]
    read_only = w.copy()
    read_only.flags.writeable = False
    for form in [*forms, read_only, w.tolist()]:
        q = quantize(form, NVFP4)
        for name in q.fields:
            np.testing.assert_array_equal(q.fields[name], expected.fields[name])
    numbers = np.arange(-60, 60).reshape(3, 40)
    for kind in ("i1", "<i4", ">i8"):
        np.testing.assert_array_equal(
            quantize(numbers.astype(kind), NVFP4).dequantize(),
            quantize(numbers.astype(float), NVFP4).dequantize(),
        )


def test_stride_zero_is_read_as_what_it_shows() -> None:
    w = np.broadcast_to(np.linspace(-1, 1, 32), (4, 32))
    assert len(np.unique(quantize(w, MXFP4).fields["codes"], axis=0)) == 1


class FakeTensor:
    """What quantize needs of a torch tensor."""

    def __init__(self, array: Any, device: str = "cpu") -> None:
        self._array = array
        self.device = type("device", (), {"type": device, "__str__": lambda self: f"{device}:0"})()
        self.dtype = f"torch.{array.dtype}"

    def detach(self) -> FakeTensor:
        return self

    def numpy(self) -> Any:
        if "bfloat16" in self.dtype:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self._array

    def float(self) -> FakeTensor:
        return FakeTensor(self._array.astype(np.float32))


def test_torch_tensors_on_the_cpu_only() -> None:
    from wootz.errors import DeviceError

    w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    expected = quantize(w, MXFP4).fields["codes"]
    np.testing.assert_array_equal(quantize(FakeTensor(w), MXFP4).fields["codes"], expected)
    half = FakeTensor(w.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(
        quantize(half, MXFP4).fields["codes"], quantize(w.astype(ml_dtypes.bfloat16), MXFP4).fields["codes"]
    )
    with pytest.raises(DeviceError, match=r"cuda:0.*\.cpu\(\)"):
        quantize(FakeTensor(w, "cuda"), MXFP4)


# ------------------------------------------------------------ properties
def matrices(seed: int, n: int, k: int) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, k)) * 2.0 ** rng.uniform(-6, 6, (n, 1))).astype(np.float32)


def candidates(q: Any) -> Any:
    """[N, K, codes]: the number that each code the quantiser may use would stand for, in float64."""
    format, shape = q.format, q.shape
    entries = side_entries(q)
    scale = combine_scales(format, entries, shape, np.float32).astype(np.float64)
    s = expand(scale, scale_block(format), shape, 0, shape[0])[:, :, None]
    v = format.element.values[format.element.usable][None, None, :]
    zero = zero_values(format, entries)
    if zero is None or format.zero is None:
        return v * s
    z = expand(zero.astype(np.float64), format.block, shape, 0, shape[0])[:, :, None]
    return (v - z) * s if format.zero.domain == "code" else v * s + z


@settings(max_examples=150, deadline=None, derandomize=True)
@given(descriptors(), st.integers(1, 6), st.integers(1, 70), st.integers(0, 10_000))
def test_codes_are_the_nearest(descriptor: dict[str, Any], n: int, k: int, seed: int) -> None:
    w = matrices(seed, n, k).astype(np.float64)
    q = quantize(w, descriptor)
    error = np.abs(decode_exact(q) - w)
    best = np.abs(candidates(q) - w[:, :, None]).min(axis=2)
    slack = 1e-6 * (np.abs(w) + np.abs(candidates(q)).max(axis=2))
    assert (error <= best + slack).all()
    usable = q.format.element.usable
    assert usable[unpack_rows(q, 0, n)].all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(descriptors(), st.integers(1, 6), st.integers(1, 70), st.integers(0, 10_000))
def test_float32_decoding_is_near_the_exact_one(
    descriptor: dict[str, Any], n: int, k: int, seed: int
) -> None:
    q = quantize(matrices(seed, n, k), descriptor)
    exact = decode_exact(q)
    largest = np.abs(candidates(q)).max(axis=2)
    assert (np.abs(q.dequantize() - exact) <= 4 * 2.0**-24 * largest + 2.0**-149).all()


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.sampled_from(
        [E2M1, E4M3, E5M2, axes.floating(3, 2), *(axes.integer(b, symmetric=True) for b in range(2, 9))]
    ),
    st.sampled_from(["floor", "even"]),
    st.integers(1, 5),
    st.integers(1, 70),
    st.integers(0, 10_000),
)
def test_power_of_two_formats_are_stable(element: axes.Element, rule: str, n: int, k: int, seed: int) -> None:
    descriptor = format_of(element, (1, 32), (E8M0, rule))
    once = quantize(matrices(seed, n, k), descriptor).dequantize()
    np.testing.assert_array_equal(quantize(once, descriptor).dequantize(), once)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.sampled_from([E2M1, E4M3, *(axes.integer(b, symmetric=True) for b in range(2, 9))]),
    st.sampled_from([F32, F16, BF16]),
    st.integers(1, 5),
    st.integers(1, 70),
    st.integers(0, 10_000),
)
def test_codes_are_stable_under_absmax(
    element: axes.Element, scale: axes.Element, n: int, k: int, seed: int
) -> None:
    descriptor = format_of(element, (1, 32), (scale, "absmax"))
    first = quantize(matrices(seed, n, k), descriptor)
    second = quantize(first.dequantize(), descriptor)
    np.testing.assert_array_equal(second.fields["codes"], first.fields["codes"])


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.sampled_from([E2M1, E4M3, *(axes.integer(b, symmetric=True) for b in range(2, 9))]),
    st.integers(1, 5),
    st.integers(1, 70),
    st.integers(0, 10_000),
)
def test_the_error_is_at_most_half_a_step(element: axes.Element, n: int, k: int, seed: int) -> None:
    w = matrices(seed, n, k).astype(np.float64)
    q = quantize(w, format_of(element, (1, 16), (F32, "absmax")))
    values = np.unique(q.format.element.values[q.format.element.usable])
    step = expand(combine_scales(q.format, side_entries(q), q.shape, np.float64), (1, 16), w.shape, 0, n)
    ratio = np.clip(w / step, values[0], values[-1])
    above = np.clip(np.searchsorted(values, ratio), 1, len(values) - 1)
    gap = values[above] - values[above - 1]
    assert (np.abs(decode_exact(q) - w) <= (gap / 2 + 1e-5 * np.abs(values).max()) * step).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(descriptors(), st.integers(1, 6), st.integers(1, 70), st.sampled_from([1e-30, 1e-9, 1e9, 1e30]))
def test_no_block_that_is_not_zero_has_scale_zero(
    descriptor: dict[str, Any], n: int, k: int, size: float
) -> None:
    w = matrices(1, n, k) * np.float32(size)
    q = quantize(w, descriptor)
    for name, element, _ in q.format.side_fields:
        if name != "zero":
            level = element.decode(side_entries(q)[name])
            assert np.isfinite(level).all()
            if q.format.zero is None:  # a constant block under minmax may have scale 0
                assert (level != 0).all()


def test_the_descriptor_of_the_generator_is_enough() -> None:
    class Format:
        def descriptor(self) -> dict[str, Any]:
            return NVFP4

    w = np.ones((2, 16))
    assert quantize(w, Format()).format == Descriptor.parse(NVFP4)
    assert quantize(w, {"key": "case", **NVFP4}).format == Descriptor.parse(NVFP4)
