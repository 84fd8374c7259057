"""Banks of matrices: stacked, taken apart, refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from wootz.errors import ArgumentError, FormatError
from wootz.formats import Descriptor, quantize
from wootz.formats.bank import PackedBank, stack
from wootz.formats.packed import PackedTensor, prepack
from wootz.formats.tiles import TiledTensor, tile, untile

from gen import manifest
from gen.fragment import fragment

FORMATS = manifest.load(Path(__file__).parents[2] / "kernels.yaml").formats


def packed(name: str, shape: tuple[int, int], seed: int) -> PackedTensor:
    fmt = FORMATS[name]
    descriptor = Descriptor.parse({**fmt.descriptor(), "packed": fragment(fmt).record()})
    return prepack(quantize(np.random.default_rng(seed).standard_normal(shape), descriptor))


@pytest.mark.parametrize("name", ["int4_g128", "nvfp4"])
def test_a_bank_holds_its_matrices_in_order(name: str) -> None:
    members = [packed(name, (37, 300), seed) for seed in range(3)]
    bank = stack(members)
    assert isinstance(bank, PackedBank)
    assert bank.shape == (3, 37, 300)
    for i, member in enumerate(members):
        for field, array in bank.matrix(i).fields.items():
            np.testing.assert_array_equal(array, member.fields[field])
    with pytest.raises(ArgumentError, match="wanted a whole number from 0 to 2; got 3"):
        bank.matrix(3)


def test_tiled_members_give_a_tiled_bank() -> None:
    descriptor = FORMATS["mxfp4"].descriptor()
    made = [tile(quantize(np.random.default_rng(i).standard_normal((5, 64)), descriptor)) for i in range(2)]
    bank = stack(made)
    assert isinstance(bank, TiledTensor)
    assert bank.shape == (2, 5, 64)


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
    assert isinstance(bank, PackedBank)
    for index in ("a", None, 1.5, True):
        with pytest.raises(ArgumentError, match="matrix: wanted a whole number from 0 to 0; got"):
            bank.matrix(index)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="field units: wanted 2 matrices; got shape"):
        PackedBank(one.format, (2, 16, 256), bank.fields)
    for make in (PackedBank, PackedTensor, TiledTensor):
        with pytest.raises((ArgumentError, FormatError), match=r"fields|shape|tiles"):
            make(one.format, (1, 16, 256) if make is PackedBank else (16, 256), None)  # type: ignore[arg-type]


def test_a_bank_is_no_matrix() -> None:
    descriptor = FORMATS["mxfp4"].descriptor()
    bank = stack([tile(quantize(np.ones((5, 64)), descriptor))] * 2)
    assert isinstance(bank, TiledTensor)
    with pytest.raises(ArgumentError, match="got a bank of 2: take it apart with unstack"):
        untile(bank)
    with pytest.raises(ArgumentError, match=r"members\[0\]: wanted a matrix; got a bank of 2"):
        stack([bank])
