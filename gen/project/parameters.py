"""The assertion, in a unit's text, that a hand-written function takes what its manifest declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ANSWERS = """struct wootz_yes { static constexpr bool value = true; };
struct wootz_no { static constexpr bool value = false; };
"""
"""What `asserted` needs before it, once."""


POINTER, U64 = "POINTER", "u64"
"""To any elements; of which C has two types, that are equals on a GPU."""
_FREE = {POINTER: "T{}*", U64: "T{}"}


@dataclass(frozen=True)
class Parameter:
    """type: in C, or POINTER or U64."""

    name: str
    type: str


def asserted(file: str, function: str, parameters: Sequence[Parameter]) -> str:
    """Three lines of C++17. The function is looked at as a pointer of the declared type, to which nothing is
    converted."""
    free = [f"class T{i}" for i, each in enumerate(parameters) if each.type in _FREE]
    types = ", ".join(_FREE.get(each.type, each.type).format(i) for i, each in enumerate(parameters))
    wanted = ", ".join(f"{each.type} {each.name}" for each in parameters)
    template = f"template <{', '.join(free)}> " if free else ""
    return (
        f"{template}wootz_yes wootz_takes_{function}(void (*)({types}));\n"
        f"wootz_no wootz_takes_{function}(...);\n"
        f"static_assert(decltype(wootz_takes_{function}({function}))::value, "
        f'"{file}: wanted void {function}({wanted})");'
    )
