"""Compiles emitted text, with a launcher for each of its entries, to a shared object; and the runner that
loads it.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from . import cache, signature, tools
from .plan import Entry, kinds_of

HERE = Path(__file__).parent
SOURCES = ("fiber.cpp", "grid.cpp", "buffer.cpp", "matrix.cpp", "runner.cpp")

# Sanitizer -> flags for kernels, flags to link the runner, definition that tells the runtime. The plain
# build has the cheap checks of the undefined-behaviour sanitizer too, reported by the runner itself.
_UNDEFINED = ("-fno-sanitize=function,vptr", "-fno-sanitize-recover=all")
SANITIZERS: dict[str | None, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    None: (("-fsanitize=undefined", *_UNDEFINED, "-fsanitize-minimal-runtime"), (), "-DLANES_PLAIN"),
    "address": (
        ("-fsanitize=address,undefined", *_UNDEFINED),
        ("-fsanitize=address,undefined",),
        "-DLANES_ASAN",
    ),
    "thread": (("-fsanitize=thread",), ("-fsanitize=thread",), "-DLANES_TSAN"),
}

# Contraction is off: the rounding is the plan's, not the compiler's choice. Uninitialised locals hold a
# pattern. Emitted kernels are long and the cases small: optimising costs ten times what it saves.
_KERNEL = ("-O0", "-g", "-fPIC", "-mf16c", "-ffp-contract=off", "-ftrivial-auto-var-init=pattern")
_CUDA = (
    "-std=c++17",
    "-Werror=return-type",
    "-Werror=uninitialized",
    "-Wno-pragma-system-header-outside-header",
)
_METAL = (
    "-x", "cl", "-cl-std=clc++2021", "-cl-no-stdinc", "-Werror=unknown-attributes", "-Werror=return-type",
    "-Werror=uninitialized", "-cl-single-precision-constant",
    "-Xclang", "-cl-ext=-cl_khr_fp64,-__opencl_c_fp64", "-Xclang", "-ffloat16-excess-precision=none",
    "-Xclang", "-fbfloat16-excess-precision=none",
)  # fmt: skip


class CompileError(Exception):
    """The emitted text does not compile, or is not what the plan's entries say; the message is the
    compiler's.
    """


def _compile(command: Sequence[str | Path]) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        message = done.stderr[:8000] or done.stdout[-2000:]
        raise CompileError(f"status {done.returncode}: {message}\nby: {' '.join(words)}")
    return done.stdout


@functools.cache
def _environment() -> str:
    """Everything besides the text that a product depends on."""
    files = sorted(p for folder in ("runtime", "cuda", "metal") for p in (HERE / folder).iterdir())
    texts = [f"{p.relative_to(HERE)}\n{p.read_text()}" for p in files]
    flags = [repr((SANITIZERS, _KERNEL, _CUDA, _METAL))]
    return cache.digest([tools.clang_version(), *texts, *flags])


def runner(sanitizer: str | None) -> Path:
    """The executable that loads a compiled text and runs its entries (see runtime/runner.cpp)."""
    _, link, define = SANITIZERS[sanitizer]

    def make(folder: Path) -> None:
        sources = [HERE / "runtime" / name for name in SOURCES]
        flags = ("-std=c++17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", define)
        objects = []
        for (
            source
        ) in sources:  # compiled without the sanitizer: the runtime's own accesses are not the kernel's
            objects.append(folder / f"{source.stem}.o")
            _compile([tools.clang(), *flags, "-c", source, "-o", objects[-1]])
        _compile([tools.clang(), *objects, *link, "-rdynamic", "-ldl", "-o", folder / "runner"])

    return cache.product(["runner", _environment(), repr(sanitizer)], make) / "runner"


def _cuda_flags(sanitizer: str | None) -> list[str]:
    return [tools.clang(), *_CUDA, *_KERNEL, *SANITIZERS[sanitizer][0], "-isystem", str(tools.cuda_include())]


def _cuda_prefix(sanitizer: str | None) -> Path:
    """device.h, precompiled: NVIDIA's headers cost a second each time otherwise."""

    def make(folder: Path) -> None:
        header = HERE / "cuda" / "device.h"
        _compile([*_cuda_flags(sanitizer), "-x", "c++-header", header, "-o", folder / "device.pch"])

    parts = ["prefix", _environment(), repr(sanitizer), str(tools.cuda_include())]
    return cache.product(parts, make) / "device.pch"


def _make_cuda(folder: Path, text: str, entries: Sequence[Entry], sanitizer: str | None) -> None:
    (folder / "emitted.cu").write_text(text)
    lines = ['#include "emitted.cu"', f'#include "{HERE / "cuda" / "launch.h"}"']
    lines += [
        f"LANES_ENTRY({e.symbol}, {', '.join('lanes::' + kind for kind in kinds_of(e))})" for e in entries
    ]
    (folder / "launch.cpp").write_text("\n".join(lines) + "\n")
    prefix = ["-include-pch", str(_cuda_prefix(sanitizer)), "-I", str(HERE / "cuda")]
    files = [str(folder / "launch.cpp"), "-o", str(folder / "kernels.so")]
    _compile([*_cuda_flags(sanitizer), *prefix, "-shared", *files])


def _make_metal(folder: Path, text: str, entries: Sequence[Entry], sanitizer: str | None) -> None:
    source = folder / "emitted.metal"
    source.write_text(text)
    flags = [tools.clang(), *_METAL, *_KERNEL, "-I", str(HERE / "metal")]
    dump = _compile([*flags, "-fsyntax-only", "-Xclang", "-ast-dump", "-fno-color-diagnostics", source])
    try:
        functions = signature.parse(dump, str(source))
        calls = list(signature.launchers(functions, [(e.symbol, kinds_of(e)) for e in entries]))
    except signature.SignatureError as error:
        raise CompileError(str(error)) from None
    (folder / "launch.cl").write_text("\n".join(['#include "emitted.metal"', "#include <launch.h>", *calls]))
    files = [str(folder / "launch.cl"), "-o", str(folder / "kernels.so")]
    libraries = ["--rtlib=compiler-rt", "--unwindlib=libgcc", "-lm"]  # libgcc of 2022 has no bfloat16
    _compile([*flags, *SANITIZERS[sanitizer][0], "-shared", *files, *libraries])


_BACKENDS = {"cuda": _make_cuda, "metal": _make_metal}


def library(text: str, backend: str, entries: Sequence[Entry], sanitizer: str | None) -> Path:
    """The shared object of one emitted file with all its entries. CompileError."""
    if backend not in _BACKENDS or sanitizer not in SANITIZERS:
        raise ValueError(
            f"backend {backend!r}: one of {[*_BACKENDS]}; sanitizer {sanitizer!r}: one of {[*SANITIZERS]}"
        )

    def make(folder: Path) -> None:
        _BACKENDS[backend](folder, text, entries, sanitizer)
        (folder / "group_arrays.json").write_text(json.dumps(_group_arrays(folder / "kernels.so")))

    interface = repr([(e.symbol, kinds_of(e)) for e in entries])
    return cache.product([backend, _environment(), repr(sanitizer), interface, text], make) / "kernels.so"


def _group_arrays(shared_object: Path) -> list[tuple[int, int]]:
    """(offset, size) of each variable of group memory: the writable statics of functions."""
    listing = tools.output([tools.nm(), "-S", "--defined-only", str(shared_object)])
    found = re.finditer(r"^(\w+) (\w+) [bBdD] _ZZ\S+$", listing, re.M)
    return [(int(match[1], 16), int(match[2], 16)) for match in found]


def group_arrays(shared_object: Path) -> list[tuple[int, int]]:
    """As found when the library was built."""
    pairs = json.loads((shared_object.parent / "group_arrays.json").read_text())
    return [(int(offset), int(size)) for offset, size in pairs]
