"""Puts device templates into an emitted text: every `#include "x"` of our own is replaced by the header.

So an emitted source is one file, which compiles alone but for the headers of CUTLASS and of the CUDA toolkit,
and whose sha256 says all about it. Headers are those of cutlass/, and the C headers of csrc/; both lie beside
the generator. They begin with #pragma once and include each other outside of any #if.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

FOLDERS = tuple(Path(__file__).resolve().parents[2] / name for name in ("cutlass", "csrc"))
SYMBOL = "$SYMBOL"
"""In the text of an instance: the entry's symbol."""

_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*"([^"]*)"')
_ONCE = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+once\b")
_FOREIGN = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(?:cutlass|cute)/", re.M)


class TemplateError(LookupError):
    """A text names a header that is not there."""


@cache
def header(name: str) -> str:
    """The text of one of our headers. TemplateError where there is none of that name."""
    for folder in FOLDERS:
        path = folder / name
        if path.is_file() and (folder == FOLDERS[0] or path.suffix == ".h"):
            return path.read_text(encoding="utf-8")
    raise TemplateError(
        f'#include "{name}": no such header in {" or ".join(f.name for f in FOLDERS)}/ '
        "(write <...> for headers of others)"
    )


def inline(headers: Iterable[str], texts: Iterable[str]) -> str:
    """The headers and what they include, each once, and then the texts, with what they include."""
    seen: set[str] = set()
    parts = [*(f'#include "{name}"\n' for name in headers), *texts]
    return "".join(line for part in parts for line in _lines(part, seen))


def _lines(text: str, seen: set[str]) -> Iterator[str]:
    for line in text.splitlines():
        included = _INCLUDE.match(line)
        if included is None:
            if not _ONCE.match(line):
                yield line + "\n"
        elif included[1] not in seen:
            seen.add(included[1])
            yield from _lines(header(included[1]), seen)


def uses_cutlass(text: str) -> bool:
    """Whether a text includes headers of CUTLASS."""
    return bool(_FOREIGN.search(text))
