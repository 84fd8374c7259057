"""Scale tiles: the layout against its formula, the tensor there and back, formats that have none."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wootz.errors import ArgumentError, DtypeError, FormatError
from wootz.formats import Descriptor, QuantizedTensor, quantize, tiles
from wootz.formats.bank import stack
from wootz.formats.sample import random_tensor

from gen.formats import axes, layout
from tests.null.format_cases import BF16, E2M1, E4M3, E5M2, E8M0, F16, F32, format_of, split_half

TENSOR = (0, 0)
CASES: dict[str, dict[str, Any]] = {
    "e2m1 x 32": format_of(E2M1, (1, 32), (E8M0, "nearest")),
    "e2m1 x 16": format_of(E2M1, (1, 16), (E4M3, "absmax")),
    "e2m1 x 16 under f32": format_of(E2M1, (1, 16), (E4M3, "absmax"), (F32, "absmax", TENSOR)),
    "e4m3 x 32": format_of(E4M3, (1, 32), (E8M0, "floor")),
    "e5m2 x 32": format_of(E5M2, (1, 32), (E8M0, "ceil")),
    "high nibble first": format_of(E2M1, (1, 32), (E8M0, "nearest"), planes=(layout.Plane(4, order="msb"),)),
    "scale in front": format_of(
        E2M1, (1, 32), (E8M0, "nearest"), planes=split_half(4), order=("scale", "codes")
    ),
}
SHAPES = [(1, 1), (3, 33), (127, 128), (128, 129), (129, 4 * 128), (300, 1000)]


def offset(r: int, c: int, columns: int) -> int:
    """Where the document puts scale (r, c)."""
    return (r // 128 * -(-columns // 4) + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=60)
def test_every_scale_lies_where_the_formula_says(rows: int, columns: int, seed: int) -> None:
    scales = np.random.default_rng(seed).integers(1, 256, (rows, columns), dtype=np.uint8)
    packed = tiles.scale_tiles(scales)
    assert packed.shape == (tiles.tile_bytes(rows, columns),)
    places = np.array([[offset(r, c, columns) for c in range(columns)] for r in range(rows)])
    assert np.array_equal(packed[places], scales)
    rest = np.ones(packed.size, dtype=bool)
    rest[places.reshape(-1)] = False
    assert (packed[rest] == tiles.PAD).all(), "padding is written"
    assert np.array_equal(tiles.untile_scales(packed, rows, columns), scales)


def test_a_tile_by_hand() -> None:
    scales = np.zeros((128, 4), dtype=np.uint8)
    scales[0, :], scales[1, 0], scales[32, 0], scales[97, 3] = [1, 2, 3, 4], 5, 6, 7
    packed = tiles.scale_tiles(scales)
    assert packed[:8].tolist() == [1, 2, 3, 4, 6, 0, 0, 0]
    assert [packed[16], packed[16 + 12 + 3], np.count_nonzero(packed)] == [5, 7, 7]


# ------------------------------------------------------------ tensors
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_there_and_back(case: str, shape: tuple[int, int]) -> None:
    descriptor = Descriptor.parse(CASES[case])
    q = random_tensor(descriptor, shape, np.random.default_rng(5), specials=False)
    if "under" in case or descriptor.scales[0].element.kind == "float":
        q = _positive(q)
    t = tiles.tile(q)
    back = t.untile()
    assert back.shape == q.shape
    assert np.array_equal(t.dequantize(), q.dequantize())
    again = tiles.tile(back)
    for name, field in t.fields.items():
        assert np.array_equal(again.fields[name], field), name
    rows = [np.unpackbits(f.fields["codes"], axis=1) for f in (quantized_again(q), quantized_again(back))]
    assert np.array_equal(rows[0], rows[1])
    copied = pickle.loads(pickle.dumps(t))
    assert np.array_equal(copied.fields["tiles"], t.fields["tiles"])
    assert repr(t).startswith("TiledTensor(case, ")
    assert t.nbytes == sum(f.nbytes for f in t.fields.values())


def _positive(q: QuantizedTensor) -> QuantizedTensor:
    fields = dict(q.fields)
    fields["scale"] = fields["scale"] & np.uint8(0x7F)
    return QuantizedTensor(q.format, q.shape, fields)


def quantized_again(q: QuantizedTensor) -> QuantizedTensor:
    """Codes with their padding cleared, so that tensors compare byte by byte."""
    return tiles.untile(tiles.tile(q))


def test_codes_are_rows_of_whole_runs() -> None:
    q = quantize(np.array([[0.5, 1.0, 1.5, 2.0, 3.0]]), CASES["high nibble first"])
    t = tiles.tile(q)
    assert t.fields["codes"].shape == (1, 64)
    assert t.fields["codes"][0, 64 - 61 :].any() == np.False_
    low_first = t.fields["codes"][0, :3]
    values = low_first.repeat(2)[:5] >> np.array([0, 4, 0, 4, 0], dtype=np.uint8) & 15
    scale = 2.0 ** (float(t.fields["tiles"][0]) - 127)
    decoded = np.array(tiles.ELEMENTS["e2m1"])[values]
    assert (decoded * scale).tolist() == [0.5, 1.0, 1.5, 2.0, 3.0]


def test_value_tables_are_ml_dtypes() -> None:
    kinds = {
        "e2m1": ml_dtypes.float4_e2m1fn,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
        "e8m0": ml_dtypes.float8_e8m0fnu,
    }
    for name, values in (tiles.ELEMENTS | tiles.SCALES).items():
        codes = np.arange(len(values), dtype=np.uint8)
        other = codes.view(kinds[name]).astype(np.float32)
        assert np.array_equal(np.array(values, dtype=np.float32), other, equal_nan=True), name


def test_banks() -> None:
    rng = np.random.default_rng(7)
    format = CASES["e2m1 x 16 under f32"]
    members = [tiles.tile(quantize(rng.standard_normal((130, 200)), format)) for _ in range(3)]
    bank = stack(members)
    assert bank.shape == (3, 130, 200)
    assert {name: a.shape for name, a in bank.fields.items()} == {
        "codes": (3, 130, 128),
        "tiles": (3, 2 * 4 * 512),
        "scale1": (3, 1, 1),
    }
    for one, other in zip(bank.matrices(), members, strict=True):
        assert all(np.array_equal(one.fields[name], other.fields[name]) for name in one.fields)
    assert np.array_equal(bank.dequantize()[2], members[2].dequantize())
    with pytest.raises(ArgumentError, match=r"members\[1\].*\(130, 200\).*\(130, 300\)"):
        stack([members[0], tiles.tile(quantize(rng.standard_normal((130, 300)), format))])
    with pytest.raises(FormatError, match=r"members\[1\]"):
        stack([members[0], tiles.tile(quantize(np.ones((130, 200)), CASES["e2m1 x 32"]))])
    with pytest.raises(ArgumentError, match="at least one"):
        stack([])
    with pytest.raises(ArgumentError, match="wanted a bank, of shape"):
        members[0].matrix(0)
    assert members[0].matrices() == [members[0]]
    with pytest.raises(ArgumentError):
        tiles.untile(bank)


# ------------------------------------------------------------ what the instructions take
@pytest.mark.parametrize("case", CASES)
def test_taken_by_its_axes(case: str) -> None:
    found = tiles.scaling(CASES[case])
    assert (found.element, found.block) == (case.split()[0] if case[0] == "e" else "e2m1", found.block)
    assert found.scale == ("e4m3" if found.block == 16 else "e8m0")
    assert found.globally == ("under" in case)
    assert tiles.refusal(Descriptor.parse(CASES[case])) is None


WORD = axes.integer(4)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another element": (format_of(WORD, (1, 32), (E8M0, "nearest")), "e2m1 in blocks of 16 with e4m3"),
    "another bias": (format_of(axes.floating(2, 1, bias=2), (1, 32), (E8M0, "nearest")), "e2m1"),
    "another block": (format_of(E2M1, (1, 64), (E8M0, "nearest")), "blocks of 32"),
    "rows": (format_of(E2M1, (16, 16), (E4M3, "absmax")), "blocks of"),
    "another scale": (format_of(E2M1, (1, 32), (F32, "absmax")), "e8m0 scales"),
    "e4m3 elements, e4m3 scales": (format_of(E4M3, (1, 16), (E4M3, "absmax")), "blocks of"),
    "f16 above": (format_of(E2M1, (1, 16), (E4M3, "absmax"), (F16, "absmax", TENSOR)), "one float32"),
    "bf16 above": (format_of(E2M1, (1, 16), (E4M3, "absmax"), (BF16, "absmax", TENSOR)), "one float32"),
    "f32 above rows": (format_of(E2M1, (1, 16), (E4M3, "absmax"), (F32, "absmax", (1, 0))), "whole tensor"),
    "dividing": (format_of(E2M1, (1, 16), (E4M3, "absmax"), (F32, "absmax", TENSOR, "divide")), "multiplies"),
    "a zero point": (
        format_of(E2M1, (1, 32), (E8M0, "minmax"), zero=axes.Zero(F16, "value")), "zero point",
    ),
    "no scale": (format_of(E2M1, (1, 32)), "no scale"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_its_axes(case: str) -> None:
    descriptor, reason = REFUSED[case]
    assert reason in str(tiles.refusal(Descriptor.parse(descriptor)))
    with pytest.raises(FormatError, match="format case has no scale tiles"):
        tiles.scaling(descriptor)
    with pytest.raises(FormatError, match="no scale tiles"):
        tiles.tile(quantize(np.ones((2, 64)), descriptor))


# ------------------------------------------------------------ bad input
def test_bad_input() -> None:
    for array, error, message in (
        (np.zeros((2, 2), np.int8), DtypeError, "uint8"),
        (np.zeros(4, np.uint8), ArgumentError, "2 dimensions"),
    ):
        with pytest.raises(error, match=message):
            tiles.scale_tiles(array)
    with pytest.raises(ArgumentError, match=r"wanted shape \(1024,\) for 3 rows and 5 columns; got \(512,\)"):
        tiles.untile_scales(np.zeros(512, np.uint8), 3, 5)
    with pytest.raises(DtypeError, match="tiles"):
        tiles.untile_scales(np.zeros(512, np.int8), 3, 4)
    with pytest.raises(ArgumentError, match=r"wootz\.quantize"):
        tiles.tile(np.ones((2, 2)))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="TiledTensor"):
        tiles.untile(np.ones((2, 2)))  # type: ignore[arg-type]


def test_a_negative_scale_is_refused() -> None:
    q = quantize(np.ones((2, 32)), CASES["e2m1 x 16"])
    fields = dict(q.fields)
    fields["scale"] = fields["scale"].copy()
    fields["scale"][1, 1] |= 0x80
    with pytest.raises(ArgumentError, match=r"block \[1, 1\] is negative"):
        tiles.tile(QuantizedTensor(q.format, q.shape, fields))


def test_bad_tensors() -> None:
    t = tiles.tile(quantize(np.ones((2, 32)), CASES["e2m1 x 16 under f32"]))
    format, shape, fields = t.format, t.shape, dict(t.fields)
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (shape, {"codes": fields["codes"], "tiles": fields["tiles"]}, FormatError, "scale1"),
        (shape, fields | {"tiles": fields["tiles"][:-1]}, ArgumentError, r"tiles: wanted shape \(1024,\)"),
        (shape, fields | {"tiles": fields["tiles"].view(np.int8)}, DtypeError, "tiles: wanted dtype uint8"),
        (shape, fields | {"scale1": 1.0}, ArgumentError, "scale1: wanted an array; got float"),
        ((3, 32), fields, ArgumentError, "codes: wanted shape"),
        ((2,), fields, ArgumentError, "groups, rows, K"),
        ((2, 0), fields, ArgumentError, "K at least 1"),
        ("ab", fields, ArgumentError, "shape: wanted"),
    ]
    for wrong, given_fields, error, message in cases:
        with pytest.raises(error, match=message):
            tiles.TiledTensor(format, wrong, given_fields)


def test_no_rows() -> None:
    format = CASES["e2m1 x 16 under f32"]
    fields = {
        "codes": np.zeros((0, 64), np.uint8),
        "tiles": np.zeros(0, np.uint8),
        "scale1": np.ones((1, 1), np.float32),
    }
    t = tiles.TiledTensor(Descriptor.parse(format), (0, 100), fields)
    assert (t.nbytes, t.dequantize().shape) == (4, (0, 100))


def test_to_a_device_that_is_none() -> None:
    t = tiles.tile(quantize(np.ones((2, 32)), CASES["e2m1 x 32"]))
    assert np.array_equal(t.to("cpu").fields["tiles"], t.fields["tiles"])
    with pytest.raises(ArgumentError, match="device"):
        t.to("tpu")
