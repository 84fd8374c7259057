"""Banks of matrices: stacked, taken apart, refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from wootz.errors import ArgumentError, FormatError
from wootz.formats import Descriptor, QuantizedTensor, decode, decode_exact, quantize
from wootz.formats.bank import stack
from wootz.formats.packed import PackedTensor, prepack, unpack
from wootz.formats.tiles import TiledTensor, tile, untile

from gen.formats.fragment import fragment
from gen.manifest import reader as manifest

FORMATS = manifest.load(Path(__file__).parents[2] / "kernels.yaml").formats


def packed(name: str, shape: tuple[int, int], seed: int) -> PackedTensor:
    fmt = FORMATS[name]
    descriptor = Descriptor.parse({**fmt.descriptor(), "packed": fragment(fmt).record()})
    return prepack(quantize(np.random.default_rng(seed).standard_normal(shape), descriptor))


@pytest.mark.parametrize("name", ["int4_g128", "nvfp4"])
def test_a_bank_holds_its_matrices_in_order(name: str) -> None:
    members = [packed(name, (37, 300), seed) for seed in range(3)]
    bank = stack(members)
    assert isinstance(bank, PackedTensor)
    assert bank.shape == (3, 37, 300)
    assert repr(bank).startswith(
        f"PackedTensor({name}, 3x37x300, {sum(m.nbytes for m in members)} bytes: units [3, "
    )
    assert bank.to("cpu").shape == pickle.loads(pickle.dumps(bank)).shape == bank.shape
    for i, member in enumerate(members):
        for field, array in bank.matrix(i).fields.items():
            np.testing.assert_array_equal(array, member.fields[field])
        np.testing.assert_array_equal(bank.dequantize()[i], member.dequantize())
    with pytest.raises(ArgumentError, match="wanted a whole number from 0 to 2; got 3"):
        bank.matrix(3)
    with pytest.raises(ArgumentError, match="matrix: wanted a bank, of shape"):
        members[0].matrix(0)
    with pytest.raises(
        ArgumentError, match=r"tensor: wanted a matrix; got a bank of 3: see its matrices\(\)"
    ):
        unpack(bank)


def test_tiled_members_give_a_tiled_bank() -> None:
    descriptor = FORMATS["mxfp4"].descriptor()
    made = [tile(quantize(np.random.default_rng(i).standard_normal((5, 64)), descriptor)) for i in range(2)]
    bank = stack(made)
    assert isinstance(bank, TiledTensor)
    assert bank.shape == (2, 5, 64)


@pytest.mark.parametrize("name", ["nvfp4", "fp8_e4m3_b128", "uint4_z", "q4_0"])
def test_matrices_in_the_natural_layout_give_a_bank(name: str) -> None:
    descriptor = Descriptor.parse(FORMATS[name].descriptor())
    rng = np.random.default_rng(0)
    members = [quantize(rng.standard_normal((37, 300)) * 2.0**i, descriptor) for i in range(3)]
    bank = stack(members)
    assert isinstance(bank, QuantizedTensor)
    assert bank.shape == pickle.loads(pickle.dumps(bank)).shape == (3, 37, 300)
    assert repr(bank).startswith(
        f"QuantizedTensor({name}, 3x37x300, {bank.nbytes} bytes: codes uint8[3, 37, "
    )
    assert bank.nbytes == sum(member.nbytes for member in members)
    for i, member in enumerate(bank.matrices()):
        for field, array in member.fields.items():
            np.testing.assert_array_equal(array, members[i].fields[field])
        np.testing.assert_array_equal(bank.dequantize()[i], members[i].dequantize())
    for convert in (prepack, tile, decode, decode_exact):
        with pytest.raises(ArgumentError, match=r"wanted a matrix; got a bank of 3: see its matrices\(\)"):
            convert(bank)  # type: ignore[operator]
    with pytest.raises(
        ArgumentError, match=r"field codes: wanted shape \(2, 37, \d+\) for 37x300; got \(3, "
    ):
        QuantizedTensor(bank.format, (2, 37, 300), bank.fields)
    with pytest.raises(ArgumentError, match=r"shape: wanted \(matrices, N, K\) with matrices from 1; got"):
        QuantizedTensor(bank.format, (0, 37, 300), bank.fields)


def test_members_that_differ_are_refused() -> None:
    one = packed("int4_g128", (16, 256), 0)
    with pytest.raises(ArgumentError, match="at least one"):
        stack([])
    with pytest.raises(ArgumentError, match=r"members\[1\]: wanted a matrix of shape \(16, 256\)"):
        stack([one, packed("int4_g128", (16, 128), 1)])
    with pytest.raises(FormatError, match=r"members\[1\]: wanted format .*; got"):
        stack([one, packed("int3", (16, 256), 1)])
    tiled = tile(quantize(np.ones((16, 256)), FORMATS["mxfp4"].descriptor()))
    with pytest.raises(ArgumentError, match="PackedTensor, TiledTensor"):
        stack([one, tiled])


def test_what_is_no_list_of_tensors_is_refused_by_name() -> None:
    one = packed("int4_g128", (16, 256), 0)
    for wrong in (5, one):
        with pytest.raises(ArgumentError, match="members: wanted a list of tensors; got"):
            stack(wrong)  # type: ignore[arg-type]
    assert stack(m for m in [one, one]).shape == (2, 16, 256)
    bank = stack([one])
    for index in ("a", None, 1.5, True):
        with pytest.raises(ArgumentError, match="matrix: wanted a whole number from 0 to 0; got"):
            bank.matrix(index)  # type: ignore[arg-type]
    with pytest.raises(
        ArgumentError, match=r"field units: wanted shape \(2, 1, 1, \d+\); got \(1, 1, 1, \d+\)"
    ):
        PackedTensor(one.format, (2, 16, 256), bank.fields)
    scaled = stack([packed("nvfp4", (16, 256), 0)] * 2)
    with pytest.raises(
        ArgumentError, match=r"field scale1: wanted shape \(2, 1, 1\) for 16x256; got \(1, 1\)"
    ):
        PackedTensor(scaled.format, (2, 16, 256), {**scaled.fields, "scale1": scaled.fields["scale1"][0]})
    for count in (0, True, 1.0):
        with pytest.raises(
            ArgumentError, match=r"shape: wanted \(matrices, N, K\) with matrices from 1; got"
        ):
            PackedTensor(one.format, (count, 16, 256), bank.fields)  # type: ignore[arg-type]
    for make in (PackedTensor, TiledTensor):
        for shape in ((1, 16, 256), (16, 256)):
            with pytest.raises((ArgumentError, FormatError), match=r"fields|shape|tiles"):
                make(one.format, shape, None)  # type: ignore[arg-type]


def test_a_bank_is_no_matrix() -> None:
    descriptor = FORMATS["mxfp4"].descriptor()
    bank = stack([tile(quantize(np.ones((5, 64)), descriptor))] * 2)
    assert isinstance(bank, TiledTensor)
    with pytest.raises(ArgumentError, match="got a bank of 2: see its matrices"):
        untile(bank)
    with pytest.raises(ArgumentError, match=r"members\[0\]: wanted a matrix; got a bank of 2"):
        stack([bank])
