"""The platform tag of a wheel, from what its shared objects ask of a system: PEP 600 for ELF files, the
oldest macOS for Mach-O files, `any` where there are none.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..build import elf

ANY = "any"
MACHINES = {62: "x86_64", 183: "aarch64"}  # EM_X86_64, EM_AARCH64
LIBRARIES = re.compile(
    r"(libc|libm|libmvec|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux-[\w-]+)\.so\.\d"
)
NUMBERS = re.compile(r"\d+(\.\d+)*")
POLICIES: dict[tuple[int, int], dict[str, tuple[int, ...]]] = {
    (2, 17): {"GLIBC": (2, 17), "GLIBCXX": (3, 4, 19), "CXXABI": (1, 3, 7), "GCC": (4, 7, 0)},
    (2, 28): {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)},
    (2, 31): {"GLIBC": (2, 31), "GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12), "GCC": (7, 0, 0)},
    (2, 34): {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)},
    (2, 35): {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (11, 0, 0)},
    (2, 39): {"GLIBC": (2, 39), "GLIBCXX": (3, 4, 33), "CXXABI": (1, 3, 14), "GCC": (14, 0, 0)},
}
"""The newest symbol versions that manylinux_X_Y promises, oldest system first (pypa/auditwheel's policies, of
both machines the lower)."""

_MACHO, _ARM64, _X86_64 = 0xFEEDFACF, 0x0100000C, 0x01000007
_BUILD_VERSION, _MIN_MACOS = 0x32, 0x24  # LC_BUILD_VERSION, LC_VERSION_MIN_MACOSX
_MACHO_HEADER = struct.Struct("<8I")
_CPUS = {_ARM64: "arm64", _X86_64: "x86_64"}


@dataclass(frozen=True)
class Platform:
    """A tag, and why it promises no more: "" where it says all there is to say."""

    tag: str
    why: str = ""


def platform(objects: Mapping[str, bytes]) -> Platform:
    """Of shared objects by their names. elf.FileError names one that is neither ELF nor Mach-O, or is
    damaged, and two that are for different machines."""
    if not objects:
        return Platform(ANY)
    read = [(name, *_read(name, data)) for name, data in sorted(objects.items())]
    kinds = {(system, machine) for _, system, machine, _ in read}
    if len(kinds) > 1:
        raise elf.FileError(f"{read[0][0]} and {read[-1][0]} are for different machines: {sorted(kinds)}")
    ((system, machine),) = kinds
    asked = [each for _, _, _, found in read for each in found]
    return (_linux if system == "linux" else _macos)(machine, asked)


def _read(name: str, data: bytes) -> tuple[str, str, tuple[str, ...]]:
    """(system, machine, what is asked for): libraries and symbol versions, or the oldest system."""
    try:
        if data[:4] == _MACHO.to_bytes(4, "little"):
            return _read_macho(data)
        parsed = elf.parse(data)
        if parsed.machine not in MACHINES:
            raise elf.FileError(f"is for machine {parsed.machine}, which has no tag here")
        asked = (*elf.needed(parsed), *(version for _, version in elf.versions(parsed)))
        return "linux", MACHINES[parsed.machine], asked
    except (elf.FileError, struct.error) as error:
        raise elf.FileError(f"{name}: {error}") from error


def _linux(machine: str, asked: Iterable[str]) -> Platform:
    wanted = sorted(each for each in {*asked} if not LIBRARIES.fullmatch(each))
    lacking: list[str] = []
    for (major, minor), promised in POLICIES.items():
        lacking = [each for each in wanted if not _keeps(promised, each)]
        if not lacking:
            return Platform(f"manylinux_{major}_{minor}_{machine}")
    return Platform(f"linux_{machine}", f"no manylinux system promises {', '.join(lacking)}")


def _keeps(promised: Mapping[str, tuple[int, ...]], version: str) -> bool:
    kind, _, numbers = version.partition("_")
    return kind in promised and bool(NUMBERS.fullmatch(numbers)) and _numbers(numbers) <= promised[kind]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _read_macho(data: bytes) -> tuple[str, str, tuple[str, ...]]:
    _, cpu, _, _, count, _, _, _ = _MACHO_HEADER.unpack_from(data)
    at, found = _MACHO_HEADER.size, (0, 0)
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        if command in (_BUILD_VERSION, _MIN_MACOS):
            (packed,) = struct.unpack_from("<I", data, at + (12 if command == _BUILD_VERSION else 8))
            found = (packed >> 16, packed >> 8 & 0xFF)
        at += size
    if cpu not in _CPUS or not found[0]:
        raise elf.FileError("does not say which macOS and processor it is for")
    return "macos", _CPUS[cpu], (f"{found[0]}.{found[1]}",)


def _macos(machine: str, asked: Iterable[str]) -> Platform:
    """From macOS 11 on, tags know major versions only: a 14.2 that is needed is asked for as 15."""
    major, minor = max(map(_numbers, asked))
    if major >= 11:
        major, minor = major + bool(minor), 0
    return Platform(f"macosx_{major}_{minor}_{machine}")
