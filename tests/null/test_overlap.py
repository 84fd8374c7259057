"""Launches that overlap the one before them: which kernels ask for it, on which targets, and whom they wait
for."""

from __future__ import annotations

from pathlib import Path

import pytest
from wootz.program import Entry
from wootz.signature import Signature

from gen.emit.text import ALL, Emitted, emit, kernel_record
from gen.manifest.reader import load

MANIFEST = load(Path(__file__).parents[2] / "kernels.yaml")


def emitted(kernel: str, target: str, fmt: str = "int4", tiles: tuple[str, ...] = ()) -> Emitted:
    return emit(MANIFEST.kernels[kernel], MANIFEST.formats[fmt], MANIFEST.targets[target], ("bf16",), tiles)


def loaded(kernel: str, found: Emitted) -> list[Entry]:
    """Its entries as the loader takes them."""
    signature = Signature.parse(kernel_record(MANIFEST.kernels[kernel]))
    arrays = {a.name for entry in found.entries for a in entry.args if a.type == "ptr"}
    return [Entry.parse(entry.to_json(), signature, arrays) for entry in found.entries]


@pytest.mark.parametrize("fmt", ["int4", "int3", "nvfp4", "q4_0", "uint4_z"])
def test_every_tile_reads_weights_waits_and_reads_activations(fmt: str) -> None:
    """The memory that is not named to the wait no pointer of the text has for itself."""
    found = emitted("qgemv", "sm_90a", fmt, tiles=(ALL,))
    bodies = found.text.split('extern "C"')[1:]
    assert len(bodies) == len(found.entries)
    for body in bodies:
        if "run_natural<" in body:  # of a template, whose order tests/compile/test_overlap.py looks at
            assert "__restrict__ x" not in body
            assert "__restrict__ y" not in body
            continue
        early, late = body.split("    grid_wait();\n")
        assert "const uint8_t* __restrict__ w_codes" in early
        assert ("__ldg(" in early.split("{", 1)[1]) == ("activations[" in body)
        assert " x[" not in early
        assert " x_at" not in early
        assert " x_at" in late
        assert "__restrict__ x" not in body
        assert "__restrict__ y" not in body
        assert ("grid_release" in late) == ("activations[" in body)
    assert all(entry.early and not entry.packs for entry in loaded("qgemv", found))


@pytest.mark.parametrize("target", ["cpu", "sm_80", "metal3.1"])
def test_where_launches_follow_each_other_nothing_is_said(target: str) -> None:
    found = emitted("qgemv", target)
    assert "grid_" not in found.text
    assert not any(entry.early for entry in loaded("qgemv", found))


@pytest.mark.parametrize(
    ("kernel", "writes"),
    [("quantize", True), ("prepack", True), ("kv_append_quantised", True), ("dequant", False)],
)
def test_what_writes_weights_is_waited_for(kernel: str, writes: bool) -> None:
    """Those that read weights early read none that the launch before them made."""
    spec = MANIFEST.kernels[kernel]
    dtype = "bf16" if "bf16" in spec.dtypes else spec.dtypes[0]
    found = emit(spec, MANIFEST.formats["int4"], MANIFEST.targets["sm_90a"], (dtype,))
    assert found.entries
    assert {entry.packs for entry in loaded(kernel, found)} == {writes}
    assert not any(entry.early for entry in loaded(kernel, found))


def test_qgemv_alone_asks_for_it_and_takes_zero_points_off_in_one() -> None:
    """Kernels that share its body have the text that their evidence is about."""
    alone, beside = emitted("qgemv", "sm_90a", "uint4_z"), emitted("qgemv_batched", "sm_90a", "uint4_z")
    assert "grid_" not in beside.text
    assert not any(entry.early for entry in loaded("qgemv_batched", beside))
    assert ") - zeros[" in beside.text
    assert ") - zeros[" not in alone.text
