"""unary: y[i] = op(x[i]), one of the functions of OPS; f32 arithmetic, one rounding to the output type.

NaN gives NaN (logical_not: false). At -inf and inf every op gives its limit: silu and gelu 0 at -inf. y may
be x. `round` takes halves to even; `logical_not` gives bools, x == 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..formats.axes import Format
from ..ir import maths
from ..ir.dsl import Builder, Val
from ..ir.nodes import MATH
from ..manifest.target import Target
from ..variants.family import FAST_MATH, Family, Operand, Variant, plain
from ._map import elementwise


def _native(name: str) -> maths.Function:
    return lambda b, x: b.op(name, x)


OPS: dict[str, Callable[[Builder, Val], Val]] = {
    **{name: _native(name) for name in (*MATH, "neg")},
    "exp": Builder.exp,
    "expm1": maths.expm1,
    "log1p": maths.log1p,
    "tan": maths.tan,
    "erf": maths.erf,
    "sign": maths.sign,
    "reciprocal": maths.reciprocal,
    "square": lambda b, x: x * x,
    "sigmoid": maths.sigmoid,
    "relu": maths.relu,
    "silu": maths.silu,
    "gelu": maths.gelu,
    "gelu_tanh": maths.gelu_tanh,
    "softplus": maths.softplus,
    "logical_not": lambda b, x: x.eq(0.0),
}
FAST = ("exp", "sigmoid", "silu", "gelu", "gelu_tanh")
"""Ops that differ where math is fast."""


def types(dtype: str, options: dict[str, str]) -> dict[str, str]:
    return {"y": "bool"} if options["op"] == "logical_not" else {}


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    function, to = OPS[options["op"]], "u8" if types(dtype, options) else ""

    def compute(b: Builder, values: list[Val]) -> Val:
        b.fast = options.get("math") == "fast"
        return function(b, values[0])

    yield elementwise(("x",), dtype, target, compute, options, to)


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    if options.get("math") == "fast" and options["op"] not in FAST:
        return f"{options['op']} has no exponential: math=fast is for {', '.join(FAST)}"
    return plain("unary", dtype)


FAMILY = Family(
    (Operand("x", "array", ("n",)),),
    Operand("y", "array", ("n",)),
    variants,
    alias=True,
    flat=True,
    options={"op": tuple(OPS)},
    types=types,
    accepts=accepts,
    knobs=FAST_MATH,
)
