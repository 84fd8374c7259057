"""Launch formulas of the index: an integer, a name, or ["op", a, b]."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from .errors import ArtifactError

__all__ = ["Formula", "compile_formula", "spell"]

Formula = Callable[[Mapping[str, int]], int]


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b)


def _divisor(operation: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def checked(a: int, b: int) -> int:
        if b == 0:
            raise ArtifactError("a launch formula of the index divides by zero; rebuild the artifacts")
        return operation(a, b)

    return checked


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "ceildiv": _divisor(_ceildiv),
    "div": _divisor(operator.floordiv),
    "mod": _divisor(operator.mod),
    "mul": operator.mul,
    "add": operator.add,
    "sub": operator.sub,
    "min": min,
    "max": max,
    "le": lambda a, b: int(a <= b),
    "lt": lambda a, b: int(a < b),
    "eq": lambda a, b: int(a == b),
    "ge": lambda a, b: int(a >= b),
    "gt": lambda a, b: int(a > b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
}


def compile_formula(formula: Any, names: Collection[str]) -> Formula:
    """A function of the shape values. Raises ArtifactError for an operation or a name that is not known."""
    if isinstance(formula, int):
        value = int(formula)
        return lambda _: value
    if isinstance(formula, str):
        if formula not in names:
            raise ArtifactError(
                f"a launch formula of the index uses {formula!r}; known are {', '.join(sorted(names))}"
            )
        return operator.itemgetter(formula)
    if isinstance(formula, list) and len(formula) == 3 and formula[0] in _OPERATIONS:
        operation = _OPERATIONS[formula[0]]
        left, right = compile_formula(formula[1], names), compile_formula(formula[2], names)
        return lambda values: operation(left(values), right(values))
    raise ArtifactError(f"the index has a launch formula that this wootz does not know: {formula!r}")


_SIGNS = {
    "mul": "*", "add": "+", "sub": "-", "div": "//", "mod": "%",
    "le": "<=", "lt": "<", "eq": "==", "ge": ">=", "gt": ">", "and": "and", "or": "or",
}  # fmt: skip


def spell(formula: Any, inner: bool = False) -> str:
    """A formula for messages: ceildiv(k, 128), or (k % 8) == 0. inner: it stands in another one."""
    if not isinstance(formula, list) or len(formula) != 3:
        return str(formula)
    operation, left, right = formula
    if operation not in _SIGNS:
        return f"{operation}({spell(left)}, {spell(right)})"
    text = f"{spell(left, True)} {_SIGNS[operation]} {spell(right, True)}"
    return f"({text})" if inner else text
