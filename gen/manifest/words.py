"""Which names a manifest may give: they go into C symbols, file names and paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .problems import show

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TARGET = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.]*[A-Za-z0-9_])?")
_MAX_NAME = 64
_LIST = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires restrict return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true
try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while xor
xor_eq half kernel device threadgroup constant thread vertex fragment main all none native con prn
aux nul
"""
_WORDS = frozenset(_LIST.split()) | {f"{port}{i}" for port in ("com", "lpt") for i in range(10)}
"""Words of C, C++ and Metal, the manifest's own, and file names that some systems reserve."""


def name_problem(name: str, target: bool) -> str | None:
    """What is wrong with a name, or None. Target names may hold dots and begin with a digit."""
    pattern = _TARGET if target else _IDENTIFIER
    wanted = "letters, digits, _ and inner dots" if target else "a letter, then letters, digits and _"
    if not pattern.fullmatch(name):
        close = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
        hint = f"; {show(close)} would do" if pattern.fullmatch(close) and close.lower() not in _WORDS else ""
        return f"the name {show(name)} is not {wanted}: it goes into symbols and file names{hint}"
    if name.lower() in _WORDS:
        return f"the name {show(name)} is reserved (a language's word, or a reserved file name)"
    if len(name) > _MAX_NAME:
        return f"the name has {len(name)} characters, at most {_MAX_NAME} are allowed"
    return None


def collisions(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(name, earlier name) where two would be one file or symbol: case aside, a dot counting as _."""
    seen: dict[str, str] = {}
    for name in names:
        folded = name.lower().replace(".", "_")
        if folded in seen:
            yield name, seen[folded]
        seen.setdefault(folded, name)
