"""The tools that executing emitted text needs, each found or missed with the command that installs it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gen.toolchain import nvcc

VERSION = "19"
INSTALL = f"apt-get update && apt-get install -y clang-{VERSION} libclang-rt-{VERSION}-dev llvm-{VERSION}"
INSTALL_CUDA = f"python -m pip install '{nvcc.PINNED}'"


class MissingTool(Exception):
    """A tool is not installed; the message ends with the command that installs it."""


def _tool(name: str) -> str:
    found = shutil.which(f"{name}-{VERSION}")
    if not found:
        raise MissingTool(f"{name}-{VERSION} is needed to execute emitted text; run: {INSTALL}")
    return found


@functools.cache
def clang() -> str:
    """clang++, together with its sanitizer runtimes and compiler-rt."""
    path = _tool("clang++")
    for library in ("asan", "tsan", "builtins"):
        name = f"libclang_rt.{library}-x86_64.a"
        if not Path(output([path, "--rtlib=compiler-rt", f"-print-file-name={name}"]).strip()).is_absolute():
            raise MissingTool(f"{name} is needed to execute emitted text; run: {INSTALL}")
    return path


@functools.cache
def nm() -> str:
    return _tool("llvm-nm")


@functools.cache
def symbolizer() -> str:
    return _tool("llvm-symbolizer")


@functools.cache
def clang_version() -> str:
    return output([clang(), "--version"])


def output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _includes(compiler: Path) -> list[Path]:
    """The include folders that an nvcc would use: beside it, or as it says (it may be a script)."""
    command = [str(compiler), "--dryrun", "-x", "cu", os.devnull]
    dry = subprocess.run(command, capture_output=True, text=True, check=False)
    flags = re.search(r"^#\$ INCLUDES=(.*)$", dry.stderr, re.M)
    folders = re.findall(r"-I([^\"\s]+)", flags[1]) if flags else []
    return [compiler.parent.parent / "include", *map(Path, folders)]


@functools.cache
def cuda_include() -> Path:
    """The folder of cuda_fp16.h, of the nvcc that the build would take (named by WOOTZ_NVCC, or found)."""
    for found in nvcc.nvcc_candidates(os.environ.get("WOOTZ_NVCC", "")):
        for folder in _includes(found):
            if all((folder / header).is_file() for header in ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h")):
                return folder.resolve()
    raise MissingTool(f"CUDA's headers are needed to execute emitted CUDA text; run: {INSTALL_CUDA}")
