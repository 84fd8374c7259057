"""Reads just enough of an ELF file to audit it: exported functions, the machine, and a cubin's architecture.

Every offset in the file is checked before it is followed: a truncated or garbled file raises `FileError`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

EM_CUDA = 190
_DYNSYM, _SYMTAB, _NOTE = 11, 2, 7
_HEADER, _SECTION, _SYMBOL = (
    struct.Struct("<16sHHIQQQIHHHHHH"),
    struct.Struct("<IIQQQQIIQQ"),
    struct.Struct("<IBBHQQ"),
)
_NOTE_HEADER = struct.Struct("<III")
_VERNEED, _NEED, _AUXILIARY = 0x6FFFFFFE, struct.Struct("<HHIII"), struct.Struct("<IHHII")
_FUNC, _GLOBAL, _WEAK = 2, 1, 2
_HIDDEN = (1, 2)  # STV_INTERNAL, STV_HIDDEN
_NEEDED, _STRTAB = 1, 5


class FileError(ValueError):
    """The file is not what its name says, or is damaged."""


@dataclass(frozen=True)
class Section:
    """One section; `data` is empty for sections that occupy no bytes in the file."""

    name: str
    type: int
    link: int
    data: bytes


@dataclass(frozen=True)
class Elf:
    """A parsed 64-bit little-endian file."""

    machine: int
    abi_version: int
    flags: int
    sections: tuple[Section, ...]

    def of_type(self, kind: int) -> list[Section]:
        """The sections of one type."""
        return [s for s in self.sections if s.type == kind]


def _string(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if not 0 <= offset < len(table) or end < 0:
        raise FileError(f"string offset {offset} is outside its table of {len(table)} bytes")
    return table[offset:end].decode("utf-8", "replace")


def parse(data: bytes) -> Elf:
    """Parse a file. FileError for anything but a whole 64-bit little-endian ELF with sections."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise FileError("is no 64-bit little-endian ELF file")
    try:
        ident, _, machine, _, _, _, table, flags, _, _, _, size, count, names = _HEADER.unpack_from(data)
        if size != _SECTION.size or not 0 < count <= 1 << 16 or table + count * size > len(data):
            raise FileError(f"its section table ends at byte {table + count * size} of {len(data)}")
        rows = [_SECTION.unpack_from(data, table + i * size) for i in range(count)]
    except struct.error as error:
        raise FileError(f"is truncated: {error}") from error

    def content(row: tuple[int, ...]) -> bytes:
        kind, offset, length = row[1], row[4], row[5]
        if kind in (0, 8):  # SHT_NULL, SHT_NOBITS
            return b""
        if offset + length > len(data):
            raise FileError(f"a section ends at byte {offset + length}, the file has {len(data)}")
        return data[offset : offset + length]

    if names >= count:
        raise FileError(f"section {names} names the others; there are {count}")
    strings = content(rows[names])
    sections = tuple(Section(_string(strings, row[0]), row[1], row[6], content(row)) for row in rows)
    return Elf(machine, ident[8], flags, sections)


def functions(elf: Elf, dynamic: bool) -> set[str]:
    """Names of the functions that are defined and visible: in .dynsym for a shared object, in .symtab for a
    cubin."""
    found = set()
    for section in elf.of_type(_DYNSYM if dynamic else _SYMTAB):
        if section.link >= len(elf.sections):
            raise FileError(f"symbol table {section.name} names string table {section.link}; there is none")
        strings = elf.sections[section.link].data
        for offset in range(0, len(section.data) - _SYMBOL.size + 1, _SYMBOL.size):
            text, info, other, index, _, _ = _SYMBOL.unpack_from(section.data, offset)
            visible = info >> 4 in (_GLOBAL, _WEAK) and other & 3 not in _HIDDEN
            if info & 15 == _FUNC and visible and index != 0:
                found.add(_string(strings, text))
    return found


def needed(elf: Elf) -> list[str]:
    """The libraries that a shared object asks for."""
    found = []
    for section in elf.of_type(6):  # SHT_DYNAMIC
        strings = elf.sections[section.link].data if section.link < len(elf.sections) else b""
        for offset in range(0, len(section.data) - 15, 16):
            tag, value = struct.unpack_from("<QQ", section.data, offset)
            found += [_string(strings, value)] if tag == _NEEDED else []
    return found


def versions(elf: Elf) -> Iterator[tuple[str, str]]:
    """(library, symbol version) that a shared object asks for, as ("libc.so.6", "GLIBC_2.17")."""
    for section in elf.of_type(_VERNEED):
        if section.link >= len(elf.sections):
            raise FileError(f"{section.name} names string table {section.link}; there is none")
        strings, data = elf.sections[section.link].data, section.data
        try:
            for file, first, count in _libraries(data):
                for _, _, _, version, _ in _chain(_AUXILIARY, data, first, count):
                    yield _string(strings, file), _string(strings, version)
        except struct.error as error:
            raise FileError(f"a record of {section.name} runs past its end") from error


def _libraries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(name, place of the first version, number of versions) of each library."""
    at = 0
    while data:
        _, count, file, first, step = _NEED.unpack_from(data, at)
        yield file, at + first, count
        if not step:
            return
        at += step


def _chain(record: struct.Struct, data: bytes, at: int, count: int) -> Iterator[tuple[int, ...]]:
    """Records of which each says, last, how far the next one is."""
    for _ in range(count):
        found = record.unpack_from(data, at)
        yield found
        at += found[-1]


def notes(elf: Elf) -> Iterator[tuple[str, bytes]]:
    """(owner, content) of each note."""
    for section in elf.of_type(_NOTE):
        offset = 0
        while offset + _NOTE_HEADER.size <= len(section.data):
            owner, size, _ = _NOTE_HEADER.unpack_from(section.data, offset)
            start = offset + _NOTE_HEADER.size
            body = start + (owner + 3) // 4 * 4
            if body + size > len(section.data):
                raise FileError(f"a note of {section.name} runs past its end")
            yield (
                section.data[start : start + owner].rstrip(b"\0").decode("utf-8", "replace"),
                section.data[body : body + size],
            )
            offset = body + (size + 3) // 4 * 4


def cubin_arch(elf: Elf) -> str | None:
    """The -arch that ptxas noted in a cubin, suffix included; None in files of compilers that leave no such
    note."""
    for _, content in notes(elf):
        found = re.search(rb"-arch[ =]+([A-Za-z0-9_]+)", content)
        if found:
            return found[1].decode()
    return None


def cubin_number(elf: Elf) -> int:
    """The architecture's number (90 for compute capability 9.0) from the header flags. The field moved in ABI
    8."""
    return elf.flags >> 8 & 0xFFFF if elf.abi_version >= 8 else elf.flags & 0xFF


_OF_A_PATH = re.compile(rb"(_INTERNAL_|_GLOBAL__N__)[0-9a-f]{8}(?=_[0-9]+_)")


def without_path(data: bytes) -> bytes:
    """A cubin without what its folder did to it: names of internal variables hold a hash of the source's
    path."""
    return _OF_A_PATH.sub(rb"\g<1>00000000", data)


# What a cubin says about its kernels: records of format, attribute and 16 bits; those of format 4 have a
# value of so many bytes behind them.

_ATTRIBUTE = struct.Struct("<BBH")
_SIZED, _FRAME_SIZE, _PARAMETER = 4, 0x11, 0x17


def _attributes(section: Section) -> Iterator[tuple[int, bytes]]:
    """(attribute, value) of each record that has a value behind it."""
    at, data = 0, section.data
    while at + _ATTRIBUTE.size <= len(data):
        form, attribute, size = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        if form == _SIZED:
            if at + size > len(data):
                raise FileError(f"a record of {section.name} runs past its end")
            yield attribute, data[at : at + size]
            at += size


def parameters(elf: Elf, symbol: str) -> list[int]:
    """The sizes in bytes of a kernel's parameters, in order. FileError where a cubin does not tell."""
    found = {}
    for section in elf.sections:
        if section.name == f".nv.info.{symbol}":
            for attribute, value in _attributes(section):
                if attribute == _PARAMETER and len(value) == 12:
                    _, place, packed = struct.unpack("<III", value)
                    found[place & 0xFFFF] = packed >> 18
    if not found:
        raise FileError(f"says nothing about the parameters of {symbol}")
    return [found[ordinal] for ordinal in sorted(found)]


def frames(elf: Elf) -> dict[str, int]:
    """The stack frame of each function of a cubin, in bytes a thread: what is in local memory, spills
    included."""
    names = _symbol_names(elf)
    found = {}
    for section in elf.sections:
        if section.name == ".nv.info":
            for attribute, value in _attributes(section):
                if attribute == _FRAME_SIZE and len(value) == 8:
                    index, size = struct.unpack("<II", value)
                    if index >= len(names):
                        raise FileError(f"a frame of symbol {index}; there are {len(names)}")
                    found[names[index]] = size
    return found


def _symbol_names(elf: Elf) -> list[str]:
    for section in elf.of_type(_SYMTAB):
        if section.link >= len(elf.sections):
            raise FileError(f"symbol table {section.name} names string table {section.link}; there is none")
        strings, rows = elf.sections[section.link].data, range(0, len(section.data), _SYMBOL.size)
        texts = (struct.unpack_from("<I", section.data, row)[0] for row in rows)
        return [_string(strings, text) if text else "" for text in texts]
    return []
