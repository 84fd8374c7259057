"""What qmm decides from a format and a target: how deep it stages, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from gen.emit import text as emit
from gen.formats.axes import Format
from gen.formats.grammar import format_of
from gen.ir import matrix
from gen.ir.packed import steps
from gen.kernels import _matrix, qmm
from gen.manifest.reader import KernelSpec
from gen.manifest.target import Target
from gen.plan import cells as plan

MANIFEST = plan.load(Path(__file__).resolve().parents[2] / "kernels.yaml")
WIDE = {"element": "int6", "block": 16, "scale": {"type": "int8", "block": 256, "scale": "f16"}}
"""One whose bits repeat after 256 elements, and whose chunk is longer than a stage."""


def wide() -> Format:
    body = {**WIDE, "storage": ["codes", "scale", "scale1"]}
    found, problems = format_of("wide", body)
    assert found is not None, problems
    return found


FORMATS = [*MANIFEST.formats.values(), wide()]
TARGETS = [t for t in MANIFEST.targets.values() if matrix.shape_of(t) is not None]


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_stages_divide_chunks_and_fit(fmt: Format) -> None:
    stage, walk = qmm.stage_of(steps(fmt)), steps(fmt)
    assert stage.depth * stage.pieces == stage.chunks * walk.chunk
    assert stage.depth <= _matrix.STAGE
    assert stage.depth % walk.vector == 0
    for target in TARGETS:
        shape = matrix.shape_of(target)
        assert shape is not None
        for dtype in shape.operands:
            tile = _matrix.blocking(shape, target, stage.depth, dtype, qmm.ROWS[target.simd == 1])
            assert tile.shared_bytes <= target.shared_bytes
            assert tile.depth % shape.depth == 0 <= tile.depth - stage.depth < shape.depth


def test_a_long_chunk_is_staged_in_pieces() -> None:
    assert steps(wide()).chunk > _matrix.STAGE
    assert qmm.stage_of(steps(wide())).pieces > 1


def test_what_a_target_cannot_multiply_is_refused_by_name() -> None:
    kernel = KernelSpec("qmm", ("f16", "f32"))
    plain = Target("plain", "cuda", features=frozenset({"f16"}))
    tensor = Target("tensor", "cuda", features=frozenset({"mma"}))
    assert emit.refusal(kernel, wide(), "f16", plain, {}) == (
        "matrix tiles need the feature 'mma' or 'simdgroup_matrix'; target plain declares none of them"
    )
    assert emit.refusal(kernel, wide(), "f32", tensor, {}) == (
        "matrix tiles of target tensor take f16, bf16; got f32"
    )
    assert emit.refusal(kernel, wide(), "f16", tensor, {}) is None
