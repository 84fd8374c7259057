"""Looks into artifacts after the compile: a compiler's exit status of 0 proves nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..emit.provenance import normalise_mode, rewrite
from ..manifest.target import Target
from . import elf, index, metallib, state

_PATIENCE = 60  # seconds that a stub may take to answer


def problem(path: Path, target: Target, symbols: Iterable[str]) -> str | None:
    """What is wrong with an artifact: None, or a phrase that follows its name. Its file mode is put right,
    and its bytes are made those of every other folder."""
    return _look(path, _CHECKS[target.compiled], target, symbols)


def recorded(path: Path, origin: str, left_out: dict[str, str]) -> state.ArtifactRecord:
    """What the build remembers of a good artifact. origin: a sha256 of what it was made from."""
    size, time = state.stat_of(path) or (0, 0)
    return state.ArtifactRecord(size, time, index.sha256(path.read_bytes()), origin, left_out)


def _look(path: Path, check: Check, target: Target, symbols: Iterable[str]) -> str | None:
    try:
        data = path.read_bytes()
        if check is _cubin and (same := elf.without_path(data)) != data:
            rewrite(path, data := same)
        normalise_mode(path)
    except FileNotFoundError:
        return "was not made (its compiler reported success)"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    try:
        return check(data, target, frozenset(symbols))
    except elf.FileError as error:
        return str(error)


def stub_problem(
    path: Path, cubin: Path, target: Target, entries: Iterable[Mapping[str, Any]], source: str
) -> str | None:
    """What is wrong with a host stub, its cubin being at hand: whether it has its functions, belongs to the
    source (a sha256), and fills as many bytes as each kernel takes."""
    mine = {entry["stub"]: entry for entry in entries if entry.get("stub")}
    wanted = [f"{symbol}_{verb}" for symbol in mine for verb in ("query", "fill")]
    wrong = _look(path, _shared_object, target, [*wanted, "wootz_stub_encode", "wootz_stub_build"])
    if wrong:
        return wrong
    answer = _ask(path, mine)
    if isinstance(answer, str):
        return answer
    if answer["build"] != source:
        return f"was made with another source than its cubin ({answer['build'][:12]}, wanted {source[:12]})"
    try:
        file = elf.parse(cubin.read_bytes())
        taken = {symbol: elf.parameters(file, entry["symbol"]) for symbol, entry in mine.items()}
    except elf.FileError as error:
        return f"cannot be compared with {cubin.name}, which {error}"
    for symbol, size in answer["sizes"].items():
        if size is None:
            return f"{symbol}_query takes none of the sample problems"
        if taken[symbol] != [size]:
            return (
                f"fills {size} bytes for {symbol}; its kernel takes {' and '.join(map(str, taken[symbol]))}"
            )
    return None


_BYTES = {"ptr": 8, "u64": 8, "u32": 4, "f32": 4}


def signature_problem(path: Path, entries: Iterable[Mapping[str, Any]]) -> str | None:
    """What is wrong with the parameters of a cubin's kernels: a declared signature is a promise that no
    compiler checks."""
    try:
        file = elf.parse(path.read_bytes())
        for entry in entries:
            wanted = [_BYTES[kind] for _, kind, _ in entry["args"]]
            taken = elf.parameters(file, entry["symbol"]) if wanted else wanted
            if taken != wanted:
                return (
                    f"{entry['symbol']} {_difference(taken, wanted, [name for name, _, _ in entry['args']])}"
                )
    except elf.FileError as error:
        return str(error)
    return None


def _difference(taken: Sequence[int], wanted: Sequence[int], names: Sequence[str]) -> str:
    if len(taken) != len(wanted):
        return f"takes {len(taken)} parameters; args declares {len(wanted)}: {', '.join(names)}"
    place = next(i for i, (a, b) in enumerate(zip(taken, wanted)) if a != b)
    return (
        f"takes {taken[place]} bytes as parameter {place + 1}; args declares {names[place]} there, of "
        f"{wanted[place]} bytes"
    )


def _ask(path: Path, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | str:
    """What gen/build/probe.py says about a stub, or what went wrong."""
    kinds = (("in", "out"), ("shape", "pitch"), ("scalar",))
    counts = {
        symbol: [sum(arg[2] in kind for arg in entry["args"]) for kind in kinds]
        for symbol, entry in entries.items()
    }
    command = [sys.executable, "-I", str(Path(__file__).with_name("probe.py"))]
    asked = json.dumps({"stub": str(path.resolve()), "entries": counts})
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"did not answer within {_PATIENCE} seconds"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return f"cannot be asked for its sizes (status {done.returncode}): {last}"
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _missing(found: Iterable[str], wanted: frozenset[str]) -> str | None:
    found = set(found)
    lacking = sorted(wanted - found)
    if not lacking:
        return None
    names = f"{', '.join(lacking[:3])}{' ...' if len(lacking) > 3 else ''}"
    mangled = any(symbol in name for symbol in lacking for name in found)
    return f"lacks the entry {names}" + ('; there is one with a C++ name: say extern "C"' if mangled else "")


def _cubin(data: bytes, target: Target, symbols: frozenset[str]) -> str | None:
    file = elf.parse(data)
    if file.machine != elf.EM_CUDA:
        return f"is for ELF machine {file.machine}, not a GPU"
    arch = elf.cubin_arch(file)
    if arch is None:
        number = re.search(r"\d+", target.arch)
        if target.suffix or number is None or elf.cubin_number(file) != int(number[0]):
            return f"does not say it was built for {target.arch} (header: {elf.cubin_number(file)})"
    elif arch != target.arch:
        return f"was built for {arch}, wanted {target.arch}"
    return _missing(elf.functions(file, dynamic=False), symbols)


def _shared_object(data: bytes, target: Target, symbols: frozenset[str]) -> str | None:
    if data[:4] == b"\xcf\xfa\xed\xfe":  # Mach-O: exported names are stored as _name
        return _missing((s for s in symbols if f"_{s}\0".encode() in data), symbols)
    return _missing(elf.functions(elf.parse(data), dynamic=True), symbols)


def _metal(data: bytes, target: Target, symbols: frozenset[str]) -> str | None:
    library = metallib.parse(data)
    wanted = tuple(int(part) for part in target.min_os.split(".")[:2]) if target.min_os else ()
    if wanted and library.os_version[: len(wanted)] > wanted:
        return f"needs OS {'.'.join(map(str, library.os_version))}, wanted {target.min_os} or older"
    if broken := [f.name for f in library.functions if not f.intact]:
        return f"holds a function that does not match its hash: {broken[0]}"
    return _missing((f.name for f in library.functions if f.kind == "kernel"), symbols)


Check = Callable[[bytes, Target, "frozenset[str]"], "str | None"]
_CHECKS: dict[str, Check] = {"cubin": _cubin, "so": _shared_object, "metallib": _metal}
