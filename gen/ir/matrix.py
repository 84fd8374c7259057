"""Matrix tiles: what a target multiplies at once, found by the features that its manifest row declares.

A tile is a fragment that the lanes of a SIMD group hold together: `left` [rows, depth], `right` [depth,
columns] and `sum` [rows, columns]. Only loading, storing and multiplying know which lane holds what.
"""

from __future__ import annotations

from ..manifest.target import Target
from .nodes import MatrixShape

SHAPES: dict[str, MatrixShape] = {
    "mma": MatrixShape(16, 8, 16, ("f16", "bf16")),
    "simdgroup_matrix": MatrixShape(8, 8, 8, ("f16", "bf16", "f32")),
    "": MatrixShape(4, 16, 8, ("f32",), across=False),
}
"""Feature -> shape; the first that a target declares holds. "": a lone thread needs no feature, its tiles are
loops."""


def shape_of(target: Target) -> MatrixShape | None:
    """The tiles of a target; None where it has none."""
    for feature, shape in SHAPES.items():
        if target.has(feature) or (not feature and target.simd == 1):
            return shape
    return None


def operand(shape: MatrixShape, dtype: str) -> str | None:
    """The type in which tiles take elements of `dtype`: the same, or f32, which holds them all."""
    return next((taken for taken in (dtype, "f32") if taken in shape.operands), None)


def refusal(target: Target, dtype: str) -> str | None:
    """Why a target cannot multiply tiles of `dtype`, or None."""
    shape = shape_of(target)
    if shape is None:
        wanted = " or ".join(repr(feature) for feature in SHAPES if feature)
        return f"matrix tiles need the feature {wanted}; target {target.name} declares none of them"
    if operand(shape, dtype) is None:
        return f"matrix tiles of target {target.name} take {', '.join(shape.operands)}; got {dtype}"
    return None
