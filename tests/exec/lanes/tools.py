"""The tools that executing emitted text needs, each found or missed with the command that installs it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

VERSION = "19"
INSTALL = f"apt-get update && apt-get install -y clang-{VERSION} libclang-rt-{VERSION}-dev llvm-{VERSION}"
INSTALL_CUDA = "python -m pip install 'cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==13.0.2'"


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


def _wheel_includes() -> list[Path]:
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    return [root / "cu13" / "include" for root in roots]


def _nvcc_includes(nvcc: str) -> list[Path]:
    """The include folders that nvcc itself would use."""
    dry = subprocess.run(
        [nvcc, "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True, check=False
    )
    top = re.search(r"^#\$ TOP=(\S+)$", dry.stderr, re.M)
    flags = re.search(r"^#\$ INCLUDES=(.*)$", dry.stderr, re.M)
    folders = re.findall(r"-I([^\"\s]+)", flags[1]) if flags else []
    return [Path(folder) for folder in folders] + ([Path(top[1]) / "include"] if top else [])


@functools.cache
def cuda_include() -> Path:
    """The folder of cuda_fp16.h: of the nvcc named in WOOTZ_NVCC, the pinned wheel, or the nvcc on PATH."""
    named = os.environ.get("WOOTZ_NVCC")
    candidates = _nvcc_includes(named) if named else _wheel_includes()
    nvcc = shutil.which("nvcc")
    if nvcc:
        candidates += _nvcc_includes(nvcc)
    for folder in candidates:
        if all((folder / header).is_file() for header in ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h")):
            return folder.resolve()
    raise MissingTool(f"CUDA's headers are needed to execute emitted CUDA text; run: {INSTALL_CUDA}")
