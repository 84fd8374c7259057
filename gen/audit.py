"""Looks into artifacts after the compile: a compiler's exit status of 0 proves nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from . import elf, metallib
from .provenance import normalise_mode
from .target import Target


def problem(path: Path, target: Target, symbols: Iterable[str]) -> str | None:
    """What is wrong with an artifact: None, or a phrase that follows its name. Its file mode is put right."""
    try:
        data = path.read_bytes()
        normalise_mode(path)
    except FileNotFoundError:
        return "was not made (its compiler reported success)"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    try:
        return _CHECKS[target.extension](data, target, frozenset(symbols))
    except elf.FileError as error:
        return str(error)


def _missing(found: Iterable[str], wanted: frozenset[str]) -> str | None:
    lacking = sorted(wanted - set(found))
    return (
        f"lacks the entry {', '.join(lacking[:3])}{' ...' if len(lacking) > 3 else ''}" if lacking else None
    )


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


_CHECKS = {"cubin": _cubin, "so": _shared_object, "metallib": _metal}
