"""A plan's entry points, in the form in which the index holds them, and the formulas in them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

Formula = Union[int, str, Sequence[object]]


@dataclass(frozen=True)
class Arg:
    """A kernel argument. type: ptr | u32 | u64 | f32; role: in | out | shape | pitch | scalar | workspace."""

    name: str
    type: str
    role: str


@dataclass(frozen=True)
class Entry:
    """An entry point: its symbol, its arguments in order, how it is launched, and when it may be. workspace:
    bytes; zeroed: they are zero before a launch, and have to be after it. prologue: launched before it, with
    the same workspace."""

    symbol: str
    args: tuple[Arg, ...]
    block: tuple[int, int, int]
    grid: tuple[Formula, Formula, Formula]
    when: tuple[Formula, ...] = ()
    workspace: Formula = 0
    zeroed: bool = False
    prologue: tuple[Entry, ...] = ()

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Entry:
        """An entry as the index holds it."""
        args = tuple(Arg(*arg) for arg in record["args"])
        x, y, z = record["block"]
        return cls(
            record["symbol"], args, (x, y, z), tuple(record["grid"]), tuple(record.get("when", ())),
            record.get("workspace", 0), record.get("zeroed", False),
            tuple(map(cls.from_json, record.get("prologue", ()))),
        )  # fmt: skip

    @property
    def outputs(self) -> list[Arg]:
        """The arrays that a launch may write to."""
        return [a for a in self.args if a.role in ("out", "workspace")]


_OPERATORS: dict[str, Callable[[int, int], int]] = {
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


def evaluate(formula: Formula, shape: Mapping[str, int]) -> int:
    """The value of an int, a shape name, or [op, a, b]. ValueError for any other formula."""
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        if formula not in shape:
            raise ValueError(f"formula names {formula!r}; the shape has {', '.join(sorted(shape))}")
        return shape[formula]
    if len(formula) != 3 or formula[0] not in _OPERATORS:
        raise ValueError(f"no such formula: {formula!r}")
    name, left, right = formula
    return int(_OPERATORS[str(name)](evaluate(left, shape), evaluate(right, shape)))  # type: ignore[arg-type]


def kinds_of(entry: Entry) -> list[str]:
    """What each parameter of the text has to be: Input, Output, U32, U64 or F32."""
    kinds = []
    for arg in entry.args:
        if arg.type == "ptr":
            kinds.append("Output" if arg in entry.outputs else "Input")
        else:
            kinds.append({"u32": "U32", "u64": "U64", "f32": "F32"}[arg.type])
    return kinds
