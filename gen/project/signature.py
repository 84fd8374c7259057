"""What a kernel says it takes and gives: checked as the loader will check it, before anything is built."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from ..manifest.problems import near, show
from ..variants.family import Family, Operand, Scalar
from ..variants.formula import OPERATORS

RESERVED = ("out", "stream", "workspace")
"""Keywords of a call."""
KINDS = ("array", "quantised", "packed", "tiled")
TYPES = ("f16", "bf16", "f32", "i8", "e4m3", "e5m2", "bool", "u8", "i32", "u32")
"""Element types of arrays."""
DIVISIONS = ("ceildiv", "div", "mod")
LARGEST = (2.0 - 2.0**-23) * 2.0**127
"""Of f32."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def names_of(family: Family) -> set[str]:
    """The shape names that operands bind."""
    return {axis for each in family.operands for axis in each.shape if isinstance(axis, str)}


def formula_names(family: Family) -> set[str]:
    """What launch formulas and conditions may name."""
    flags = {f"has_{each.name}" for each in family.operands if each.optional}
    return names_of(family) | {s.name for s in family.scalars} | set(family.extents) | flags | {"sms"}


def formula_problem(formula: Any, known: Collection[str]) -> str | None:
    """What is wrong with a formula: int | name | [operation, a, b]."""
    if isinstance(formula, int) and not isinstance(formula, bool):
        return None
    if isinstance(formula, str):
        return (
            None if formula in known else f"no number is named {show(formula)}{near(formula, sorted(known))}"
        )
    if not isinstance(formula, (list, tuple)) or len(formula) != 3:
        return f"is {show(formula)}, wanted a whole number, a name or [operation, a, b]"
    operation, *sides = formula
    if operation not in OPERATORS:
        return f"no operation is named {show(operation)}{near(operation, OPERATORS)}"
    if wrong := next((wrong for side in sides if (wrong := formula_problem(side, known))), None):
        return wrong
    if operation in DIVISIONS and constant(sides[1]) == 0:
        return f"{operation} divides by zero"
    return None


def constant(formula: Any) -> int | None:
    """The value of a formula without names, or None. It has no `formula_problem` but perhaps its last."""
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        return None
    operation, left, right = formula[0], constant(formula[1]), constant(formula[2])
    if left is None or right is None or (operation in DIVISIONS and right == 0):
        return None
    return int(OPERATORS[operation](left, right))


def default_problem(scalar: Scalar) -> str | None:
    """Why a call could not pass a scalar's default."""
    given = scalar.default
    most = len(scalar.choices) - 1 if scalar.choices else (1 << 32) - 1
    if not isinstance(given, (int, float)):
        fits, wanted = False, "a number"
    elif scalar.choices or scalar.type == "u32":
        fits = 0 <= given <= most and given == int(given)
        wanted = f"a whole number from 0 to {most}"
    else:
        fits, wanted = abs(given) <= LARGEST, f"a finite number up to {LARGEST:.7g}"
    return None if fits else f"is {given!r}, wanted {wanted}: {scalar.name} is {scalar.type}"


def wrong_with(family: Family) -> str | None:
    """What the loader would not take, or None."""
    return next(_problems(family), None)


def _problems(family: Family) -> Iterator[str]:
    everything = (*family.operands, family.output)
    for kind, parts in ((Operand, everything), (Scalar, family.scalars)):
        if strange := [type(each).__name__ for each in parts if not isinstance(each, kind)]:
            yield f"has a {strange[0]} among its {kind.__name__}s"
            return
    names = [each.name for each in family.operands] + [each.name for each in family.scalars]
    for given in (*names, family.output.name):
        if not isinstance(given, str) or not _IDENTIFIER.fullmatch(given):
            yield f"{given!r} is no name: it goes into parameters"
        elif given in RESERVED:
            yield f"{given} is a keyword of every call: name it otherwise"
    for given in [each for i, each in enumerate(names) if each in names[:i]]:
        yield f"{given} is there twice"
    for each in everything:
        yield from _operand_problems(each)
    for scalar in family.scalars:
        if wrong := default_problem(scalar):
            yield f"the default of {scalar.name} {wrong}"
    bound = names_of(family)
    for axis in (a for a in family.output.shape if isinstance(a, str)):
        if axis not in bound | set(family.extents) and not family.broadcasts:
            yield f"{family.output.name} has the axis {axis}, which no operand binds{near(axis, bound)}"
    for shadowed in sorted(bound & set(names)):
        yield f"{shadowed} is an axis and an operand or scalar: name one of them otherwise"


def _operand_problems(operand: Operand) -> Iterator[str]:
    if operand.kind not in KINDS:
        yield f"{operand.name} is of kind {show(operand.kind)}{near(operand.kind, KINDS)}"
    if operand.dtype and operand.dtype not in TYPES:
        yield f"{operand.name} has elements of {show(operand.dtype)}{near(operand.dtype, TYPES)}"
