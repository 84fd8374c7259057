"""Packed tensors: where every code and scale lies, exact round trips, and what is refused."""

from __future__ import annotations

import copy
import pickle
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray
from wootz.errors import ArgumentError, DtypeError, FormatError
from wootz.formats import Descriptor, QuantizedTensor, decode, packed, quantize
from wootz.formats.dequantize import grid
from wootz.formats.packed import PackedTensor, prepack, unpack
from wootz.formats.sample import random_tensor
from wootz.formats.tensor import side_entries, unpack_rows

from gen.build.index import format_record
from gen.formats import axes
from gen.formats.axes import Format
from gen.formats.fragment import fragment
from gen.formats.grammar import format_of as from_body
from gen.plan import cells as plan

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
import format_cases  # noqa: E402
import functor_host as host  # noqa: E402

ROOT = HERE.parents[1]
SHAPES = [(1, 1), (16, 256), (19, 300), (33, 129), (5, 520)]


@cache
def shipped() -> dict[str, Format]:
    return dict(plan.load(ROOT / "kernels.yaml").formats)


def made(body: dict[str, Any]) -> Format:
    found, problems = from_body("one", body)
    assert found is not None, problems
    return found


def equal(a: QuantizedTensor, b: QuantizedTensor) -> bool:
    return a.shape == b.shape and all(
        np.ascontiguousarray(a.fields[f]).tobytes() == np.ascontiguousarray(b.fields[f]).tobytes()
        for f in a.fields
    )


def by_hand(fmt: Format, q: QuantizedTensor) -> NDArray[np.uint8]:
    """The units, bit by bit, from the words of the layout's description."""
    f, (n, k) = fragment(fmt), q.shape
    out = np.zeros((-(-n // 16), -(-k // f.columns), f.unit_bytes), np.uint8)
    codes, entries = unpack_rows(q, 0, n), side_entries(q)
    for tile in range(out.shape[0]):
        for unit in range(out.shape[1]):
            base = out[tile, unit]
            for lane in range(32):
                g, t = divmod(lane, 4)
                for pair in range(4 * f.steps):
                    s, r = divmod(pair, 4)
                    row, column = (
                        tile * 16 + g + 8 * (r & 1),
                        unit * f.columns + 16 * s + 2 * t + 8 * (r >> 1),
                    )
                    for h in range(2):
                        inside = row < n and column + h < k
                        code = int(codes[row, column + h]) if inside else 0
                        for j in range(f.bits):
                            bit = f.positions[pair % 16][j] + pair // 16 * 16 * f.bits
                            word, at = divmod(bit, 16)
                            place = (word // 4 * 32 + lane) * 128 + word % 4 * 32 + at + 16 * h
                            base[place // 8] |= (code >> j & 1) << place % 8
            for side in f.sides:
                rows, columns = side.block.rows or n, side.block.cols or k
                stored = entries[side.name]
                for g in range(8):
                    for run in range(f.runs):
                        for half in range(2):
                            row = min(tile * 16 + g + 8 * half, n - 1) // rows
                            column = min(unit * f.columns + run * f.run, k - 1) // columns
                            raw = np.frombuffer(np.ascontiguousarray(stored[row, column]).tobytes(), np.uint8)
                            at = side.offset + ((g * f.runs + run) * 2 + half) * side.bytes
                            base[at : at + side.bytes] = raw
    return out


# ------------------------------------------------------------ the layout
@pytest.mark.parametrize("name", sorted(shipped()))
def test_layout_of_every_format(name: str) -> None:
    fmt = shipped()[name]
    f = fragment(fmt)
    assert f.columns == (128 if f.bits in (6, 8) else 256)
    assert f.words % 4 == 0
    assert f.code_bytes == 16 * f.columns * f.bits // 8
    assert f.unit_bytes % 16 == 0
    assert f.columns % f.run == 0
    assert f.run & (f.run - 1) == 0
    assert [s.offset % 16 for s in f.sides] == [0] * len(f.sides)
    end = f.code_bytes
    for side in f.sides:
        assert side.offset == end
        end += -(-side.bytes * 16 * f.runs // 16) * 16
    assert end == f.unit_bytes
    bits = sorted(p for place in f.positions for p in place)
    assert bits == list(range(16 * f.bits))


def test_the_record_of_the_index() -> None:
    record = format_record(shipped()["nvfp4"])["packed"]
    places = record.pop("positions")
    assert places[:4] == [[6, 7, 8, 15], [3, 4, 5, 12], [0, 1, 2, 9], [10, 11, 13, 14]]
    assert places[4:] == [[p + 16 for p in place] for place in places[:12]]
    assert record == {
        "unit_k": 256, "run": 16, "unit_bytes": 2048 + 256, "bits": 4,
        "sides": [{"name": "scale", "bytes": 1, "offset": 2048, "type": "u8"}], "tensors": ["scale1"],
    }  # fmt: skip
    record = format_record(shipped()["affine4"])["packed"]
    assert "positions" not in record
    assert [(s["name"], s["bytes"], s["type"]) for s in record["sides"]] == [
        ("scale", 2, "f16"),
        ("zero", 2, "f16"),
    ]


@pytest.mark.parametrize(
    ("block", "run"),
    [(1, 1), (5, 1), (20, 4), (24, 8), (33, 1), (96, 32), (100, 4), (512, 256), ("row", 256)],
)
def test_runs_of_odd_blocks(block: Any, run: int) -> None:
    assert fragment(made({"element": "int4", "block": block, "scale": "f16"})).run == run


# ------------------------------------------------------------ round trips
HAND = {
    "three bits, two-dimensional blocks": {"element": "int3", "block": [3, 20], "scale": "f32"},
    "seven bits, rows": {"element": "uint7", "block": "row", "scale": "bf16", "zero": "f32"},
    "five bits, narrow sides": {"element": "int5", "block": 5, "scale": {"type": "uint3"}, "zero": "uint5"},
    "bits in an order of their own": {"element": "e2m1", "block": 16, "scale": "e4m3"},
    "eight bits, inside": {"element": "int8", "block": 32, "scale": "f16", "storage": ["scale", "codes"]},
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(HAND))
def test_every_bit_by_hand(what: str) -> None:
    fmt = made(HAND[what])
    d = host.descriptor(fmt)
    for shape in ((17, 261), (3, 33)):
        q = random_tensor(d, shape, np.random.default_rng(7), specials=True)
        assert np.array_equal(prepack(q).fields["units"], by_hand(fmt, q))


@pytest.mark.parametrize("name", sorted(shipped()))
def test_round_trip_of_every_format(name: str) -> None:
    d = host.descriptor(shipped()[name])
    for shape in SHAPES:
        q = random_tensor(d, shape, np.random.default_rng(5), specials=True)
        p = prepack(q)
        assert equal(unpack(p), q)
        assert np.array_equal(p.dequantize(), decode(q), equal_nan=True)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(format_cases.descriptors())
def test_round_trip_of_drawn_formats(raw: dict[str, Any]) -> None:
    fmt = _format(raw)
    d = Descriptor.parse({**raw, "packed": fragment(fmt).record()})
    for shape in ((18, 70), (3, 259)):
        q = random_tensor(d, shape, np.random.default_rng(5), specials=True)
        assert equal(unpack(prepack(q)), q)


def _format(raw: dict[str, Any]) -> Format:
    """The axes that matter to the packed layout, from a descriptor."""

    def element(e: dict[str, Any]) -> axes.Element:
        return axes.Element(e["kind"], e["bits"], type=e.get("type", ""))

    scales = tuple(
        axes.Scale(element(s["element"]), axes.Block(*s["block"]), s["rule"], s["op"]) for s in raw["scales"]
    )
    zero = raw["zero"] and axes.Zero(
        element(raw["zero"]["element"]), raw["zero"]["domain"], raw["zero"]["stored"]
    )
    nothing: Any = None
    return axes.Format(raw["name"], element(raw["element"]), axes.Block(*raw["block"]), scales, zero, nothing)


def test_many_tiles_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces that large matrices are packed in meet without a seam."""
    d = host.descriptor(shipped()["uint4_z"])
    q = random_tensor(d, (100, 300), np.random.default_rng(0))
    whole = prepack(q)
    monkeypatch.setattr(packed, "CHUNK", 1)
    pieces = prepack(q)
    assert np.array_equal(whole.fields["units"], pieces.fields["units"])
    assert equal(unpack(pieces), q)


def test_padding_is_zero_codes_and_the_last_scales() -> None:
    d = host.descriptor(shipped()["int4"])
    q = quantize(np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32), d)
    units = prepack(q).fields["units"]
    wide = unpack(PackedTensor(d, (16, 256), {"units": units}))
    assert not unpack_rows(wide, 0, 16)[3:].any()
    assert not unpack_rows(wide, 0, 16)[:, 100:].any()
    scales = wide.fields["scale"]
    assert np.array_equal(scales[:3, :2], q.fields["scale"])
    assert (scales[3:] == scales[2]).all()
    assert (scales[:, 2:] == scales[:, 1:2]).all()


# ------------------------------------------------------------ tensors
def test_a_packed_tensor_copies_and_pickles() -> None:
    d = host.descriptor(shipped()["nvfp4"])
    p = prepack(random_tensor(d, (5, 40), np.random.default_rng(0)))
    assert p.layout == "packed"
    assert list(p.fields) == ["units", "scale1"]
    assert p.nbytes == p.fields["units"].nbytes + 4
    for other in (pickle.loads(pickle.dumps(p)), copy.copy(p), p.to("cpu"), p.map(np.copy)):
        assert other.shape == p.shape
        assert other.format == p.format
        assert all(np.array_equal(other.fields[f], p.fields[f]) for f in p.fields)
    assert repr(p) == f"PackedTensor(nvfp4, 5x40, {p.nbytes} bytes: units [1, 1, 2304])"


def test_units_have_the_grid_of_the_matrix() -> None:
    d = host.descriptor(shipped()["fp8_e4m3_b128"])
    q = random_tensor(d, (130, 300), np.random.default_rng(0))
    assert grid((128, 128), q.shape) == (2, 3)
    assert prepack(q).fields["units"].shape == (9, 3, 2048 + 64)


# ------------------------------------------------------------ refusals
def spoilt(record: Any, **changes: Any) -> Descriptor:
    raw = {**shipped()["uint4_z"].descriptor(), "packed": {**record, **changes}}
    return Descriptor.parse(raw)


RECORD = fragment(shipped()["uint4_z"]).record()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 5}, "packed.bits: wanted 4"),
        ({"unit_k": 96}, "wanted whole vectors of 16 bytes a lane"),
        ({"unit_k": 0}, "packed.unit_k: wanted a positive integer; got 0"),
        ({"run": 96}, "whole runs"),
        ({"run": 256}, "sides: scale at byte"),
        ({"unit_bytes": 2048}, "unit_bytes: wanted a multiple of 16 from"),
        ({"unit_bytes": 2121}, "unit_bytes: wanted a multiple of 16 from"),
        ({"sides": RECORD["sides"][:1]}, r"wanted sides and tensors \['scale', 'zero'\]"),
        ({"sides": RECORD["sides"][:1], "tensors": ["zero"]}, "zero is not one for the whole tensor"),
        ({"sides": RECORD["sides"][::-1]}, "sides: scale at byte"),
        ({"positions": [[0, 1, 2, 3]] * 16}, "each bit from 0 to 63 once"),
    ],
)
def test_records_that_do_not_fit_the_format(changes: dict[str, Any], message: str) -> None:
    d = spoilt(RECORD, **changes)
    q = random_tensor(d, (2, 30), np.random.default_rng(0))
    with pytest.raises(FormatError, match=message):
        prepack(q)


def test_what_is_refused() -> None:
    bare = Descriptor.parse(shipped()["int4"])
    q = quantize(np.ones((2, 8), np.float32), bare)
    with pytest.raises(FormatError, match="wanted a packed layout in its descriptor; got none"):
        prepack(q)
    d = host.descriptor(shipped()["int4"])
    p = prepack(quantize(np.ones((2, 8), np.float32), d))
    with pytest.raises(ArgumentError, match="wanted a QuantizedTensor"):
        prepack(p)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="wanted a PackedTensor"):
        unpack(q)  # type: ignore[arg-type]
    units = p.fields["units"]
    with pytest.raises(FormatError, match=r"wanted the fields \['units'\]"):
        PackedTensor(d, (2, 8), {"units": units, "scale": units})
    with pytest.raises(ArgumentError, match=r"units: wanted shape \(2, 1, "):
        PackedTensor(d, (17, 8), {"units": units})
    with pytest.raises(ArgumentError, match="wanted an array; got bytes"):
        PackedTensor(d, (2, 8), {"units": b""})
    with pytest.raises(DtypeError, match="wanted dtype uint8; got int8"):
        PackedTensor(d, (2, 8), {"units": units.view(np.int8)})
