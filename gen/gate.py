"""The gate of matrix kernels: a compiler's status of 0 does not mean that a cubin has matrix instructions,
nor that its kernels keep their data in registers.

An entry names rows of a table, joined by "+"; each row's pattern has to be among the entry's instructions. No
gated entry may have a stack frame, which is where spills go, but one that declares how large and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import elf
from .tool import Tool, run_tool

GATES = {
    # warp-level
    "hmma": r"\bHMMA\.16816",
    "imma": r"\bIMMA\.16832",
    "qmma": r"\bQMMA\.16832",
    "qmma_or_hmma": r"\b(?:QMMA\.16832|HMMA\.16816)",  # 8-bit floats: some architectures convert them
    "omma_sf": r"\bOMMA\.SF",
    "qmma_sf": r"\bQMMA\.SF",
    # warpgroup-level
    "hgmma": r"\bHGMMA\.64",
    "igmma": r"\bIGMMA\.64",
    "qgmma": r"\bQGMMA\.64",
    # of the tensor memory
    "utchmma": r"\bUTCHMMA",
    "utcimma": r"\bUTCIMMA",
    "utcqmma": r"\bUTCQMMA",
    "utcomma": r"\bUTCOMMA",
    "utccp": r"\bUTCCP",
    # what feeds them
    "ldgsts": r"\bLDGSTS",
    "ldsm": r"\bLDSM",
    "utmaldg": r"\bUTMALDG",
    "acqbulk": r"\bACQBULK",
}
REFUSED = (b"ERROR : Arch conditional MMA", b"Attempting to use")
"""What kernels print that were built for an architecture without their instructions."""

_FUNCTION = re.compile(r"^\s*Function : (\S+)\s*$", re.M)


def rows(gate: str) -> tuple[str, ...]:
    """The rows that a gate names. ValueError for a name that is not in the table."""
    names = tuple(gate.split("+")) if gate else ()
    for name in names:
        if name not in GATES:
            raise ValueError(f"gate {gate!r}: no row {name!r} in the table; known: {', '.join(GATES)}")
    return names


def problem(path: Path, entries: Iterable[Mapping[str, Any]], disassembler: Tool) -> str | None:
    """What is wrong with the gated entries of a cubin: None, or a phrase that follows its name."""
    gated = [entry for entry in entries if entry.get("gate")]
    if not gated:
        return None
    data = path.read_bytes()
    for text in REFUSED:
        if text in data:
            return f"holds the text {text.decode()!r}: built for an architecture without its instructions"
    try:
        wrong = _frame(elf.frames(elf.parse(data)), gated)
    except elf.FileError as error:
        return str(error)
    if wrong:
        return wrong
    code, listing = run_tool([*disassembler.command, "-sass", str(path)])
    if code:
        return f"cannot be disassembled ({disassembler.command[0]}: status {code}): {listing.strip()[:200]}"
    return _instructions(functions(listing), gated)


def functions(listing: str) -> dict[str, str]:
    """The instructions of each function in a disassembler's output."""
    parts = _FUNCTION.split(listing)
    return dict(zip(parts[1::2], parts[2::2]))


def _frame(frames: Mapping[str, int], gated: Sequence[Mapping[str, Any]]) -> str | None:
    wrong = []
    for entry in gated:
        symbol, allowed = entry["symbol"], entry.get("spills", {}).get("bytes", 0)
        if symbol not in frames:
            return f"says nothing about the stack frame of {symbol}"
        if frames[symbol] > allowed:
            wrong.append(f"{symbol} {frames[symbol]} ({allowed} declared)")
    return f"has stack frames (spills, or arrays), in bytes a thread: {', '.join(wrong)}" if wrong else None


def _instructions(code: Mapping[str, str], gated: Sequence[Mapping[str, Any]]) -> str | None:
    for entry in gated:
        for row in rows(entry["gate"]):
            if not re.search(GATES[row], code.get(entry["symbol"], "")):
                return f"{entry['symbol']} has no instruction {GATES[row]} (gate {row})"
    return None
