"""The numbers that a call gives by name."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .errors import ArgumentError, near

__all__ = ["Scalar"]

_FLOAT_MAX = (2.0 - 2.0**-23) * 2.0**127


@dataclass(frozen=True, eq=False, repr=False)
class Scalar:
    """A number that a call may give by name. choices: words that stand for 0, 1, ... of a u32; needs: the
    optional operand that it is about, if any."""

    name: str
    type: str
    default: float
    choices: tuple[str, ...]
    needs: str = ""

    def read(self, value: Any) -> float:
        """The number for the kernel. Raises ArgumentError: another kind of thing, out of range, no such word.

        An f32 may be any number that float32 holds, infinities and NaN included.
        """
        if isinstance(value, str):
            return self._choice(value)
        if self.type == "u32":
            return self._whole(value)
        if not isinstance(value, numbers.Real):
            raise ArgumentError(f"{self.name} is a {type(value).__name__}; want {self._wanted()}")
        wide = float(value)
        if _FLOAT_MAX < abs(wide) < float("inf"):
            raise ArgumentError(f"{self.name} is {wide}, outside float32's range")
        return wide

    def _whole(self, value: Any) -> int:
        try:
            whole = operator.index(value)
        except TypeError:
            raise ArgumentError(f"{self.name} is {value!r}; want {self._wanted()}") from None
        if not 0 <= whole < (len(self.choices) or 2**32):
            raise ArgumentError(f"{self.name} is {whole}; want {self._wanted()}")
        return whole

    def _choice(self, value: str) -> int:
        if value not in self.choices:
            raise ArgumentError(f"{self.name} is {value!r}{near(value, self.choices)}; want {self._wanted()}")
        return self.choices.index(value)

    def _wanted(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return "a number" if self.type == "f32" else "a whole number from 0 to 4294967295"

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Scalar:
        name, type_, choices = record["name"], record["type"], tuple(record.get("choices") or ())
        if type_ not in ("f32", "u32") or not all(isinstance(each, str) for each in (name, *choices)):
            raise ValueError(f"scalar {name!r} of type {type_!r}")
        scalar = cls(name, type_, 0, choices, record.get("needs") or "")
        return replace(scalar, default=scalar.read(record.get("default", 0)))
