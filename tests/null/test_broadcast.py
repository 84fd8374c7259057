"""Broadcasting: the shapes and steps that the loader hands to kernels, against NumPy."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wootz.broadcast import AXES, broadcast, names
from wootz.errors import ArgumentError

Shape = tuple[int, ...]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Shape, Shape]:
    whole = draw(st.lists(st.integers(0, 4), max_size=5))

    def one() -> Shape:
        kept = [extent if draw(st.booleans()) else 1 for extent in whole]
        return tuple(kept[draw(st.integers(0, len(kept))) :])

    return one(), one()


def walked(values: dict[str, int], name: str) -> list[int]:
    """The element of an operand that each element of the result takes."""
    found = []
    for linear in range(values["n"]):
        rest, at = linear, 0
        for axis in (3, 2, 1):
            at += rest % values[f"d{axis}"] * values[f"{name}_stride{axis}"]
            rest //= values[f"d{axis}"]
        found.append(at + rest * values[f"{name}_stride0"])
    return found


@given(shapes())
def test_as_numpy_does(pair: tuple[Shape, Shape]) -> None:
    a, b = pair
    wanted = np.broadcast_shapes(a, b)
    if sum(extent != 1 for extent in wanted) > AXES:
        with contextlib.suppress(ArgumentError):  # neighbours that join may make it fewer
            broadcast({"a": a, "b": b})
        return
    shape, values = broadcast({"a": a, "b": b})
    assert shape == wanted
    assert set(values) == names(("a", "b"))
    for name, own in (("a", a), ("b", b)):
        elements = np.arange(int(np.prod(own))).reshape(own)
        assert walked(values, name) == np.broadcast_to(elements, wanted).ravel().tolist()


def test_the_innermost_stride_is_0_or_1() -> None:
    """What a kernel's vector loads rest on."""
    _, values = broadcast({"a": (3, 1, 40), "b": (3, 6, 40), "c": (1, 6, 1)})
    assert [values[f"{name}_stride3"] for name in "abc"] == [1, 1, 0]
    _, values = broadcast({"a": (8, 5), "b": (8, 5)})
    assert (values["d3"], values["d2"], values["a_stride3"]) == (40, 1, 1)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((3, 4), (3, 5), "a [3, 4], b [3, 5] do not broadcast: an axis has extents [4, 5]"),
        ((2,), (3, 0), "a [2], b [3, 0] do not broadcast: an axis has extents [0, 2]"),
        ((2, 1, 2, 1, 2), (1, 2, 1, 2, 1), "crosses 5 axes that do not join; kernels walk 4 at most"),
    ],
)
def test_errors(a: Shape, b: Shape, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        broadcast({"a": a, "b": b})
    assert message in str(caught.value)
