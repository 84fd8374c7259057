"""The compiler behind `jit=True`: NVRTC, by way of cuda.core. Both are imported when something is compiled
first.
"""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import CompileError
from . import headers

__all__ = ["OPTIONS", "Compiler", "Nvrtc"]

INSTALL = "pip install 'wootz[jit]' (or: cuda-core, cuda-bindings, nvidia-cuda-nvrtc, nvidia-cuda-runtime)"
OPTIONS = frozenset({"std", "define_macro", "fma", "device_as_default_execution_space"})
"""What an index may ask for, of cuda.core's ProgramOptions."""

Options = Mapping[str, Any]
_MODULES = ("cuda.core", "cuda.core.experimental")  # the newer first


class Compiler(Protocol):
    """What Jit needs of a compiler."""

    def identity(self) -> str:
        """Its name and version, as part of a cache's key. Raises CompileError where it is not there."""

    def ingredients(self, text: str) -> str:
        """A digest of all that a compilation of the text reads beside it."""

    def compile(self, text: str, file: str, arch: str, options: Options) -> bytes:
        """The binary of a source. file: its name, for messages. Raises CompileError."""


class Nvrtc:
    """NVRTC, which needs no GPU and no CUDA toolkit, but for the headers of the CUDA runtime."""

    def identity(self) -> str:
        """As "NVRTC 13.0"; this imports its binding alone, which is enough where the cache has all."""
        return "NVRTC {}.{}".format(*_version())

    def ingredients(self, text: str) -> str:
        """A digest of the headers that the text includes: ours, and the toolkit's as they are found."""
        return headers.digest(headers.expand(text), self._folders())

    def compile(self, text: str, file: str, arch: str, options: Options) -> bytes:
        """A cubin. Raises CompileError: a header is missing, or the compiler refuses the source or arch."""
        core, expanded, folders = _core(), headers.expand(text), self._folders()
        if absent := headers.missing(expanded, folders):
            raise CompileError(
                f"{file} includes {', '.join(absent)}, and no folder of CUDA headers has it "
                f"(searched: {', '.join(folders) or 'none found'}): {INSTALL}, or set CUDA_HOME",
                file,
                arch,
            )
        log = io.StringIO()
        try:
            wanted = core.ProgramOptions(name=file, arch=arch, include_path=list(folders) or None, **options)
            made = core.Program(expanded, "c++", wanted).compile("cubin", logs=log)
            return bytes(made.code)
        except Exception as error:  # cuda.core's own types are private
            text = f"{file} does not compile for {arch} ({self.identity()}): {_advice(arch)}"
            raise CompileError(text, file, arch, _joined(log.getvalue(), str(error))) from error

    def _folders(self) -> tuple[str, ...]:
        return headers.folders(_version()[0])


def _core() -> Any:
    """cuda.core. Raises CompileError that says what to install."""
    reasons = []
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            reasons.append(str(error))
            continue
        if hasattr(module, "ProgramOptions"):
            return module
    raise CompileError(
        f"jit=True needs cuda.core, which cannot be imported ({'; '.join(reasons) or 'too old'}): {INSTALL}"
    )


@functools.cache
def _version() -> tuple[int, int]:
    """NVRTC's version. Raises CompileError that says what to install."""
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        status, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # no cuda.bindings; no libnvrtc, by cuda.pathfinder's own types
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise CompileError(f"jit=True needs NVRTC, which cannot be loaded ({said[0]}): {INSTALL}") from error
    if int(status):
        raise CompileError(f"NVRTC does not say its version ({status!r}): {INSTALL}")
    return int(major), int(minor)


def _joined(log: str, error: str) -> str:
    """What the compiler said, once: cuda.core's errors may hold the log."""
    log, error = log.strip(), error.strip()
    return error if log in error else f"{log}\n{error}"


def _advice(arch: str) -> str:
    """What to do about a source that does not compile."""
    number = int("".join(each for each in arch if each.isdigit()))
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        status, known = nvrtc.nvrtcGetSupportedArchs()
    except Exception:  # it is asked for the sake of a message
        status, known = 0, []
    if not int(status) and known and number not in known:
        return f"this NVRTC knows no {arch}; install another nvidia-cuda-nvrtc"
    return "try another nvidia-cuda-nvrtc, or ship a binary for this device"
