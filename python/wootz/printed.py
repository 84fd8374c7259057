"""The output of programs (kernels that one thread runs and that print) as text.

y is u32 [words]: word 0 is how many words of records follow. A record is a word whose low four bits are its
kind: text (the other bits: its bytes, which follow in words), u32, i32, f32, bool (one word), u64 (two, the
low one first), and a fault, which is a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import WootzError

__all__ = ["ProgramFault", "printed"]

_TEXT, _U32, _I32, _U64, _F32, _BOOL, _FAULT = range(7)


class ProgramFault(WootzError):
    """A program that did what has no meaning; `text` is what it had printed."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(f"the program ended with a fault: {why}")
        self.text = text


def printed(y: Any) -> str:
    """What a program printed. y: its output, u32 [words], as a NumPy array or what becomes one.

    Floats are the shortest decimals that name the f32. Raises ProgramFault, with the text before it, and
    WootzError where y was too small for what was printed, or holds no output of a program.
    """
    words = np.ascontiguousarray(np.asarray(y)).view(np.uint32).reshape(-1)
    used = int(words[0]) if words.size else -1
    if used < 0 or (used and words.size < 2):
        raise WootzError(f"y has {words.size} words; the output of a program has more")
    if used + 1 > words.size:
        raise WootzError(
            f"the program printed {used + 1} words, y has {words.size}: call it with capacity={used + 1}"
        )
    parts: list[str] = []
    for kind, text in _records(words[1 : used + 1]):
        if kind == _FAULT:
            raise ProgramFault(text, "".join(parts))
        parts.append(text)
    return "".join(parts)


def _records(words: NDArray[np.uint32]) -> Iterator[tuple[int, str]]:
    at = 0
    while at < words.size:
        head = int(words[at])
        kind, size = head & 15, head >> 4
        count = {_TEXT: -(-size // 4), _FAULT: -(-size // 4), _U64: 2}.get(kind, 1)
        held = words[at + 1 : at + 1 + count]
        if kind > _FAULT or held.size < count:
            raise WootzError(f"word {at + 1} of y begins no record of a program's output")
        yield kind, _spelt(kind, held, size)
        at += 1 + count


def _spelt(kind: int, held: NDArray[np.uint32], size: int) -> str:
    if kind in (_TEXT, _FAULT):
        return held.astype("<u4").tobytes()[:size].decode(errors="replace")
    if kind == _BOOL:
        return "true" if held[0] else "false"
    if kind == _F32:
        return _decimal(held.view(np.float32)[0])
    if kind == _U64:
        return str(int(held[0]) | int(held[1]) << 32)
    return str(int(held.view(np.int32)[0]) if kind == _I32 else int(held[0]))


def _decimal(number: np.float32) -> str:
    return "nan" if np.isnan(number) else str(number)
