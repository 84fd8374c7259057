"""A double of nvcc: the same options, and a cubin that holds just what an audit looks at.

FAKE_NVCC_VERSION and FAKE_NVCC_CODES say what it is; FAKE_NVCC_MODE makes it misbehave: nothing (no output,
status 0), wrong_arch, no_entry, truncated, slow (so that a test can interrupt it; it writes half of its
output first), no_mma (no matrix instruction), frame (kernels with a stack frame; frame:REGEX for those whose
names match), params (parameters of another size than 64 bytes), wrong_suffix (what CUTLASS leaves where the
architecture lacks its suffix).
"""

from __future__ import annotations

import os
import re
import struct
import sys
import time
from pathlib import Path

SECTION, SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")


def strings(names: list[str]) -> tuple[bytes, dict[str, int]]:
    table, at = b"\0", {}
    for name in names:
        at[name] = len(table)
        table += name.encode() + b"\0"
    return table, at


def elf(machine: int, flags: int, abi: int, sections: list[tuple[str, int, int, bytes]]) -> bytes:
    """A 64-bit ELF file of (name, type, link, content); section 0 is empty and the last one holds the
    names."""
    sections = [("", 0, 0, b""), *sections, (".shstrtab", 3, 0, b"")]
    names, at = strings([section[0] for section in sections])
    sections[-1] = (".shstrtab", 3, 0, names)
    body, rows, offset = b"", b"", 64
    for name, kind, link, content in sections:
        rows += SECTION.pack(at[name], kind, 0, 0, offset + len(body), len(content), link, 0, 1, 0)
        body += content + b"\0" * (-len(content) % 8)
    ident = b"\x7fELF\x02\x01\x01\x29" + bytes([abi]) + bytes(7)
    count = len(sections)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 2, machine, 1, 0, 0, 64 + len(body), flags, 64, 0, 0, 64, count, count - 1
    )
    return head + body + rows


def symbols(names: list[str]) -> tuple[bytes, bytes]:
    """(symbol table, string table) of global functions, defined in section 1."""
    table, at = strings(names)
    return bytes(24) + b"".join(SYMBOL.pack(at[n], 0x12, 0, 1, 0, 8) for n in names), table


def kernel_facts(entries: list[str], frame: str, params: int) -> list[tuple[str, int, int, bytes]]:
    """Sections that say how large each entry's stack frame (48 bytes where its name matches) and its one
    parameter are."""
    frames = [48 if re.search(frame, entry) else 0 for entry in entries]
    sized = [struct.pack("<BBHII", 4, 0x11, 8, i + 1, size) for i, size in enumerate(frames)]
    taken = struct.pack("<BBHIII", 4, 0x17, 12, 0, 0, params << 18 | 0x1F000)
    return [(".nv.info", 0x70000000, 2, b"".join(sized)), *((f".nv.info.{e}", 1, 2, taken) for e in entries)]


def cubin(arch: str, entries: list[str], frame: str = "$^", params: int = 64, text: bytes = b"") -> bytes:
    """What ptxas leaves: entries, and a note with its command line. frame: a pattern of those that have one;
    text: a kernel's strings."""
    number = int("".join(filter(str.isdigit, arch)) or 0)
    content = f"ptxas -arch {arch} -m 64 \0".encode()
    note = struct.pack("<III", 12, len(content), 2000) + b"NVIDIA Corp\0" + content
    table, names = symbols(entries)
    parts = [(".note.nv.tkinfo", 7, 0, note), (".symtab", 2, 3, table), (".strtab", 3, 0, names)]
    parts += [*kernel_facts(entries, frame, params), (".nv.constant4", 1, 0, text)]
    return elf(190, 0x06000004 | number << 8, 8, parts)


def compile_file(args: list[str], mode: str) -> int:
    source = Path(next(a for a in args if a.endswith(".cu")))
    out, depfile = Path(args[args.index("-o") + 1]), Path(args[args.index("-MF") + 1])
    arch = next(a.split("=")[1] for a in args if a.startswith("-arch="))
    text = source.read_text()
    if planted := re.search(r"^#error (.*)$", text, re.M):
        out.write_bytes(b"half")
        print(f"{source}(2): error: #error directive: {planted[1]}", file=sys.stderr)
        return 2
    if mode == "nothing":
        return 0
    if mode == "slow":
        out.write_bytes(b"half")
        time.sleep(60)
    entries = re.findall(r"__global__ void (\w+)\(", text)
    refused = b"ERROR : Arch conditional MMA instruction used" if mode == "wrong_suffix" else b""
    data = cubin(
        "sm_52" if mode == "wrong_arch" else arch,
        entries[1:] if mode == "no_entry" else entries,
        (mode.partition(":")[2] or ".") if mode.startswith("frame") else "$^",
        80 if mode == "params" else 64,
        b"" if mode == "no_mma" else b"/*sass HMMA.16816.F32 */" + refused,
    )
    out.write_bytes(data[: len(data) // 2] if mode == "truncated" else data)
    depfile.write_text(f"{args[args.index('-MT') + 1]}: {source}\n")
    return 0


def main(args: list[str]) -> int:
    codes = os.environ.get("FAKE_NVCC_CODES", "sm_80 sm_90 sm_90a sm_100a sm_120a").split()
    if "--version" in args:
        version = os.environ.get("FAKE_NVCC_VERSION", "13.0.88")
        print(f"Cuda compilation tools, release {version.rsplit('.', 1)[0]}, V{version}")
        return 0
    if "--list-gpu-code" in args:
        print("\n".join(code for code in codes if not code.endswith("a")))
        return 0
    if "--dryrun" in args:
        return 0 if next(a.split("=")[1] for a in args if a.startswith("-arch=")) in codes else 1
    if log := os.environ.get("FAKE_NVCC_LOG"):
        with Path(log).open("a") as file:
            file.write(" ".join(args) + "\n")
    return compile_file(args, os.environ.get("FAKE_NVCC_MODE", ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
