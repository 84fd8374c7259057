"""Bytes: golden ones written out by hand, and random layouts against a bit-by-bit packer."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wootz.errors import ArgumentError, DtypeError, FormatError
from wootz.formats import Descriptor, QuantizedTensor, from_fields, quantize
from wootz.formats.bits import pack_stream, stream_pitch, unpack_stream
from wootz.formats.sample import random_tensor
from wootz.formats.tensor import pack_rows, pack_side, side_entries, unpack_rows

from gen.formats import axes, layout
from tests.null.format_cases import BF16, E2M1, E4M3, E8M0, F16, F32, descriptors, format_of, split_half


def packed(descriptor: dict[str, Any], codes: list[list[int]], **sides: Any) -> np.ndarray[Any, Any]:
    format = Descriptor.parse(descriptor)
    array = np.array(codes, dtype=np.uint8)
    out = np.zeros((array.shape[0], format.layout.row_bytes(array.shape[1])), dtype=np.uint8)
    pack_rows(format, array, {name: np.asarray(a) for name, a in sides.items()}, out)
    return out


# ------------------------------------------------------------ golden bytes
def test_four_bits_low_nibble_first() -> None:
    row = packed(format_of(E2M1, (1, 32), (E8M0, "nearest")), [[1, 2, 3, 4, 5]])
    assert row.shape == (1, 16)
    assert row[0].tolist() == [0x21, 0x43, 0x05] + [0] * 13


def test_four_bits_high_nibble_first() -> None:
    element = axes.integer(4, signed=False)
    planes = (layout.Plane(4, order="msb"),)
    assert packed(format_of(element, (1, 32), (F32, "absmax"), planes=planes), [[1, 2, 3]])[
        0, :2
    ].tolist() == [0x12, 0x30]


def test_three_bits_dense_over_byte_ends() -> None:
    # Codes 1..8: the stream is 001 010 011 100 101 110 111 000 from the low end, 0x1F58D1 as one number.
    element = axes.integer(3, signed=False)
    row = packed(format_of(element, (1, 64), (F32, "absmax")), [[1, 2, 3, 4, 5, 6, 7, 0]])
    number = sum(code << (3 * i) for i, code in enumerate([1, 2, 3, 4, 5, 6, 7, 0]))
    assert row[0, :3].tolist() == list(number.to_bytes(3, "little")) == [0xD1, 0x58, 0x1F]


def test_three_bits_padded_to_words() -> None:
    # Ten codes to a 32-bit word, the upper two bits unused.
    element = axes.integer(3, signed=False)
    planes = (layout.Plane(3, word=32, padded=True),)
    row = packed(format_of(element, (1, 0), (F32, "absmax"), planes=planes), [[7] * 10 + [5]])
    assert row[0, :8].tolist() == [0xFF, 0xFF, 0xFF, 0x3F, 5, 0, 0, 0]


def test_halves_split_and_scale_in_front() -> None:
    # A GGUF-like unit: f16 scale, then byte j holds element j below and element j + 16 above.
    descriptor = format_of(
        axes.integer(4, offset=8),
        (1, 32),
        (F16, "signed_absmax"),
        planes=split_half(4),
        order=("scale", "codes"),
    )
    row = packed(descriptor, [[*range(16), *reversed(range(16))]], scale=np.float16([[1.0]]))
    assert row[0, :18].tolist() == [0x00, 0x3C] + [j | (15 - j) << 4 for j in range(16)]


def test_bit_planes() -> None:
    # Low bits of eight codes in one byte, then two bits each in two bytes.
    element = axes.integer(3, signed=False)
    planes = (layout.Plane(1, 0), layout.Plane(2, 1))
    row = packed(format_of(element, (1, 8), (F32, "absmax"), planes=planes), [[1, 0, 1, 0, 0, 0, 0, 1]])
    assert row[0, :3].tolist() == [0b10000101, 0, 0]
    row = packed(format_of(element, (1, 8), (F32, "absmax"), planes=planes), [[2, 4, 6, 0, 2, 0, 0, 0]])
    assert row[0, :3].tolist() == [0, 0b00111001, 0b00000001]


def test_permuted_slots() -> None:
    # Slot i holds element perm[i]: the order in which AWQ packs columns.
    element = axes.integer(4, signed=False)
    planes = (layout.Plane(4, word=32, permutation=(0, 2, 4, 6, 1, 3, 5, 7)),)
    row = packed(format_of(element, (1, 8), (F32, "absmax"), planes=planes), [[0, 1, 2, 3, 4, 5, 6, 7]])
    assert int.from_bytes(row[0, :4].tobytes(), "little") == 0x75316420


def test_inline_sub_byte_scales_and_zero_points() -> None:
    element = axes.integer(8, signed=False)
    zero = axes.Zero(axes.integer(4, signed=False))
    descriptor = format_of(
        element,
        (1, 2),
        (axes.integer(4, signed=False), "minmax"),
        zero=zero,
        order=("zero", "codes", "scale"),
        unit=4,
    )
    row = packed(descriptor, [[1, 2, 3, 4]], scale=np.uint8([[5, 6]]), zero=np.uint8([[7, 8]]))
    assert row[0, :6].tolist() == [0x87, 1, 2, 3, 4, 0x65]


def test_streams_have_a_guard_byte_where_codes_straddle() -> None:
    assert [stream_pitch(5, bits) for bits in (1, 2, 3, 4, 6)] == [1, 2, 3, 3, 5]
    codes = np.uint8([[1, 2, 3, 4, 5]])
    assert pack_stream(codes, 6).tolist() == [[0x81, 0x30, 0x10, 0x05, 0]]
    assert pack_stream(codes, 4).tolist() == [[0x21, 0x43, 0x05]]
    np.testing.assert_array_equal(unpack_stream(pack_stream(codes, 6), 5, 6), codes)


# ------------------------------------------------------------ random layouts
def slow_pack(format: Descriptor, codes: Any, sides: dict[str, Any]) -> Any:
    """The layout read literally: one bit at a time."""
    rows, k = codes.shape
    lay = format.layout
    out = np.zeros((rows, lay.row_bytes(k)), dtype=np.uint8)

    def put(row: int, unit: int, offset: int, bit: int) -> None:
        out[row, unit * lay.unit_bytes + offset // 8] |= bit << (offset % 8)

    for row in range(rows):
        for column in range(k):
            unit, j = divmod(column, lay.unit)
            for i, offset in enumerate(lay.positions[j]):
                put(row, unit, offset, int(codes[row, column]) >> i & 1)
        for inline in lay.inline:
            raw = np.ascontiguousarray(sides[inline.field])
            raw = raw.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[raw.dtype.itemsize])
            for block in range(raw.shape[1]):
                unit, i = divmod(block, inline.count)
                for bit in range(inline.bits):
                    put(row, unit, inline.bit + i * inline.bits + bit, int(raw[row, block]) >> bit & 1)
    return out


@settings(max_examples=120, deadline=None, derandomize=True)
@given(descriptors(), st.integers(1, 7), st.integers(1, 90), st.integers(0, 99))
def test_packing_matches_the_layout_bit_by_bit(descriptor: dict[str, Any], n: int, k: int, seed: int) -> None:
    q = random_tensor(descriptor, (n, k), np.random.default_rng(seed), specials=True)
    sides, codes = side_entries(q), unpack_rows(q, 0, n)
    np.testing.assert_array_equal(q.fields["codes"], slow_pack(q.format, codes, sides))
    # And back: the same tensor from its entries.
    again = np.zeros_like(q.fields["codes"])
    pack_rows(q.format, codes, sides, again)
    np.testing.assert_array_equal(again, q.fields["codes"])
    inline = {i.field for i in q.format.layout.inline}
    for name, element, _ in q.format.side_fields:
        if name not in inline:
            np.testing.assert_array_equal(
                pack_side(sides[name], element).view(np.uint8), q.fields[name].view(np.uint8)
            )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(descriptors(), st.integers(1, 5), st.integers(1, 70))
def test_padding_is_zero_whatever_the_codes(descriptor: dict[str, Any], n: int, k: int) -> None:
    format = Descriptor.parse(descriptor)
    codes = np.full((n, k), (1 << format.element.bits) - 1, dtype=np.uint8)
    out = np.zeros((n, format.layout.row_bytes(k)), dtype=np.uint8)
    sides = {
        i.field: np.zeros((n, -(-k // format.block[1])), np.uint32 if i.bits > 16 else np.uint16)
        for i in format.layout.inline
    }
    pack_rows(format, codes, sides, out)
    assert np.unpackbits(out).sum() == n * k * format.element.bits
    assert not out[:, format.layout.natural_bytes(k) :].any()


# ------------------------------------------------------------ tensors
NVFP4 = format_of(E2M1, (1, 16), (E4M3, "absmax"), (F32, "absmax", (0, 0)))


def test_a_tensor_knows_its_size_and_shows_it() -> None:
    q = quantize(np.ones((3, 40)), NVFP4)
    assert [q.fields[name].shape for name in q.fields] == [(3, 32), (3, 3), (1, 1)]
    assert q.nbytes == 3 * 32 + 9 + 4
    assert "3x40" in repr(q)
    assert "scale1 float32[1, 1]" in repr(q)
    assert pickle.loads(pickle.dumps(q)).format == q.format


def test_fields_cannot_be_replaced() -> None:
    q = quantize(np.ones((3, 40)), NVFP4)
    with pytest.raises(TypeError):
        q.fields["codes"] = q.fields["codes"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"codes": np.zeros((3, 20), np.uint8)}, ArgumentError, r"field codes: wanted shape \(3, 32\)"),
        ({"codes": np.zeros((3, 32), np.int8)}, DtypeError, "field codes: wanted dtype uint8"),
        ({"scale1": np.zeros((1, 1))}, DtypeError, "float64"),
        ({"scale1": 1.0}, ArgumentError, "wanted an array"),
        ({"extra": np.zeros(1)}, FormatError, "extra"),
    ],
)
def test_wrong_fields_are_named(change: dict[str, Any], error: type[Exception], said: str) -> None:
    q = quantize(np.ones((3, 40)), NVFP4)
    with pytest.raises(error, match=said):
        QuantizedTensor(q.format, q.shape, {**q.fields, **change})


@pytest.mark.parametrize("shape", [(3,), (0, 4), (4, 0), (0, 2, 3), (1, 2, 3, 4), "ab"])
def test_wrong_shapes_are_refused(shape: Any) -> None:
    with pytest.raises(ArgumentError):
        QuantizedTensor(Descriptor.parse(NVFP4), shape, {})


def test_missing_field_is_named() -> None:
    q = quantize(np.ones((3, 40)), NVFP4)
    with pytest.raises(FormatError, match="scale1"):
        from_fields(NVFP4, (3, 40), {"codes": q.fields["codes"], "scale": q.fields["scale"]})


def test_external_bytes_are_padded_and_reshaped() -> None:
    import ml_dtypes

    q = quantize(np.random.default_rng(0).standard_normal((3, 40)), NVFP4)
    outside = {
        "codes": q.fields["codes"][:, :20],
        "scale": q.fields["scale"].view(ml_dtypes.float8_e4m3fn),
        "scale1": np.float32(q.fields["scale1"][0, 0]),
    }
    again = from_fields(NVFP4, (3, 40), outside)
    for name in q.fields:
        np.testing.assert_array_equal(again.fields[name], q.fields[name])
    with pytest.raises(ArgumentError, match="codes"):
        from_fields(NVFP4, (3, 40), {**outside, "codes": q.fields["codes"][:, :19]})


def test_bfloat16_scales_are_taken_by_their_bits() -> None:
    import ml_dtypes

    descriptor = format_of(E2M1, (1, 32), (BF16, "absmax"))
    q = quantize(np.ones((2, 32)), descriptor)
    outside = {"codes": q.fields["codes"], "scale": q.fields["scale"].view(ml_dtypes.bfloat16)}
    np.testing.assert_array_equal(from_fields(descriptor, (2, 32), outside).dequantize(), q.dequantize())


def test_map_and_to() -> None:
    q = quantize(np.ones((3, 40)), NVFP4)
    assert q.to("cpu").fields["codes"] is q.fields["codes"]
    copy = q.map(np.copy)
    assert copy.fields["codes"] is not q.fields["codes"]
    with pytest.raises(ArgumentError, match="codes"):
        q.map(lambda a: a[:1])
    with pytest.raises(ArgumentError, match="device"):
        q.to("tpu")


@pytest.mark.parametrize("rule", ["absmax", "signed_absmax"])
def test_fields_are_dense_rows(rule: str) -> None:
    descriptor = format_of(axes.integer(4), (2, 8), (F32, rule))
    q = quantize(np.random.default_rng(1).standard_normal((9, 40)), descriptor)
    assert all(a.flags.c_contiguous for a in q.fields.values())


class FakeDeviceArray:
    """What the loader's own device arrays show."""

    def __init__(self, array: Any) -> None:
        self.shape, self.dtype, self._array = array.shape, array.dtype, array

    def numpy(self) -> Any:
        return self._array.copy()


def test_a_device_without_torch_or_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def to_device(array: Any, device: str) -> FakeDeviceArray:
        calls.append(device)
        return FakeDeviceArray(array)

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(sys.modules, "wootz.arrays", SimpleNamespace(to_device=to_device))
    q = quantize(np.ones((3, 40)), NVFP4)
    there = q.to("cuda:1")
    assert calls == ["cuda:1"] * 3
    assert isinstance(there.fields["codes"], FakeDeviceArray)
    assert there.nbytes == q.nbytes
    np.testing.assert_array_equal(there.dequantize(), q.dequantize())


# ------------------------------------------------------------ what tells definitions apart
def test_a_digest_is_that_of_the_definition() -> None:
    raw = format_of(E2M1, (1, 32), (E8M0, "nearest"))
    format = Descriptor.parse(raw)
    assert Descriptor.parse(dict(reversed(list(raw.items())))).digest == format.digest
    assert pickle.loads(pickle.dumps(format)).digest == format.digest
    whole = {**raw, "element": {**raw["element"], "max": int(raw["element"]["max"])}}
    assert Descriptor.parse(whole) == format
    assert Descriptor.parse(whole).digest == format.digest
    assert len(format.digest) == 12
    assert Descriptor.parse({**raw, "name": "other"}).digest != format.digest
    assert Descriptor.parse(format_of(E2M1, (1, 64), (E8M0, "nearest"))).digest != format.digest
