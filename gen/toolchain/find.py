"""Finds the compilers of a build, and asks each what it is. nvcc has a module of its own."""

from __future__ import annotations

import importlib
import os
import platform
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..manifest.target import Target
from . import cutlass
from .cutlass import Headers
from .nvcc import (
    fatbinary_candidates,
    find_disassembler,
    find_nvcc,
    include_folders,
    nvcc_candidates,
)
from .tool import Say, Tool, ToolchainError, is_executable, run_tool, words_of

# Which hosts run an instruction set, by the start of its name.
_ISA_HOSTS = {"x86-64": ("x86_64", "amd64"), "armv": ("aarch64", "arm64"), "baseline": ("",)}


VERSIONED = ("c++", "metal", "nvcc", "cutlass")
"""What an index names the versions of, in its order."""


@dataclass(frozen=True)
class Toolchain:
    """The compilers of one build; None for one that the plan does not need, or that this host does not
    have. fatbinary: where targets ship what it makes. cuda: folders of the CUDA toolkit's headers, for host
    stubs."""

    nvcc: Tool | None = None
    host: Tool | None = None
    xcrun: Tool | None = None
    cutlass: Headers | None = None
    fatbinary: Tool | None = None
    disassembler: Tool | None = None
    cuda: tuple[str, ...] = ()

    def builds(self, target: Target) -> bool:
        """Whether this host compiles the target; otherwise its cells are emitted only."""
        return {"cuda": self.nvcc, "cpu": self.host, "metal": self.xcrun}[target.backend] is not None

    def versions(self) -> dict[str, str]:
        """For the index."""
        tools = dict(zip(VERSIONED, (self.host, self.xcrun, self.nvcc, self.cutlass)))
        return {key: tool.version for key, tool in tools.items() if tool}


@dataclass(frozen=True)
class Names:
    """Compilers that the user named; "" where the search decides."""

    nvcc: str = ""
    cxx: str = ""
    xcrun: str = ""
    cutlass: str = ""

    @staticmethod
    def from_environment(nvcc: str = "") -> Names:
        """--nvcc or WOOTZ_NVCC, CXX, WOOTZ_XCRUN, WOOTZ_CUTLASS."""
        get = os.environ.get
        named = nvcc or get("WOOTZ_NVCC", "")
        return Names(named, get("CXX", ""), get("WOOTZ_XCRUN", ""), get("WOOTZ_CUTLASS", ""))


# Host compiler and Metal


def host_candidates(named: str = "") -> list[tuple[str, ...]]:
    """Host compilers in the order of the search; CXX may hold a launcher and flags. No command is run."""
    if named:
        words = words_of("CXX", named)
        return [words] if words and shutil.which(words[0]) else []
    found = (shutil.which(compiler) for compiler in ("c++", "g++", "clang++"))
    return [(path,) for path in found if path]


def find_host(targets: Iterable[Target], named: str) -> Tool:
    """The host's C++ compiler. ToolchainError where there is none, or it does not know an instruction set."""
    candidates = host_candidates(named)
    if not candidates:
        what = f"CXX={named}: no such compiler" if named else "no C++ compiler (c++, g++, clang++) on PATH"
        raise ToolchainError(f"{what}; install one (Debian, Ubuntu: apt-get install g++) or name it in CXX")
    command = candidates[0]
    code, text = run_tool([*command, "--version"])
    if code:
        raise ToolchainError(f"{shlex.join(command)}: --version gave status {code}: {text.strip()[:200]}")
    for isa in sorted({isa for t in targets for isa in t.isa if runs_here(isa)}):
        code, message = run_tool([*command, *march(isa), "-fsyntax-only", "-x", "c++", os.devnull])
        if code:
            raise ToolchainError(f"{shlex.join(command)}: does not know {isa}: {message.strip()[:200]}")
    return Tool(command, text.splitlines()[0].strip(), text)


def runs_here(isa: str) -> bool:
    """Whether this host's compiler builds an instruction set ("" = the target names none)."""
    machine = platform.machine().lower()
    hosts = next((hosts for start, hosts in _ISA_HOSTS.items() if isa.startswith(start)), ("",))
    return not isa or machine in hosts or "" in hosts


def march(isa: str) -> tuple[str, ...]:
    """The compiler flag of an instruction set; none for "baseline", which is whatever the compiler
    targets."""
    return (f"-march={isa}",) if isa and isa != "baseline" else ()


def find_xcrun(named: str) -> Tool | None:
    """xcrun with a Metal compiler; None off macOS unless one is named."""
    path = shutil.which(named or "xcrun")
    if not named and platform.system() != "Darwin":
        return None
    code, text = run_tool([path, "-sdk", "macosx", "metal", "--version"]) if path else (1, "no xcrun on PATH")
    if code or not path:
        raise ToolchainError(
            f"{named or 'xcrun'}: no Metal compiler: {text.strip()[:200]}; "
            "run: xcodebuild -downloadComponent MetalToolchain"
        )
    return Tool((path,), text.splitlines()[0].strip(), text)


# All of them


def find(targets: Sequence[Target], names: Names, say: Say) -> Toolchain:
    """The compilers that these targets need on this host. ToolchainError where one is missing or too old."""
    backends = {t.backend for t in targets}
    cuda_host = platform.system() != "Darwin"
    cuda = find_nvcc(targets, names.nvcc, say) if "cuda" in backends and cuda_host else (None, None)
    return Toolchain(
        nvcc=cuda[0],
        fatbinary=cuda[1],
        host=find_host(targets, names.cxx) if backends & {"cpu", "cuda"} else None,
        xcrun=find_xcrun(names.xcrun) if "metal" in backends else None,
    )


@dataclass(frozen=True)
class Needs:
    """What some CUDA units need beside nvcc."""

    cutlass: bool = False
    stubs: bool = False
    gates: bool = False


def complete(tools: Toolchain, needs: Needs, target: Target | None, names: Names, say: Say) -> Toolchain:
    """The toolchain with what units need that have been emitted. target: any CUDA target.

    ToolchainError where something is missing; a host without nvcc compiles none of them."""
    if tools.nvcc is None or target is None:
        return tools
    return replace(
        tools,
        cutlass=cutlass.find(names.cutlass, say) if needs.cutlass else None,
        disassembler=find_disassembler(tools.nvcc) if needs.gates else None,
        cuda=include_folders(tools.nvcc, target) if needs.stubs else (),
    )


def fingerprint(names: Names) -> list[list[str | int]]:
    """What the search would see now, without running anything: paths, sizes and times of every candidate."""
    xcrun = shutil.which(names.xcrun or "xcrun")
    hosts = (shutil.which(command[0]) for command in host_candidates(names.cxx))
    nvccs = nvcc_candidates(names.nvcc)
    files = (
        *nvccs,
        *(path for nvcc in nvccs for path in fatbinary_candidates(nvcc)),
        *(cutlass.version_file(r) for r in cutlass.candidates(names.cutlass)),
    )
    paths = [str(p) for p in files] + [p for p in (*hosts, xcrun) if p]
    stats = ((path, Path(path).stat()) for path in paths)
    return [[path, status.st_size, status.st_mtime_ns] for path, status in stats]


def find_ninja() -> str:
    """The ninja of the package that the `gen` extra installs, else one on PATH."""
    try:
        binary = Path(importlib.import_module("ninja").BIN_DIR) / "ninja"
        if is_executable(binary):
            return str(binary)
    except (ImportError, AttributeError):
        pass
    found = shutil.which("ninja") or shutil.which("ninja-build")
    if not found:
        raise ToolchainError("no ninja: run: pip install ninja (or install the extra wootz[gen])")
    return found
