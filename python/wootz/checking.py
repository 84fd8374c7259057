"""What the reference of a kernel is written with. A check is a Python file with

    shapes(format) -> sizes to run at: shape name -> extent
    operands(format, size, dtype, options, rng) -> value by name, in the kernel's order
    expect(operands, dtype, options) -> Expected, in float64
and, where the kernel writes to operands or moves bits, updated and bits (see `wootz.checks`).

    from wootz.checking import Expected, bound, flat_operands as operands, flat_shapes as shapes, to_double
"""

from __future__ import annotations

from .checks._data import activations, columns, needed
from .checks._flat import operands as flat_operands
from .checks._flat import shapes as flat_shapes
from .checks._rows import numbers as row_numbers
from .checks._rows import operands as row_operands
from .checks._rows import roundings as row_roundings
from .checks._rows import shapes as row_shapes
from .formats import Descriptor, QuantizedTensor, quantize
from .reference import Expected, bound, round_to, to_double

__all__ = [
    "Descriptor",
    "Expected",
    "QuantizedTensor",
    "activations",
    "bound",
    "columns",
    "flat_operands",
    "flat_shapes",
    "needed",
    "quantize",
    "round_to",
    "row_numbers",
    "row_operands",
    "row_roundings",
    "row_shapes",
    "to_double",
]
