"""A double of xcrun for hosts without one: it refuses what the real driver refuses, and its output cannot be
loaded.

It keeps a log of its calls (FAKE_XCRUN_LOG) and can be told to misbehave (FAKE_XCRUN_MODE):
no_toolchain: the Metal compiler is not installed; empty: a library with no function and exit status 0
(mistral.rs#2176); new_os: the library asks for an OS of its own choice. It tests our driver of the tool, not
whether Apple would accept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import sys
from pathlib import Path
from typing import NoReturn

STANDARD = re.compile(r"-std=(metal[34]\.\d|(macos|ios)-metal\d\.\d)")
HEADER = struct.Struct("<4sHHHBBHHQ8Q")
WITH_VALUE = ("-o", "-x", "-I", "-target")
MODE = os.environ.get("FAKE_XCRUN_MODE", "")


def die(message: str, status: int = 1) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(status)


def option(args: list[str], start: str, default: str = "") -> str:
    """The value of the option -start=value."""
    return next((arg[len(start) :] for arg in args if arg.startswith(start)), default)


def compile_source(args: list[str], source: Path, out: Path) -> None:
    """metal -c: text to a stand-in for AIR that remembers its kernels and the least OS."""
    standard = option(args, "-std=")
    if standard and not STANDARD.fullmatch(f"-std={standard}"):
        die(f"error: invalid value '{standard}' in '-std={standard}'")
    text = source.read_text()
    if planted := re.search(r"^#error (.*)$", text, re.M):
        die(f"{source}: error: {planted[1]}")
    air = {
        "kernels": re.findall(r"^kernel void (\w+)", text, re.M),
        "os": option(args, "-mmacosx-version-min=", "0.0"),
    }
    out.write_text("FAKEAIR " + json.dumps(air))


def tag(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<H", len(content)) + content


def library(kernels: list[str], os_version: tuple[int, int]) -> bytes:
    """A well-formed library whose bitcode says that it is none."""
    bitcode, groups = b"", b""
    for kernel in kernels:
        code = b"FAKE-NOT-AIR:" + kernel.encode()
        tags = (
            tag(b"NAME", kernel.encode() + b"\0")
            + tag(b"TYPE", b"\2")
            + tag(b"HASH", hashlib.sha256(code).digest())
        )
        tags += tag(b"OFFT", struct.pack("<3Q", 0, 0, len(bitcode))) + tag(
            b"VERS", struct.pack("<4H", 0, 0, 0, 0)
        )
        tags += tag(b"MDSZ", struct.pack("<Q", len(code))) + b"ENDT"
        groups += struct.pack("<I", len(tags) + 4) + tags
        bitcode += code
    functions = struct.pack("<I", len(kernels)) + groups
    at = HEADER.size
    code_at = at + len(functions) + 4
    size = code_at + len(bitcode)
    offsets = (at, len(functions), code_at, 0, code_at, 0, code_at, len(bitcode))
    header = HEADER.pack(b"MTLB", 0x8001, 2, 8, 0, 0x81, *os_version, size, *offsets)
    return header + functions + b"ENDT" + bitcode


def link(inputs: list[Path], out: Path) -> None:
    """metallib: the least OS is that of the first input (mlx-node#135)."""
    airs = []
    for path in inputs:
        text = path.read_text()
        if not text.startswith("FAKEAIR "):
            die(f"error: {path}: not an AIR file")
        airs.append(json.loads(text.removeprefix("FAKEAIR ")))
    kernels = [] if MODE == "empty" else [kernel for air in airs for kernel in air["kernels"]]
    major, minor = (99, 0) if MODE == "new_os" else map(int, airs[0]["os"].split(".")[:2])
    out.write_bytes(library(kernels, (major, minor)))


def main(argv: list[str]) -> None:
    if log := os.environ.get("FAKE_XCRUN_LOG"):
        with Path(log).open("a") as file:
            file.write(json.dumps(argv) + "\n")
    if argv[:1] != ["-sdk"] or len(argv) < 3:
        die(f"xcrun: error: unknown option {argv[:1]}", 64)
    if argv[1] != "macosx":
        die(f'xcrun: error: SDK "{argv[1]}" cannot be located')
    tool, args = argv[2], argv[3:]
    if MODE == "no_toolchain":
        die(
            f"error: cannot execute tool '{tool}' due to missing Metal Toolchain; "
            "use: xcodebuild -downloadComponent MetalToolchain"
        )
    if "--version" in args:
        print("FAKE metal version 0.0 (not Apple)")
        return
    if "-o" not in args:
        die("error: no -o")
    out = Path(args[args.index("-o") + 1])
    inputs = [
        Path(a)
        for i, a in enumerate(args)
        if not a.startswith("-") and (i == 0 or args[i - 1] not in WITH_VALUE)
    ]
    for path in inputs:
        if not path.exists():
            die(f"error: no such file or directory: '{path}'")
    if tool == "metal" and "-c" in args:
        compile_source(args, inputs[0], out)
    elif tool in ("metal", "metallib"):
        link(inputs, out)
    else:
        die(f'xcrun: error: unable to find utility "{tool}"', 72)


if __name__ == "__main__":
    main(sys.argv[1:])
