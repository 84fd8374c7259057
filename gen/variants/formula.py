"""Launch formulas, as the index has them: an integer, a name, or [operation, a, b]."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

OPERATORS: dict[str, Callable[[int, int], int]] = {
    "ceildiv": lambda a, b: -(-a // b),
    "mul": operator.mul,
    "add": operator.add,
    "sub": operator.sub,
    "min": min,
    "max": max,
    "div": operator.floordiv,
    "mod": operator.mod,
    "le": operator.le,
    "lt": operator.lt,
    "eq": operator.eq,
    "ge": operator.ge,
    "gt": operator.gt,
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
}
"""By the name that a formula has for it."""


def evaluate(formula: Any, shape: Mapping[str, int]) -> int:
    """The value of an int, a shape name, or [op, a, b]. ValueError for any other formula."""
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        if formula not in shape:
            raise ValueError(f"formula names {formula!r}; the shape has {', '.join(sorted(shape))}")
        return shape[formula]
    if len(formula) != 3 or formula[0] not in OPERATORS:
        raise ValueError(f"no such formula: {formula!r}")
    name, left, right = formula
    return int(OPERATORS[str(name)](evaluate(left, shape), evaluate(right, shape)))
