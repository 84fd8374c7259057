"""Asks a host stub for the size of each entry's parameter block. A program of its own: a stub that crashes
must not take a build with it, and one that is open must not be replaced.

Standard input: {"stub": path, "entries": {symbol: [arrays, sizes, scalars]}}, counts of each. Standard
output: {"build": sha256 of the source it says it belongs to, "sizes": {symbol: bytes, or null where it takes
none of the problems}}. It imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator

SIZES = (1024, 128, 4096, 256, 64, 16, 8, 2, 1)
"""Problems to try: every size is the same, or the first one is 1."""


class Problem(ctypes.Structure):
    """wootz_problem of csrc/stub_abi.h."""

    _fields_ = (
        ("arrays", ctypes.POINTER(ctypes.c_void_p)),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("scalars", ctypes.POINTER(ctypes.c_double)),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_uint64),
        ("sm_count", ctypes.c_int32),
        ("max_active_clusters", ctypes.c_int32),
    )


class Launch(ctypes.Structure):
    """wootz_launch."""

    _fields_ = (
        ("params_size", ctypes.c_uint64),
        ("params_align", ctypes.c_uint64),
        ("workspace_bytes", ctypes.c_uint64),
        ("shared", ctypes.c_uint32),
        ("block", ctypes.c_uint32 * 3),
        ("cluster", ctypes.c_uint32 * 3),
        ("grid", ctypes.c_uint32 * 3),
    )


def shapes(count: int) -> Iterator[list[int]]:
    """Sizes of the problems to try."""
    for size in SIZES:
        yield [size] * count
        yield [1, *[size] * (count - 1)][:count]


def ask(stub: ctypes.CDLL, symbol: str, arrays: int, sizes: int, scalars: int) -> int | None:
    """The size that an entry's stub says; None where it takes none of the problems."""
    addresses = (ctypes.c_void_p * (arrays + 1))(*((i + 1) << 28 for i in range(arrays)))
    numbers = (ctypes.c_double * (scalars + 1))(*[1.0] * scalars)
    query = getattr(stub, f"{symbol}_query")
    for shape in shapes(sizes):
        given = (ctypes.c_int64 * (sizes + 1))(*shape)
        problem, launch = Problem(addresses, given, numbers, None, 0, 128, 64), Launch()
        if query(ctypes.byref(problem), ctypes.byref(launch)) == 0:
            return int(launch.params_size)
    return None


def main() -> None:
    """One stub."""
    asked = json.load(sys.stdin)
    stub = ctypes.CDLL(asked["stub"])
    stub.wootz_stub_build.restype = ctypes.c_char_p
    sizes = {symbol: ask(stub, symbol, *counts) for symbol, counts in asked["entries"].items()}
    print(json.dumps({"build": stub.wootz_stub_build().decode(), "sizes": sizes}))


if __name__ == "__main__":
    main()
