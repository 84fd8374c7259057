"""reduce: y[m] = op over the n numbers of each row; sums, means and products in f32, one rounding.

sum, mean, prod, max and min have the type of x; argmax and argmin are int32, any and all bools. NaN: of a row
that has one, sum, mean, prod, max and min are NaN, argmax and argmin its place (the first), and it counts as
true. Of equal numbers argmax and argmin take the first. Sums have one fixed order: the same bits each time.
Knobs: accumulation, of sum and mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf

from ..formats.axes import Format
from ..ir import collective
from ..ir.collective import Combine, Tuple
from ..ir.dsl import Builder, Val
from ..manifest.target import Target
from ..variants.family import Family, Operand, Variant, plain
from ._rows import LIMITS, Share, lattice, over_rows, passes_once, rows


def _number(b: Builder, x: Val, column: Val) -> Tuple:
    return (x,)


def _place(b: Builder, x: Val, column: Val) -> Tuple:
    return x, column


def _exact_number(b: Builder, x: Val, column: Val) -> Tuple:
    return x, b.const(0.0, "f32")


def _negative_place(b: Builder, x: Val, column: Val) -> Tuple:
    return b.op("neg", x), column


def _truth(b: Builder, x: Val, column: Val) -> Tuple:
    return (b.select(x.ne(0.0), b.const(1, "u32"), b.const(0, "u32")),)


@dataclass(frozen=True)
class Reduction:
    """value(b, x, column): what is combined, from `identity`, and of which the last is stored. out: the type
    of y in memory, "" is x's. compensated: a sum, and what its roundings lost."""

    value: Callable[[Builder, Val, Val], Tuple]
    combine: Combine
    identity: tuple[float | int, ...]
    out: str = ""
    mean: bool = False
    compensated: bool = False

    def result(self, b: Builder, found: Tuple, n: Val, dtype: str) -> Val:
        total = found[-1]
        if self.compensated:  # what an infinite sum lost is NaN
            plain = found[0]
            total = b.select(b.op("abs", plain) < inf, plain + total, plain)
        total = total / n.cast("f32") if self.mean else total
        return total.cast(self.out or dtype)


_NONE = 0xFFFFFFFF  # no column: it loses every tie

OPS: dict[str, Reduction] = {
    "sum": Reduction(_number, collective.add, (0.0,)),
    "mean": Reduction(_number, collective.add, (0.0,), mean=True),
    "prod": Reduction(_number, collective.multiply, (1.0,)),
    "max": Reduction(_number, collective.maximum, (-inf,)),
    "min": Reduction(_number, collective.minimum, (inf,)),
    "argmax": Reduction(_place, collective.first_largest, (-inf, _NONE), "i32"),
    "argmin": Reduction(_negative_place, collective.first_largest, (-inf, _NONE), "i32"),
    "any": Reduction(_truth, collective.either, (0,), "u8"),
    "all": Reduction(_truth, collective.both, (1,), "u8"),
}


COMPENSATED = {
    op: replace(
        OPS[op], value=_exact_number, combine=collective.add_twice, identity=(0.0, 0.0), compensated=True
    )
    for op in ("sum", "mean")
}


def types(dtype: str, options: dict[str, str]) -> dict[str, str]:
    out = OPS[options["op"]].out
    return {"y": "bool" if out == "u8" else out} if out else {}


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    op = (COMPENSATED if options.get("accumulation") == "compensated" else OPS)[options["op"]]

    def build(b: Builder, share: Share) -> None:
        x, y = b.buffer("x", dtype), b.buffer("y", op.out or dtype, "out")
        m, n = b.scalar("m"), b.scalar("n")
        with rows(b, share, m, n) as row:
            numbers = row.source_of(x)
            found = numbers.reduce_all(lambda v, i: op.value(b, v, i), op.combine, op.identity)
            with b.when(row.place.eq(0)):
                b.store(y, row.index, op.result(b, found, n, dtype))

    return over_rows(passes_once(dtype, target), options, build)


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    if "accumulation" in options and options["op"] not in COMPENSATED:
        return f"{options['op']} adds nothing up: accumulation is for {', '.join(COMPENSATED)}"
    return plain("reduce", dtype)


FAMILY = Family(
    (Operand("x", "array", ("m", "n")),),
    Operand("y", "array", ("m",)),
    variants,
    LIMITS,
    options={"op": tuple(OPS)},
    types=types,
    accepts=accepts,
    knobs={"accumulation": ("plain", "compensated")},
    lattice=lattice,
)
