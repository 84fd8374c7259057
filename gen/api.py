"""What a kernel file of a project imports: `from wootz.gen.api import Builder, Family, ...`.

The names here stay; the modules that they come from may move. The names of a checkout and of an installed
package are the same: a project's files are read with this module under that name.
"""

from __future__ import annotations

from .axes import Format
from .collective import add, block_reduce, block_scan, lane_reduce, lane_scan, maximum, minimum, multiply
from .dsl import Builder, DslError, Val, Var
from .family import (
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
from .ir import DTYPES, Ref
from .kernels._broadcast import broadcasting
from .kernels._map import elementwise
from .kernels._rows import LIMITS as ROW_LIMITS
from .kernels._rows import Row, Share, over_rows, rows, shares
from .maths import (
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
from .target import Target
from .vectors import load_scalar, load_vector, store_vector, stored, threads_of

__all__ = [
    "DTYPES", "FAST_MATH", "LOAD_WIDTH", "PLAIN", "ROW_LIMITS",
    "Arg", "Builder", "DslError", "Family", "Format", "Formula", "Instance", "Launch", "Operand", "Ref",
    "Row", "Scalar", "Share", "Target", "TensorMap", "Val", "Var", "Variant",
    "absolute", "add", "block_reduce", "block_scan", "broadcasting", "elementwise", "erf", "erfc", "expm1",
    "gelu", "gelu_tanh", "lane_reduce", "lane_scan", "load_scalar", "load_vector", "log1p", "maximum",
    "minimum", "multiply", "over_rows", "plain", "polynomial", "power", "relu", "rows", "shares", "sigmoid",
    "silu", "softplus", "store_vector", "stored", "tan", "threads_of",
]  # fmt: skip
