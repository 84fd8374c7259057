"""NumPy's broadcasting: the shape of a result, and the steps by which a kernel walks its operands."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import ArgumentError

__all__ = ["AXES", "broadcast", "names"]

Shape = tuple[int, ...]
AXES = 4
"""Axes that a kernel walks, after those have been joined that all operands cross alike."""


def names(operands: tuple[str, ...]) -> frozenset[str]:
    """What launches may ask for: n elements, the extents d1, d2, d3 of the inner axes, each operand's
    strides."""
    strides = {f"{name}_stride{axis}" for name in operands for axis in range(AXES)}
    return frozenset({"n", "d1", "d2", "d3"} | strides)


def broadcast(shapes: Mapping[str, Shape]) -> tuple[Shape, dict[str, int]]:
    """(the shape of the result, the values of `names`). Shapes by operand, aligned at the last axis.

    Raises ArgumentError for two extents of one axis that differ and are not 1, and for operands that repeat
    along more axes than a kernel walks.
    """
    rank = max((len(shape) for shape in shapes.values()), default=0)
    wide = {name: (1,) * (rank - len(shape)) + shape for name, shape in shapes.items()}
    result = tuple([_extent(axis, wide, shapes) for axis in range(rank)])
    axes = _joined([_axis(i, result[i], wide) for i in range(rank) if result[i] != 1])
    if len(axes) > AXES:
        raise ArgumentError(
            f"broadcasting {_spelt(shapes)} crosses {len(axes)} axes that do not join; kernels walk "
            f"{AXES} at most: expand an operand to the whole shape"
        )
    axes = [(1, dict.fromkeys(shapes, 0))] * (AXES - len(axes)) + axes
    values = {"n": _product(result), **{f"d{i}": extent for i, (extent, _) in enumerate(axes) if i}}
    strides = dict.fromkeys(shapes, 1)
    for axis in reversed(range(AXES)):
        extent, own = axes[axis]
        for name in shapes:
            values[f"{name}_stride{axis}"] = strides[name] if own[name] else 0
            strides[name] *= extent if own[name] else 1
    return result, values


Axis = tuple[int, dict[str, int]]
"""An extent of the result, and for each operand whether it has that extent (1) or repeats (0)."""


def _extent(axis: int, wide: Mapping[str, Shape], shapes: Mapping[str, Shape]) -> int:
    found: list[int] = []  # no set: extents that a compiler stands for have no hash
    for shape in wide.values():
        if shape[axis] != 1 and shape[axis] not in found:
            found.append(shape[axis])
    if len(found) > 1:
        raise ArgumentError(f"{_spelt(shapes)} do not broadcast: an axis has extents {sorted(found)}")
    return found[0] if found else 1


def _axis(axis: int, extent: int, wide: Mapping[str, Shape]) -> Axis:
    return extent, {name: int(shape[axis] == extent) for name, shape in wide.items()}


def _joined(axes: list[Axis]) -> list[Axis]:
    """Neighbours that every operand has, or repeats along, alike are one axis."""
    joined: list[Axis] = []
    for extent, own in axes:
        if joined and joined[-1][1] == own:
            joined[-1] = joined[-1][0] * extent, own
        else:
            joined.append((extent, own))
    return joined


def _product(shape: Shape) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _spelt(shapes: Mapping[str, Shape]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
