"""NumPy's broadcasting: the shape of a result, and the steps by which a kernel walks its operands."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import ArgumentError

__all__ = ["AXES", "Steps", "broadcast", "names"]

Shape = tuple[int, ...]
Steps = tuple[Shape, int]
"""Of an operand whose elements lie apart: its strides in elements, and where its first is (see `Strided`)."""
AXES = 4
"""Axes that a kernel walks, after those have been joined that all operands cross alike."""
_WORD = 2**64


def names(operands: tuple[str, ...], strided: tuple[str, ...] = ()) -> frozenset[str]:
    """What launches may ask for: n elements, the extents d1, d2, d3 of the inner axes, each operand's
    strides, and of strided ones where they start."""
    strides = {stride for name in operands for stride in _strides(name)}
    return frozenset({"n", "d1", "d2", "d3"} | strides | {f"{name}_start" for name in strided})


def broadcast(
    shapes: Mapping[str, Shape], strided: Mapping[str, Steps] | None = None
) -> tuple[Shape, dict[str, int]]:
    """(the shape of the result, the values of `names`). Shapes by operand, aligned at the last axis; operands
    that are not `strided` are dense. A stride that leads back is given modulo 2^64.

    Raises ArgumentError for two extents of one axis that differ and are not 1, and for operands that repeat
    along more axes than a kernel walks.
    """
    strided = strided or {}
    rank = max((len(shape) for shape in shapes.values()), default=0)
    wide = {name: (1,) * (rank - len(shape)) + shape for name, shape in shapes.items()}
    result = tuple([_extent(axis, wide, shapes) for axis in range(rank)])
    steps = {name: strided[name][0] if name in strided else _dense(shape) for name, shape in wide.items()}
    axes = _joined([_axis(i, result[i], wide, steps) for i in range(rank) if result[i] != 1])
    if len(axes) > AXES:
        raise ArgumentError(
            f"broadcasting {_spelt(shapes)} crosses {len(axes)} axes that do not join; kernels walk "
            f"{AXES} at most: {'copy it in parts' if strided else 'expand an operand to the whole shape'}"
        )
    axes = [(1, dict.fromkeys(shapes, 0))] * (AXES - len(axes)) + axes
    values = {"n": _product(result), **{f"d{i}": extent for i, (extent, _) in enumerate(axes) if i}}
    for axis, (_, own) in enumerate(axes):
        values.update({f"{name}_stride{axis}": step for name, step in own.items()})
    for name, (_, start) in strided.items():
        values[f"{name}_start"] = start
        values.update({key: values[key] % _WORD for key in _strides(name)})
    return result, values


def _strides(name: str) -> list[str]:
    return [f"{name}_stride{axis}" for axis in range(AXES)]


Axis = tuple[int, dict[str, int]]
"""An extent of the result, and by operand the step to its next element: 0 where it repeats."""


def _axis(axis: int, extent: int, wide: Mapping[str, Shape], steps: Mapping[str, Shape]) -> Axis:
    return extent, {
        name: steps[name][axis - len(wide[name])] if shape[axis] == extent else 0
        for name, shape in wide.items()
    }


def _dense(shape: Shape) -> Shape:
    """Strides of a row-major array."""
    steps: list[int] = []
    step = 1
    for extent in reversed(shape):
        steps.insert(0, step)
        step *= extent
    return tuple(steps)


def _extent(axis: int, wide: Mapping[str, Shape], shapes: Mapping[str, Shape]) -> int:
    found: list[int] = []  # no set: extents that a compiler stands for have no hash
    for shape in wide.values():
        if shape[axis] != 1 and shape[axis] not in found:
            found.append(shape[axis])
    if len(found) > 1:
        raise ArgumentError(f"{_spelt(shapes)} do not broadcast: an axis has extents {sorted(found)}")
    return found[0] if found else 1


def _joined(axes: list[Axis]) -> list[Axis]:
    """Neighbours that every operand crosses in steps of the inner one are one axis."""
    joined: list[Axis] = []
    for extent, own in axes:
        if joined and all(joined[-1][1][name] == extent * own[name] for name in own):
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
