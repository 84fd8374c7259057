"""A double of cuobjdump: lists the entries of a cubin of the double of nvcc, each with the instructions that
the double wrote into it."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main(args: list[str]) -> int:
    if "--version" in args:
        print("Cuda compilation tools, release 13.0, V13.0.85")
        return 0
    data = Path(args[-1]).read_bytes()
    instructions = [found.decode() for found in re.findall(rb"/\*sass (\S+) \*/", data)]
    for entry in re.findall(rb"\0\.nv\.info\.(\w+)", data):
        print(f'\t\tFunction : {entry.decode()}\n\t.headerflags\t@"EF_CUDA_TEXMODE_UNIFIED"')
        for instruction in instructions:
            print(f"        /*0000*/                   {instruction} R4, R8, R2, R4 ;   /* 0x000000 */")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
