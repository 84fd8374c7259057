"""Axes and layouts: value tables against ml_dtypes, bit positions against byte layouts worked out by hand."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.formats import axes
from gen.formats.axes import AxesError, Block, Element, Format
from gen.formats.grammar import block_of, element_of, format_of
from gen.formats.layout import Layout
from gen.manifest.reader import Manifest, load

KERNELS = Path(__file__).parents[2] / "kernels.yaml"


@cache
def manifest() -> Manifest:
    return load(KERNELS)


def build(text: str) -> Format:
    """A format from the YAML of its body."""
    found, errors = format_of("x", yaml.safe_load(text))
    assert found is not None, [(e.path, e.message) for e in errors]
    return found


def pack(layout: Layout, codes: list[int], inline: dict[str, list[int]] | None = None) -> bytes:
    """One unit's bytes, from positions and inline fields alone."""
    total = 0
    for code, positions in zip(codes, layout.positions, strict=True):
        total |= sum((code >> i & 1) << p for i, p in enumerate(positions))
    for field in layout.inline:
        for i, entry in enumerate((inline or {})[field.field]):
            total |= entry << (field.bit + i * field.bits)
    return total.to_bytes(layout.unit_bytes, "little")


def bits_of(values: tuple[float, ...]) -> list[int]:
    return [axes.f32_bits(v) for v in values]


# --- elements ---


@pytest.mark.parametrize(
    ("spelling", "oracle"),
    [
        ("e2m1", "float4_e2m1fn"),
        ("e2m3", "float6_e2m3fn"),
        ("e3m2", "float6_e3m2fn"),
        ("e4m3", "float8_e4m3fn"),
        ("e5m2", "float8_e5m2"),
        ("e8m0", "float8_e8m0fnu"),
        ({"exponent": 8}, "float8_e8m0fnu"),
        ({"float": {"exponent": 4, "mantissa": 3, "specials": "ieee"}}, "float8_e4m3"),
        ({"float": {"exponent": 3, "mantissa": 4, "specials": "ieee"}}, "float8_e3m4"),
    ],
)
def test_float_values_against_ml_dtypes(spelling: Any, oracle: str) -> None:
    element = element_of(spelling)
    codes = np.arange(1 << element.bits, dtype=np.uint8)
    want = codes.view(getattr(ml_dtypes, oracle)).astype(np.float32)
    got = np.array(bits_of(element.values()), np.uint32)
    nan = np.isnan(want)
    assert (np.isnan(got.view(np.float32)) == nan).all()
    assert (got[~nan] == want.view(np.uint32)[~nan]).all()
    finfo: Any = ml_dtypes.finfo
    assert element.max == float(finfo(getattr(ml_dtypes, oracle)).max)


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("sign", ["", "u"])
def test_integer_values_against_ml_dtypes(bits: int, sign: str) -> None:
    element = element_of(f"{sign}int{bits}")
    codes = np.arange(1 << bits, dtype=np.uint8)
    want = codes.view(getattr(ml_dtypes, f"{sign}int{bits}")).astype(np.float32)
    assert list(element.values()) == want.tolist()


def test_e4m3_with_another_bias_is_the_fnuz_scale() -> None:
    """The axes go past the named types: bias 8 halves every E4M3 value."""
    shifted = element_of({"float": {"exponent": 4, "mantissa": 3, "specials": "nan", "bias": 8}})
    plain = element_of("e4m3")
    pairs = zip(shifted.values(), plain.values(), strict=True)
    assert all(a == b / 2 for a, b in pairs if not math.isnan(a))
    assert shifted.max == 224.0


@pytest.mark.parametrize(
    ("spelling", "first", "last", "low", "high"),
    [
        ({"int": 4}, 0, -1, -8, 7),
        ({"int": 4, "symmetric": True}, 0, -1, -7, 7),
        ({"int": 4, "signed": False}, 0, 15, 0, 15),
        ({"int": 4, "offset": 8}, -8, 7, -8, 7),
        ({"int": 4, "offset": 8, "symmetric": True}, -8, 7, -7, 7),
        ({"int": 1}, 0, -1, -1, 1),
        ({"int": 2, "symmetric": True}, 0, -1, -1, 1),
        ({"int": 8}, 0, -1, -128, 127),
    ],
)
def test_integers(spelling: Any, first: float, last: float, low: float, high: float) -> None:
    element = element_of(spelling)
    values = element.values()
    assert (values[0], values[-1], element.min, element.max) == (first, last, low, high)
    assert len(set(values)) == 1 << element.bits


def test_codebook_is_rounded_to_float32() -> None:
    element = element_of({"codebook": [0.1, -0.1, 1, 0]})
    assert element.bits == 2
    assert element.values() == (float(np.float32(0.1)), float(np.float32(-0.1)), 1.0, 0.0)


def test_wide_elements_have_no_table() -> None:
    with pytest.raises(ValueError, match="no value table"):
        axes.wide("f16").values()


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, 2.0**-149, -(2.0**-127), 3.4028234663852886e38, math.inf])
def test_f32_bits(value: float) -> None:
    assert axes.f32_bits(value) == int(np.array(value, np.float32).view(np.uint32))
    assert axes.f32_bits(math.nan) == 0x7FC00000


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ({"int": 4, "offset": 16}, "outside the codes"),
        ({"int": 4, "signed": True, "offset": 8}, "unsigned"),
        ({"int": 1, "symmetric": True}, "2 bits"),
        ({"int": 4, "signed": False, "symmetric": True}, "two's complement"),
        ("e5m3", "9 bits"),
        ({"float": {"exponent": 8, "mantissa": 0, "signed": False, "specials": "none"}}, "normal float32"),
        ({"float": {"exponent": 4, "mantissa": 3, "bias": 126}}, "normal float32"),
        ({"float": {"exponent": 1, "mantissa": 0, "specials": "ieee"}}, "no finite value"),
        ({"codebook": [0, 1, 2]}, "3 entries"),
        ({"codebook": [0, 1], "bits": 4}, "wanted 16"),
        ({"codebook": [1]}, "1 entries"),
        ({"codebook": [0, math.nan]}, "entry 1 is nan"),
        ({"codebook": [0, 1e39]}, "entry 1"),
        ({"codebook": [0, 0]}, "zero"),
    ],
)
def test_contradicting_elements(spelling: Any, message: str) -> None:
    with pytest.raises(AxesError, match=message):
        element_of(spelling)


def test_blocks() -> None:
    assert [block_of(b) for b in (32, [128, 128], "row", "tensor")] == [
        Block(1, 32),
        Block(128, 128),
        Block(1, 0),
        Block(0, 0),
    ]
    assert Block(1, 32).nests_in(Block(1, 256))
    assert Block(1, 32).nests_in(Block(0, 0))
    assert not Block(1, 32).nests_in(Block(1, 48))
    assert not Block(1, 0).nests_in(Block(1, 64))
    assert Block(1, 0).nests_in(Block(4, 0))
    assert not Block(0, 0).nests_in(Block(1, 0))


# --- layouts ---


def check_layout(f: Format) -> None:
    """Every bit of every code has a place of its own, inside the unit and clear of the inline fields."""
    layout = f.layout
    places = [p for row in layout.positions for p in row]
    assert len(layout.positions) == layout.unit
    assert all(len(r) == f.element.bits for r in layout.positions)
    for field in layout.inline:
        block = f.block if field.field in ("scale", "zero") else f.scales[int(field.field[5:])].block
        assert field.count * block.cols == layout.unit
        assert field.bit % 8 == 0
        places += range(field.bit, field.bit + field.count * field.bits)
    assert len(set(places)) == len(places)
    assert min(places) >= 0
    assert max(places) < 8 * layout.unit_bytes
    assert layout.chunk_bytes % layout.load == 0
    assert layout.load in (4, 16)
    assert layout.load == 4 or layout.chunk_bytes <= 512
    smaller = range(1, layout.chunk)
    assert not [c for c in smaller if c * layout.unit_bytes % layout.load == 0]
    assert layout.row_bytes(1) == layout.chunk_bytes
    assert layout.row_bytes(layout.chunk_elements + 1) == 2 * layout.chunk_bytes


@pytest.mark.parametrize("name", manifest().formats)
def test_every_shipped_layout(name: str) -> None:
    f = manifest().formats[name]
    check_layout(f)
    descriptor = f.descriptor()
    assert json.loads(json.dumps(descriptor, allow_nan=False)) == descriptor
    names = [field["name"] for field in descriptor["layout"]["fields"]]
    inline = [field["field"] for field in descriptor["layout"]["inline"]]
    parts = ["scale", "scale1", "scale2"][: len(f.scales)] + ["zero"] * (f.zero is not None)
    assert names == ["codes", *(p for p in parts if p not in inline)]


def test_descriptor_golden() -> None:
    """The whole of one descriptor, as other parts read it."""
    f = build("{element: e2m1, block: 32, scale: {type: e8m0, rule: nearest}}")
    got = f.descriptor()
    exponent = got["scales"][0]["element"]
    assert exponent.pop("values")[:2] == [2.0**-127, 2.0**-126]
    assert exponent.pop("max") == 2.0**127
    assert got == {
        "name": "x",
        "element": {
            "kind": "float",
            "bits": 4,
            "exponent": 2,
            "mantissa": 1,
            "bias": 1,
            "specials": "none",
            "signed": True,
            "values": [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6],
            "max": 6.0,
        },
        "block": [1, 32],
        "scales": [
            {
                "element": {"kind": "exponent", "bits": 8, "bias": 127},
                "block": [1, 32],
                "rule": "nearest",
                "op": "multiply",
            }
        ],
        "zero": None,
        "layout": {
            "unit": 2,
            "unit_bytes": 1,
            "positions": [[0, 1, 2, 3], [4, 5, 6, 7]],
            "inline": [],
            "chunk": 16,
            "load": 16,
            "fields": [
                {"name": "codes", "dtype": "u8", "bits": 8, "block": None},
                {"name": "scale", "dtype": "u8", "bits": 8, "block": [1, 32]},
            ],
        },
    }


@pytest.mark.parametrize("bits", [3, 5, 6, 7])
@pytest.mark.parametrize("word", [8, 16, 32])
def test_dense_streams_are_lsb_first(bits: int, word: int) -> None:
    """The stream as one little-endian number: element j at bit j * bits, whatever the word."""
    layout = build(f"{{element: uint{bits}, packing: {{word: {word}}}}}").layout
    assert layout.unit * bits % word == 0
    codes = [(37 * j + 11) % (1 << bits) for j in range(layout.unit)]
    assert pack(layout, codes) == sum(c << (bits * j) for j, c in enumerate(codes)).to_bytes(
        layout.unit * bits // 8, "little"
    )


def test_three_bits_by_hand() -> None:
    """Codes 1..8 (mod 8): 001 010 011 100 101 110 111 000, lowest first -> 0xD1 0x58 0x1F."""
    layout = build("{element: uint3}").layout
    assert (
        pack(layout, [1, 2, 3, 4, 5, 6, 7, 0])
        == bytes([0b11_010_001, 0b0_101_100_0, 0b000_111_11])
        == b"\xd1\x58\x1f"
    )


def test_msb_order() -> None:
    """bitsandbytes: the first element in the high nibble. And 3 bits from the top: 001 010 01|1 ..."""
    assert pack(build("{element: uint4, packing: {order: msb}}").layout, [0xA, 0x5]) == b"\xa5"
    three = build("{element: uint3, packing: {order: msb}}").layout
    want = int("001010011100101110111000", 2)
    assert pack(three, [1, 2, 3, 4, 5, 6, 7, 0]) == want.to_bytes(3, "big")


def test_padded_words() -> None:
    """compressed-tensors 0.10.2: ten 3-bit codes in an int32, two bits unused on top."""
    layout = build("{element: uint3, packing: {word: 32, padded: true}}").layout
    assert (layout.unit, layout.unit_bytes) == (10, 4)
    assert layout.positions == tuple(tuple(range(3 * j, 3 * j + 3)) for j in range(10))


def test_padded_words_from_the_top() -> None:
    """HQQ's 3 bits: ten in an int32, the first at bit 27."""
    layout = build("{element: uint3, packing: {word: 32, padded: true, order: msb}}").layout
    assert [row[0] for row in layout.positions] == [27, 24, 21, 18, 15, 12, 9, 6, 3, 0]


def test_padded_unit_with_a_partial_last_word() -> None:
    layout = build("{element: uint3, packing: {word: 16, padded: true, unit: 7}}").layout
    assert layout.unit_bytes == 4
    assert [r[0] for r in layout.positions] == [0, 3, 6, 9, 12, 16, 19]


def test_awq_permutation() -> None:
    """AWQ: slot i of an int32 holds column [0, 2, 4, 6, 1, 3, 5, 7][i]."""
    layout = build("{element: uint4, packing: {word: 32, permutation: [0, 2, 4, 6, 1, 3, 5, 7]}}").layout
    assert (layout.unit, layout.unit_bytes) == (8, 4)
    word = int.from_bytes(pack(layout, list(range(8))), "little")
    assert [word >> (4 * i) & 15 for i in range(8)] == [0, 2, 4, 6, 1, 3, 5, 7]


def test_gptq_three_bits() -> None:
    """GPTQ: 32 values in 3 words; value 10 straddles words 0 and 1 (2 + 1 bits), value 21 1 and 2 (1 + 2)."""
    layout = build("{element: uint3, packing: {word: 32}}").layout
    assert (layout.unit, layout.unit_bytes) == (32, 12)
    assert layout.positions[10] == (30, 31, 32)
    assert layout.positions[21] == (63, 64, 65)


def test_gguf_q4_0_bytes() -> None:
    """block_q4_0: f16 d, then byte j = element j | element (j + 16) << 4; 18 bytes."""
    layout = manifest().formats["q4_0"].layout
    assert (layout.unit, layout.unit_bytes, layout.chunk, layout.load) == (32, 18, 8, 16)
    codes = [(5 * j + 3) % 16 for j in range(32)]
    want = b"\x00\x3c" + bytes(codes[j] | codes[j + 16] << 4 for j in range(16))
    assert pack(layout, codes, {"scale": [0x3C00]}) == want
    assert manifest().formats["q4_0"].element.values()[0] == -8.0


def test_gguf_q8_0_bytes() -> None:
    """block_q8_0: f16 d, then 32 int8; 34 bytes."""
    f = manifest().formats["q8_0"]
    codes = [(j * 11 - 128) % 256 for j in range(32)]
    assert pack(f.layout, codes, {"scale": [0xC001]}) == b"\x01\xc0" + bytes(codes)
    assert (f.element.values()[0x80], f.element.max) == (-128.0, 127.0)


def test_gguf_q5_0_bytes() -> None:
    """block_q5_0: f16 d, qh (bit j is the fifth bit of element j), then split nibbles; 22 bytes."""
    layout = build(
        """
        element: {int: 5, offset: 16}
        block: 32
        scale: {type: f16, rule: signed_absmax}
        packing: {planes: [{take: 1, from: 4}, {take: 4, from: 0, split: half}]}
        storage: [scale, codes]
        """
    ).layout
    codes = [(7 * j + 5) % 32 for j in range(32)]
    qh = sum((c >> 4) << j for j, c in enumerate(codes))
    qs = bytes(codes[j] & 15 | (codes[j + 16] & 15) << 4 for j in range(16))
    assert pack(layout, codes, {"scale": [0x3C00]}) == b"\x00\x3c" + qh.to_bytes(4, "little") + qs


def test_gguf_nvfp4_bytes() -> None:
    """Four UE4M3, then nibbles split inside each 16; 36 bytes for 64."""
    layout = build(
        """
        element: e2m1
        block: 16
        scale: e4m3
        packing: {unit: 64, split: {parts: 2, over: 16}}
        storage: [scale, codes]
        """
    ).layout
    codes = [(3 * j + 1) % 16 for j in range(64)]
    nibbles = bytes(codes[16 * b + j] | codes[16 * b + j + 8] << 4 for b in range(4) for j in range(8))
    assert pack(layout, codes, {"scale": [1, 2, 3, 4]}) == b"\x01\x02\x03\x04" + nibbles


def test_gguf_q6_k_bytes() -> None:
    """block_q6_K: ql[128], qh[64], 16 int8 scales, f16 d; 210 bytes. Loops as in dequantize_row_q6_K."""
    f = build(
        """
        element: {int: 6, offset: 32}
        block: 16
        scale: {type: int8, block: 256, scale: f16}
        packing:
          planes:
            - {take: 4, from: 0, split: {parts: 2, over: 128}}
            - {take: 2, from: 4, split: {parts: 4, over: 128}}
        storage: [codes, scale, scale1]
        """
    )
    assert f.layout.unit_bytes == 210
    assert [x.name for x in f.layout.fields] == ["codes"]
    codes = [(11 * j + 9) % 64 for j in range(256)]
    ql, qh = bytearray(128), bytearray(64)
    for half in range(2):
        for j in range(32):
            a, b, c, d = (codes[128 * half + j + 32 * part] for part in range(4))
            ql[64 * half + j] = a & 15 | (c & 15) << 4
            ql[64 * half + j + 32] = b & 15 | (d & 15) << 4
            qh[32 * half + j] = a >> 4 | (b >> 4) << 2 | (c >> 4) << 4 | (d >> 4) << 6
    got = pack(f.layout, codes, {"scale": list(range(16)), "scale1": [0x3C00]})
    assert got == bytes(ql) + bytes(qh) + bytes(range(16)) + b"\x00\x3c"


def test_inline_stream_below_eight_bits() -> None:
    """Two 4-bit zeros share a byte; the scales stay outside."""
    layout = build(
        "{element: uint4, block: 8, scale: f16, zero: uint4, packing: {unit: 16}, storage: [zero, codes]}"
    ).layout
    assert layout.unit_bytes == 9
    assert [x.name for x in layout.fields] == ["codes", "scale"]
    assert pack(layout, [0] * 16, {"zero": [0xA, 0x5]})[0] == 0x5A


def test_fields_of_levels_and_zero() -> None:
    f = build(
        """
        element: uint4
        block: 32
        scale: {type: uint6, block: 256, scale: {type: bf16, op: divide, block: tensor, scale: f32}}
        zero: {type: uint4, stored: minus_one}
        """
    )
    fields = [(x.name, x.dtype, x.bits, x.block) for x in f.layout.fields]
    assert fields == [
        ("codes", "u8", 8, None),
        ("scale", "u8", 6, (1, 32)),
        ("scale1", "u16", 16, (1, 256)),
        ("scale2", "f32", 32, (0, 0)),
        ("zero", "u8", 4, (1, 32)),
    ]
    assert [(s.rule, s.op) for s in f.scales] == [
        ("minmax", "multiply"),
        ("absmax", "divide"),
        ("absmax", "multiply"),
    ]


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Format bodies over all packing axes; some are refused, which is fine."""
    bits = draw(st.integers(1, 8))
    unit = draw(st.sampled_from([8, 10, 16, 24, 32, 40, 64, 96]))

    def axis(take: int) -> dict[str, Any]:
        plane: dict[str, Any] = {
            "order": draw(st.sampled_from(["lsb", "msb"])),
            "word": draw(st.sampled_from([8, 16, 32])),
            "padded": draw(st.booleans()),
        }
        kind = draw(st.sampled_from(["none", "split", "over", "permutation"]))
        if kind == "split":
            plane["split"] = draw(st.sampled_from([2, 4, "half"]))
        if kind == "over":
            plane["split"] = {"parts": 2, "over": draw(st.sampled_from([4, 8, 6]))}
        if kind == "permutation":
            plane["permutation"] = draw(st.permutations(range(draw(st.sampled_from([4, 8])))))
        return plane

    if draw(st.booleans()) and bits > 1:
        cut = draw(st.integers(1, bits - 1))
        planes = [
            {"take": cut, "from": 0, **axis(cut)},
            {"take": bits - cut, "from": cut, **axis(bits - cut)},
        ]
        packing: dict[str, Any] = {"planes": draw(st.permutations(planes))}
    else:
        packing = axis(bits)
    body = {
        "element": {"int": bits, "signed": False},
        "block": draw(st.sampled_from([4, 8, unit])),
        "scale": draw(st.sampled_from(["f16", "f32", "e4m3", "uint6"])),
        "zero": draw(st.sampled_from(["none", "f16", "uint4"])),
        "packing": {**packing, "unit": unit} if draw(st.booleans()) else packing,
    }
    order = draw(st.permutations(["codes", "scale", "zero"]))
    if draw(st.booleans()):
        body["storage"] = [name for name in order if name != "zero" or body["zero"] != "none"]
    return body


@settings(max_examples=300, deadline=None, derandomize=True)
@given(bodies())
def test_any_layout_is_disjoint(body: dict[str, Any]) -> None:
    found, errors = format_of("x", body)
    if found is None:
        assert errors
    else:
        check_layout(found)


def test_formats_are_values() -> None:
    """Equal axes are equal and hash alike: generated code may be cached by format."""
    planes = "{planes: [{take: 1, from: 1}, {take: 1, from: 0}]}"
    text = f"{{element: {{codebook: [0, 1, 2, 4]}}, block: 8, scale: f16, packing: {planes}}}"
    assert build(text) == build(text)
    assert hash(build(text)) == hash(build(text))
    assert isinstance(build(text).element, Element)
