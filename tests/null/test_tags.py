"""The platform tag of a wheel, from files made here that ask for just so much."""

from __future__ import annotations

import struct

import pytest

from gen.build import elf
from gen.wheel import tags


def shared_object(needed: list[str], versions: dict[str, list[str]], machine: int = 62) -> bytes:
    """An ELF file of what is needed, and nothing else."""
    strings = b"\0"

    def put(text: str) -> int:
        nonlocal strings
        strings += text.encode() + b"\0"
        return len(strings) - len(text) - 1

    dynamic = b"".join(struct.pack("<QQ", 1, put(name)) for name in needed)
    record = b""
    for number, (library, asked) in enumerate(versions.items()):
        end = 0 if number + 1 == len(versions) else 16 + 16 * len(asked)
        record += struct.pack("<HHIII", 1, len(asked), put(library), 16, end)
        for i, version in enumerate(asked):
            record += struct.pack("<IHHII", 0, 0, 2, put(version), 16 if i + 1 < len(asked) else 0)
    contents = [(0, 0, b""), (3, 0, strings), (6, 1, dynamic), (0x6FFFFFFE, 1, record)]
    body, rows = b"", b""
    for kind, link, data in contents:
        rows += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, 64 + len(body), len(data), link, 0, 1, 0)
        body += data
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 3, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 4, 1
    )
    return header + body + rows


def macho(version: tuple[int, int], cpu: int = 0x0100000C, command: int = 0x32) -> bytes:
    packed = version[0] << 16 | version[1] << 8
    load = struct.pack("<6I", 0x32, 24, 1, packed, packed, 0)
    if command == 0x24:
        load = struct.pack("<4I", 0x24, 16, packed, packed)
    return struct.pack("<8I", 0xFEEDFACF, cpu, 0, 6, 1, len(load), 0, 0) + load


def linux(*versions: str, needed: str = "libc.so.6", machine: int = 62) -> bytes:
    return shared_object([needed], {"libc.so.6": list(versions)} if versions else {}, machine)


@pytest.mark.parametrize(
    ("objects", "tag"),
    [
        ([], "any"),
        ([shared_object([], {})], "manylinux_2_17_x86_64"),
        ([linux("GLIBC_2.2.5", "GLIBC_2.14")], "manylinux_2_17_x86_64"),
        ([linux("GLIBC_2.2.5"), linux("GLIBC_2.27", "GLIBC_2.4")], "manylinux_2_28_x86_64"),
        ([linux("GLIBC_2.29", machine=183)], "manylinux_2_31_aarch64"),
        ([shared_object(["libm.so.6"], {"libm.so.6": ["GLIBC_2.29"], "libc.so.6": ["GLIBC_2.35"]})],
         "manylinux_2_35_x86_64"),
        ([shared_object(["libstdc++.so.6"], {"libstdc++.so.6": ["GLIBCXX_3.4.29", "CXXABI_1.3"]})],
         "manylinux_2_34_x86_64"),
        ([macho((12, 0))], "macosx_12_0_arm64"),
        ([macho((11, 0)), macho((13, 3))], "macosx_14_0_arm64"),
        ([macho((10, 15), 0x01000007, 0x24)], "macosx_10_15_x86_64"),
    ],
)  # fmt: skip
def test_tags(objects: list[bytes], tag: str) -> None:
    assert tags.platform({f"{i}.so": data for i, data in enumerate(objects)}) == tags.Platform(tag)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (linux(needed="libcuda.so.1"), "no manylinux system promises libcuda.so.1"),
        (linux("GLIBC_2.99"), "no manylinux system promises GLIBC_2.99"),
        (linux("GLIBC_2.4", "GLIBC_PRIVATE"), "no manylinux system promises GLIBC_PRIVATE"),
    ],
)
def test_what_no_tag_promises(data: bytes, why: str) -> None:
    found = tags.platform({"a.so": data})
    assert found.tag == "linux_x86_64"
    assert found.why.startswith(why)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({"a.so": linux(), "b.so": linux(machine=183)}, "a.so and b.so are for different machines"),
        ({"a.so": linux(machine=3)}, "a.so: is for machine 3"),
        ({"a.so": linux("GLIBC_2.4")[:-90]}, "a.so: "),
        ({"a.so": macho((12, 0))[:40]}, "a.so: "),
        ({"a.so": macho((12, 0), 7)}, "a.so: does not say which macOS"),
    ],
)
def test_objects_without_a_tag(objects: dict[str, bytes], message: str) -> None:
    with pytest.raises(elf.FileError, match=message):
        tags.platform(objects)
