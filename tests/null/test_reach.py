"""A manifest that asks for what no cell comes of: an error that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from gen.manifest.reader import ManifestError
from gen.plan import cells as plan

TARGETS = """\
version: 1
targets:
  cpu: {backend: cpu, features: [f16]}
  sm_80:
    {backend: cuda, capability: [8, 0], features: [f16, bf16, mma, cp_async],
     limits: {shared_max: 166912}}
  sm_89: {backend: cuda, capability: [8, 9], kernels: [copy], features: [f16, bf16, mma, mma_s8, cp_async]}
  metal: {backend: metal, kernels: [copy], features: [f16]}
formats:
  int4: {element: int4, block: 64, scale: f16}
  mxfp4: {element: e2m1, block: 32, scale: e8m0}
kernels:
"""
COPY = "  copy: {dtypes: [f32]}\n"


def load(tmp_path: Path, kernels: str, head: str = TARGETS) -> list[str]:
    """What is wrong, without the folder; nothing where the manifest is good."""
    path = tmp_path / "m.yaml"
    path.write_text(head + kernels)
    try:
        plan.load(path)
    except ManifestError as error:
        return [line.removeprefix(f"{tmp_path}/") for line in str(error).splitlines()]
    return []


CASES = [  # entries, place, reason
    ("copy: {dtypes: [f32, i8]}", "kernels.copy.dtypes[1]: no cell comes of i8",
     "copy takes f16, bf16, f32; got i8"),
    ("copy: {dtypes: [f32, bf16], targets: [cpu, metal]}", "kernels.copy.dtypes[1]: no cell comes of bf16",
     "target cpu does not declare, bf16 activations need the feature 'bf16', which target metal"),
    ("copy: {dtypes: [f32], targets: [cpu, metal]}", "targets.sm_89.kernels[0]",
     "kernels.copy.targets leaves sm_89 out: add it there, or leave copy out"),
    ("dequant: {dtypes: [f16], formats: [int4], targets: [cpu, sm_89]}",
     "kernels.dequant.targets[1]: no cell comes of sm_89", "targets.sm_89.kernels leaves dequant out"),
    ("dequant: {dtypes: [f16], formats: all, targets: [sm_89]}", "kernels.dequant: no cell comes of it",
     "no target is for it; change its lists, or skip it with a reason"),
    ("gemm: {dtypes: [f16, i8], options: {out: [same]}}", "kernels.gemm.dtypes[1]: no cell comes of i8",
     "i8 needs the feature 'mma_s8', which target sm_80 does not declare; leave it out, or skip it"),
    ("gemm: {dtypes: [i8], options: {out: [f32]}, targets: [cpu]}", "kernels.gemm: no cell comes of it",
     "gemm needs the feature 'cp_async', which target cpu does not declare"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "place", "reason"), CASES)
def test_what_no_cell_comes_of_is_an_error(tmp_path: Path, entry: str, place: str, reason: str) -> None:
    found = load(tmp_path, f"  {entry}\n" + ("" if entry.startswith("copy") else COPY))
    (mine,) = [line for line in found if place in line]
    assert reason in mine


def test_one_target_that_takes_a_name_is_enough(tmp_path: Path) -> None:
    assert load(tmp_path, "  copy: {dtypes: [f32, f16, bf16]}\n") == []


def test_the_line_is_that_of_the_name(tmp_path: Path) -> None:
    (found,) = load(tmp_path, "  copy:\n    dtypes:\n      - f32\n      - i8\n")
    assert found.startswith("m.yaml:16: kernels.copy.dtypes[1]: ")


def test_an_options_value_and_a_format_are_names_too(tmp_path: Path) -> None:
    head = TARGETS.replace("mma, cp_async]", "mma, mma_s8, cp_async]")
    kernels = COPY + "  gemm: {dtypes: [i8], options: {out: [same, f32]}}\n"
    (found,) = load(tmp_path, kernels, head)
    assert "kernels.gemm.options.out[1]: no cell comes of f32: gemm needs the" in found
    assert "declare, i8 gives its sums as they are, in i32: there is no f32 output; leave it out, or" in found
    kernels = COPY + "  quantize_activations: {dtypes: [f16], formats: [mxfp4, int4]}\n"
    (found,) = load(tmp_path, kernels)
    assert "kernels.quantize_activations.formats[1]: no cell comes of int4: " in found


def test_a_kernel_of_all_formats_where_there_are_none(tmp_path: Path) -> None:
    head = TARGETS[: TARGETS.index("formats:")] + "kernels:\n"
    (found,) = load(tmp_path, COPY + "  dequant: {dtypes: [f16], formats: all}\n", head)
    assert "kernels.dequant: no cell comes of it: the manifest has no formats; " in found


@pytest.mark.parametrize("skip", ["{kernel: copy, dtype: i8}", "{kernel: copy}", "{dtype: i*, format: '-'}"])
def test_a_skip_with_a_reason_covers_it(tmp_path: Path, skip: str) -> None:
    skips = f"skips:\n  - {skip[:-1]}, reason: not yet written}}\n"
    assert load(tmp_path, "  copy: {dtypes: [f32, i8]}\n" + skips) == []
    other = "skips:\n  - {kernel: copy, dtype: f32, reason: not yet written}\n"
    assert len(load(tmp_path, "  copy: {dtypes: [f32, i8]}\n" + other)) == 1
