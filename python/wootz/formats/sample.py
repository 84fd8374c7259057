"""Random tensors in any format, for checking kernels: every code occurs, and no two blocks are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..lazy_numpy import np
from .bank import check_shape
from .descriptor import Descriptor, grid
from .element import Element
from .tensor import QuantizedTensor, pack_rows, pack_side

if TYPE_CHECKING:
    from numpy.typing import NDArray


def random_tensor(
    format: Any, shape: tuple[int, int], rng: np.random.Generator, *, specials: bool = False
) -> QuantizedTensor:
    """A tensor with random codes and scales, of numbers around 1.

    format: as quantize takes it. Codes are drawn from all that are finite, those the quantiser leaves out
    included. With specials also NaN and infinities, and every eighth narrow scale is any of its type's
    codes.
    """
    descriptor = Descriptor.parse(format)
    n, k = check_shape(shape)
    element = descriptor.element
    allowed = np.arange(1 << element.bits) if specials else np.flatnonzero(np.isfinite(element.values))
    codes = rng.choice(allowed, (n, k)).astype(np.uint8)
    sides = _sides(descriptor, (n, k), rng, specials)
    packed = np.zeros((n, descriptor.layout.row_bytes(k)), dtype=np.uint8)
    pack_rows(descriptor, codes, sides, packed)
    fields: dict[str, Any] = {"codes": packed}
    elements = {name: e for name, e, _ in descriptor.side_fields}
    for f in descriptor.layout.fields[1:]:
        fields[f.name] = pack_side(sides[f.name], elements[f.name])
    return QuantizedTensor(descriptor, (n, k), fields)


def _sides(
    d: Descriptor, shape: tuple[int, int], rng: np.random.Generator, specials: bool
) -> dict[str, NDArray[Any]]:
    sides: dict[str, NDArray[Any]] = {}
    peak = d.element.max
    for i, scale in enumerate(d.scales):
        size = grid(scale.block, shape)
        name = d.field_name(i)
        inner = i + 1 < len(d.scales)
        if inner and scale.element.kind == "exponent":  # the whole range would overflow sums in float32
            sides[name] = scale.element.encode(2.0 ** rng.uniform(-6, 0, size))
        elif inner and not scale.element.wide:
            sides[name] = _spread_codes(scale.element, size, rng)
            peak *= scale.element.max
        else:
            wanted = 2.0 ** rng.uniform(-2, 2, size) / peak
            wanted = 1 / wanted if i and scale.op == "divide" else wanted
            negative = rng.random(size) < (0.125 if scale.element.low < 0 else 0.0)
            sides[name] = scale.element.encode(np.where(negative, -wanted, wanted), nonzero=True)
            peak = 1.0
        if specials and not scale.element.wide:
            some = rng.random(size) < 0.125
            anything = rng.integers(0, 1 << scale.element.bits, size).astype(np.uint8)
            sides[name] = np.where(some, anything, sides[name])
    if d.zero is not None:
        low, high = (d.element.low, d.element.high) if d.zero.domain == "code" else (-1.0, 1.0)
        sides["zero"] = d.zero.element.encode(rng.uniform(low, high, grid(d.block, shape)))
    return sides


def _spread_codes(element: Element, size: tuple[int, int], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Codes of any finite number of at least a sixteenth of the largest; one in eight of any finite number
    at all.
    """
    finite = np.flatnonzero(np.isfinite(element.values))
    large = np.flatnonzero(np.isfinite(element.values) & (np.abs(element.values) >= element.max / 16))
    return np.where(rng.random(size) < 0.125, rng.choice(finite, size), rng.choice(large, size)).astype(
        np.uint8
    )
