"""The gate of matrix kernels: a compiler's status of 0 does not mean that a cubin has matrix instructions,
nor that its kernels keep their data in registers.

An entry names rows of a table, joined by "+"; each row's pattern has to be among the entry's instructions. No
gated entry may have a stack frame, which is where spills go, but one that declares how large and why: any
other is left out of the index, where the cell has another variant for what it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..toolchain.tool import Tool, run_tool
from ..variants import spare
from . import elf

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


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a cubin: None, or a phrase that follows its name. left_out: the reasons why entries
    may not be used, by symbol."""

    problem: str | None = None
    left_out: dict[str, str] = field(default_factory=dict)


def judge(path: Path, records: Sequence[spare.Record], disassembler: Tool) -> Verdict:
    """Look at the gated entries of a cubin. records: the unit's, of all its cells."""
    gated = [record["entry"] for record in records if record["entry"].get("gate")]
    if not gated:
        return Verdict()
    data = path.read_bytes()
    for text in REFUSED:
        if text in data:
            return Verdict(
                f"holds the text {text.decode()!r}: built for an architecture without its instructions"
            )
    try:
        left_out = _frames(elf.frames(elf.parse(data)), gated)
    except elf.FileError as error:
        return Verdict(str(error))
    if left_out and (why := spare.problem(records, left_out)):
        return Verdict(f"has {'; '.join(f'{symbol}: {text}' for symbol, text in left_out.items())}; {why}")
    code, listing = run_tool([*disassembler.command, "-sass", str(path)])
    if code:
        name = disassembler.command[0]
        return Verdict(f"cannot be disassembled ({name}: status {code}): {listing.strip()[:200]}")
    kept = [entry for entry in gated if entry["symbol"] not in left_out]
    return Verdict(_instructions(functions(listing), kept), left_out)


def functions(listing: str) -> dict[str, str]:
    """The instructions of each function in a disassembler's output."""
    parts = _FUNCTION.split(listing)
    return dict(zip(parts[1::2], parts[2::2]))


def _frames(frames: Mapping[str, int], gated: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The entries that have a larger stack frame than they declare. FileError where a cubin does not tell."""
    found = {}
    for entry in gated:
        symbol, allowed = entry["symbol"], entry.get("spills", {}).get("bytes", 0)
        if symbol not in frames:
            raise elf.FileError(f"says nothing about the stack frame of {symbol}")
        if frames[symbol] > allowed:
            size = f"a stack frame of {frames[symbol]} bytes a thread (spills, or arrays)"
            found[symbol] = f"{size}, {allowed} declared"
    return found


def _instructions(code: Mapping[str, str], gated: Sequence[Mapping[str, Any]]) -> str | None:
    for entry in gated:
        for row in rows(entry["gate"]):
            if not re.search(GATES[row], code.get(entry["symbol"], "")):
                return f"{entry['symbol']} has no instruction {GATES[row]} (gate {row})"
    return None
