"""A plan's entry points, in the form in which the index holds them, and the formulas in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def kinds_of(entry: Entry) -> list[str]:
    """What each parameter of the text has to be: Input, Output, U32, U64 or F32."""
    kinds = []
    for arg in entry.args:
        if arg.type == "ptr":
            kinds.append("Output" if arg in entry.outputs else "Input")
        else:
            kinds.append({"u32": "U32", "u64": "U64", "f32": "F32"}[arg.type])
    return kinds
