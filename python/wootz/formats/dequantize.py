"""From a QuantizedTensor back to numbers, by the value table alone.

Kernels compute in float32, in this order, and so does `decode`, bit for bit:
    s = scale; for each further level: s = s * level or s / level
    w = v * s, (v - z) * s or fma(v, s, z)
`decode_exact` does the same in float64 without those roundings: the reference that errors are measured
against.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..lazy_numpy import np
from .bank import one_matrix
from .bits import fma32
from .descriptor import Block, Descriptor, extent, grid
from .tensor import QuantizedTensor, side_entries, unpack_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 1 << 20  # elements that are worked on at once: temporaries stay within some 10 MB each


def row_chunks(n: int, k: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about CHUNK elements each."""
    step = max(1, CHUNK // k)
    for start in range(0, n, step):
        yield start, min(n, start + step)


def expand(blocks: NDArray[Any], block: Block, shape: tuple[int, int], start: int, stop: int) -> NDArray[Any]:
    """Entries by block -> one entry an element, for some rows: [stop - start, K]."""
    rows, columns = extent(block, shape)
    some = blocks[np.arange(start, stop) // rows]
    return np.repeat(some, columns, axis=1)[:, : shape[1]]


def on_grid(level: NDArray[Any], block: Block, finest: Block, shape: tuple[int, int]) -> NDArray[Any]:
    """Entries by block of a coarser level -> one for each of the finest level's blocks."""
    rows, columns = grid(finest, shape)
    r0, c0 = extent(finest, shape)
    r1, c1 = extent(block, shape)
    return level[np.arange(rows) * r0 // r1][:, np.arange(columns) * c0 // c1]


def combine_scales(
    format: Descriptor, entries: dict[str, NDArray[Any]], shape: tuple[int, int], dtype: Any
) -> NDArray[Any]:
    """Scale of each of level 0's blocks, all levels in, computed in the given dtype; 1 where there is no
    scale.
    """
    total = np.ones((1, 1), dtype=dtype)
    for i, scale in enumerate(format.scales):
        level = scale.element.decode(entries[format.field_name(i)]).astype(dtype)
        if i == 0:
            total = level
            continue
        level = on_grid(level, scale.block, format.block, shape)
        with np.errstate(all="ignore"):
            total = total / level if scale.op == "divide" else total * level
    return total


def scale_block(format: Descriptor) -> Block:
    """The block of `combine_scales`' result."""
    return format.block if format.scales else (0, 0)


def zero_values(format: Descriptor, entries: dict[str, NDArray[Any]]) -> NDArray[np.float32] | None:
    """Zero point of each block as a number, the stored-minus-one rule undone."""
    if format.zero is None:
        return None
    values = format.zero.element.decode(entries["zero"])
    return values + np.float32(1) if format.zero.minus_one else values


def decode(q: QuantizedTensor) -> NDArray[np.float32]:
    """float32 [N, K]; the arrays must be NumPy's."""
    return _decode(q, np.float32)


def decode_exact(q: QuantizedTensor) -> NDArray[np.float64]:
    """float64 [N, K] without float32's roundings; the arrays must be NumPy's."""
    return _decode(q, np.float64)


def _decode(q: QuantizedTensor, dtype: Any) -> NDArray[Any]:
    format = q.format
    shape, entries = one_matrix("tensor", q), side_entries(q)
    scale = combine_scales(format, entries, shape, dtype)
    zero = zero_values(format, entries)
    block = scale_block(format)
    table = format.element.values.astype(dtype)
    out = np.empty(shape, dtype=dtype)
    for start, stop in row_chunks(*shape):
        v = table[unpack_rows(q, start, stop)]
        s = expand(scale, block, shape, start, stop)
        z = None if zero is None else expand(zero.astype(dtype), format.block, shape, start, stop)
        with np.errstate(all="ignore"):
            if format.zero is None or z is None:
                out[start:stop] = v * s
            elif format.zero.domain == "code":
                out[start:stop] = (v - z) * s
            else:
                out[start:stop] = fma32(v, s, z) if dtype is np.float32 else v * s + z
    return out
