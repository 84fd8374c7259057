"""A double of fatbinary: the same options, and a file with the head of a fat binary and the cubin behind it.

FAKE_FATBINARY_MODE makes it misbehave: old (it cannot compress), fails, nothing (no output, status 0), half
(of its output), other (no fat binary), slow (so that a test can interrupt it; it writes a part of its output
first). FAKE_FATBINARY_VERSION says what it is; FAKE_FATBINARY_LOG names a file that gets a line a call.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path


def main(args: list[str]) -> int:
    mode = os.environ.get("FAKE_FATBINARY_MODE", "")
    if "--version" in args:
        print(f"Cuda compilation tools, V{os.environ.get('FAKE_FATBINARY_VERSION', '13.0.88')}")
        return 0
    if "--help" in args:
        print(
            "--create <file name>" if mode == "old" else "--compress-mode [default,size,speed,balance,none]"
        )
        return 0
    given = dict(arg.removeprefix("--").split("=", 1) for arg in args)
    image = dict(part.split("=") for part in given["image3"].split(","))
    if log := os.environ.get("FAKE_FATBINARY_LOG"):
        with Path(log).open("a") as file:
            file.write(f"{image['file']} {image['sm']} {given['compress-mode']}\n")
    if mode == "fails":
        print("fatbinary fatal   : planted", file=sys.stderr)
        return 1
    cubin, out = Path(image["file"]).read_bytes(), Path(given["create"])
    data = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(cubin)) + cubin
    if mode != "nothing":
        whole = {"half": data[: len(data) // 2], "slow": data[:20], "other": cubin}
        out.write_bytes(whole.get(mode, data))
    if mode == "slow":
        time.sleep(60)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
