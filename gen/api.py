"""What a kernel file of a project imports: `from wootz.gen.api import Builder, Family, ...`.

The names here stay; the modules that they come from may move. The names of a checkout and of an installed
package are the same: a project's files are read with this module under that name.
"""

from __future__ import annotations

from .formats.axes import Format
from .ir.collective import add, block_reduce, block_scan, lane_reduce, lane_scan, maximum, minimum, multiply
from .ir.dsl import Builder, DslError, Val, Var
from .ir.maths import (
    absolute,
    erf,
    erfc,
    expm1,
    gelu,
    gelu_tanh,
    log1p,
    polynomial,
    power,
    relu,
    sigmoid,
    silu,
    softplus,
    tan,
)
from .ir.nodes import DTYPES, Ref
from .ir.vectors import load_scalar, load_vector, store_vector, stored, threads_of
from .kernels._broadcast import broadcasting
from .kernels._map import elementwise
from .kernels._rows import LIMITS as ROW_LIMITS
from .kernels._rows import Row, Share, over_rows, rows, shares
from .manifest.target import Target
from .variants.family import (
    FAST_MATH,
    LOAD_WIDTH,
    PLAIN,
    Arg,
    Family,
    Formula,
    Instance,
    Launch,
    Operand,
    Scalar,
    TensorMap,
    Variant,
    plain,
)

__all__ = [
    "DTYPES", "FAST_MATH", "LOAD_WIDTH", "PLAIN", "ROW_LIMITS",
    "Arg", "Builder", "DslError", "Family", "Format", "Formula", "Instance", "Launch", "Operand", "Ref",
    "Row", "Scalar", "Share", "Target", "TensorMap", "Val", "Var", "Variant",
    "absolute", "add", "block_reduce", "block_scan", "broadcasting", "elementwise", "erf", "erfc", "expm1",
    "gelu", "gelu_tanh", "lane_reduce", "lane_scan", "load_scalar", "load_vector", "log1p", "maximum",
    "minimum", "multiply", "over_rows", "plain", "polynomial", "power", "relu", "rows", "shares", "sigmoid",
    "silu", "softplus", "store_vector", "stored", "tan", "threads_of",
]  # fmt: skip
