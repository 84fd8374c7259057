"""The assertion, in a unit's text, that a hand-written function takes what its manifest declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ANSWERS = """struct wootz_yes { static constexpr bool value = true; };
struct wootz_no { static constexpr bool value = false; };
"""
"""What `asserted` needs before it, once."""


@dataclass(frozen=True)
class Parameter:
    """type: in C, or "" for any pointer."""

    name: str
    type: str


def asserted(file: str, function: str, parameters: Sequence[Parameter]) -> str:
    """Three lines of C++17. The function is looked at as a pointer of the declared type, to which nothing is
    converted."""
    free = [f"class T{i}" for i, each in enumerate(parameters) if not each.type]
    types = ", ".join(each.type or f"T{i}*" for i, each in enumerate(parameters))
    wanted = ", ".join(f"{each.type or 'POINTER'} {each.name}" for each in parameters)
    template = f"template <{', '.join(free)}> " if free else ""
    return (
        f"{template}wootz_yes wootz_takes_{function}(void (*)({types}));\n"
        f"wootz_no wootz_takes_{function}(...);\n"
        f"static_assert(decltype(wootz_takes_{function}({function}))::value, "
        f'"{file}: wanted void {function}({wanted})");'
    )
