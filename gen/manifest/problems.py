"""What is wrong with a manifest, and how it is said: file, line, path, message, near miss."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

Path = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with a manifest. Lines count from 1; a problem of the whole file is on line 1."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.path + ': ' if self.path else ''}{self.message}"


class ManifestError(Exception):
    """Everything that is wrong with one manifest, sorted by line. str() has one line for each."""

    def __init__(self, messages: Iterable[Problem]) -> None:
        self.messages = sorted(set(messages))
        super().__init__("\n".join(map(str, self.messages)))


def show(value: object, limit: int = 60) -> str:
    """A value for a message: ASCII, one line, bounded."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = json.dumps(value) if not isinstance(value, str) else "'" + json.dumps(value)[1:-1] + "'"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def path_text(path: Path) -> str:
    """formats.name.codebook[3]"""
    out = ""
    for step in path:
        if isinstance(step, int):
            out += f"[{step}]"
        else:
            plain = re.fullmatch(r"[A-Za-z0-9_.\-]{1,64}", step)
            out += ("." if out else "") + (step if plain else show(step))
    return out


def near(word: object, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" for the closest of the known words, else a short list of them, else nothing."""
    words = list(known)
    if isinstance(word, str) and len(word) <= 64:
        close = get_close_matches(word.lower(), {w.lower() for w in words}, n=1, cutoff=0.6)
        if close:
            return f"; did you mean {show(next(w for w in words if w.lower() == close[0]))}?"
    return f"; one of {', '.join(words)}" if 0 < len(words) <= 24 else ""
