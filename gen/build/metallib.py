"""Reads a Metal library: least OS, and the functions with their hashes.

Apple documents no layout; this one was read off libraries that public packages ship.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .elf import FileError

_HEADER = struct.Struct("<4sHHHBBHHQ8Q")
_END = b"ENDT"
_KINDS = {
    0: "vertex",
    1: "fragment",
    2: "kernel",
    3: "unqualified",
    4: "visible",
    5: "extern",
    6: "intersection",
}
FAKE = b"FAKE-NOT-AIR"
"""How the bitcode of the test double of xcrun starts. No such library may be released."""


@dataclass(frozen=True)
class Function:
    """One function of a library. `intact`: its bitcode has the hash that the library states."""

    name: str
    kind: str
    intact: bool
    fake: bool


@dataclass(frozen=True)
class Library:
    """A parsed library. `os_version`: the least OS that loads it, (major, minor)."""

    format: tuple[int, int]
    os_version: tuple[int, int]
    functions: tuple[Function, ...]

    @property
    def fake(self) -> bool:
        """Whether a test double made it."""
        return any(function.fake for function in self.functions)


def parse(data: bytes) -> Library:
    """Parse a library. FileError where it is none, or is damaged."""
    if data[:4] != b"MTLB":
        raise FileError("is no Metal library")
    try:
        header = _HEADER.unpack_from(data)
        _, _, major, minor, _, _, os_major, os_minor, size, functions, _, _, _, _, _, bitcode, _ = header
        if size != len(data):
            raise FileError(f"its header says {size} bytes, the file has {len(data)}")
        found = tuple(_function(data, tags, bitcode) for tags in _tags(data, functions))
    except (struct.error, KeyError, IndexError) as error:
        raise FileError(f"is damaged: {error}") from error
    return Library((major, minor), (os_major, os_minor), found)


def _tags(data: bytes, offset: int) -> Iterator[dict[bytes, bytes]]:
    """The tag groups of the function list at `offset`."""
    (count,) = struct.unpack_from("<I", data, offset)
    offset += 4
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, offset)
        at, end, tags = offset + 4, offset + length, {}
        while (tag := data[at : at + 4]) != _END:
            (size,) = struct.unpack_from("<H", data, at + 4)
            tags[tag] = data[at + 6 : at + 6 + size]
            at += 6 + size
            if at > min(end, len(data)):
                raise FileError("a function's tags run past its group")
        yield tags
        offset = end


def _function(data: bytes, tags: dict[bytes, bytes], bitcode: int) -> Function:
    offset = bitcode + struct.unpack("<3Q", tags[b"OFFT"])[2]
    (size,) = struct.unpack("<Q", tags[b"MDSZ"])
    if offset + size > len(data):
        raise FileError(f"the bitcode of a function ends at byte {offset + size}, the file has {len(data)}")
    code = data[offset : offset + size]
    name = tags[b"NAME"].rstrip(b"\0").decode("utf-8", "replace")
    kind = _KINDS.get(tags[b"TYPE"][0], "unknown")
    return Function(name, kind, hashlib.sha256(code).digest() == tags[b"HASH"], code.startswith(FAKE))
