"""Finds nvcc, asks what it can build, and installs the pinned one where there is none.

The order of the search: the one named, the pinned wheel in site-packages, CUDA_HOME, PATH and the usual
folder, then the wheel that an earlier build installed into the user's cache. A compiler too old for a
target is passed over, and said to be. With none left, the pinned wheels are installed into the cache.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..manifest.target import Target
from .install import cache_folder, install, site_packages
from .tool import Say, Tool, ToolchainError, is_executable, is_readable, run_tool

PIN = "13.0.2"
PINNED = f"cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]=={PIN}"
"""All five parts: left out, nvvm floats to a newer release whose output ptxas refuses."""

_WHEEL = Path("nvidia/cu13")
_USUAL = Path("/usr/local/cuda")
_DUMP = "cuobjdump"
_WRAP = "fatbinary"
_COMPRESS, _COMPRESS_SINCE = "--compress-mode", "12.8"

# (capability, suffix) -> the first CUDA release whose compiler knows it. Source: CUDA release notes.
_LEAST: Mapping[tuple[int, int], str] = {
    (8, 0): "11.0",
    (8, 6): "11.1",
    (8, 7): "11.4",
    (8, 9): "11.8",
    (9, 0): "11.8",
    (10, 0): "12.8",
    (12, 0): "12.8",
    (10, 3): "12.9",
    (12, 1): "12.9",
    (8, 8): "13.0",
    (11, 0): "13.0",
}
_LEAST_OF_SUFFIX = {"a": "12.0", "f": "12.9"}
_DROPPED_BELOW, _LAST_WITH_ALL = (7, 5), "12.9"


def _installed() -> Path:
    return cache_folder() / f"cuda-toolkit-{PIN}"


def _wheel_nvcc(folder: Path) -> Path | None:
    """The compiler of a wheel in `folder`, where all of its parts are there."""
    root = folder / _WHEEL
    parts = [root / "bin" / "nvcc", root / "nvvm" / "bin" / "cicc", root / "include" / "cuda_runtime.h"]
    return parts[0] if all(map(is_readable, parts)) else None


def nvcc_candidates(named: str = "") -> list[Path]:
    """Every nvcc there is, in the order of the search; just the one named, where one is. No command is
    run."""
    if named:
        found = shutil.which(named)
        return [Path(found)] if found else []
    homes = [Path(os.environ[key]) for key in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(key)]
    on_path = shutil.which("nvcc")
    options = [
        *(_wheel_nvcc(folder) for folder in site_packages()),
        *(home / "bin" / "nvcc" for home in homes),
        Path(on_path) if on_path else None,
        _USUAL / "bin" / "nvcc",
        _wheel_nvcc(_installed()),
    ]
    return list(dict.fromkeys(path for path in options if path is not None and is_executable(path)))


def _probe(path: Path, name: str, version: str = r"V(\d+\.\d+\.\d+)") -> Tool:
    """Ask a tool for its version. ToolchainError where it does not run or is no `name`."""
    code, text = run_tool([str(path), "--version"])
    found = re.search(version, text)
    if code or not found:
        raise ToolchainError(
            f"{path}: is no {name} that works (--version: status {code}): {text.strip()[:200]}"
        )
    return Tool((str(path),), found[1], text)


def probe_nvcc(path: Path) -> Tool:
    """Ask an nvcc for its version. ToolchainError where it does not run or is no nvcc."""
    return _probe(path, "nvcc", r"release \d+\.\d+, V(\d+\.\d+\.\d+)")


def least_version(target: Target) -> str:
    """The least CUDA release for a target, as a phrase for a message."""
    capability = target.capability
    if capability and capability < _DROPPED_BELOW:
        oldest = ".".join(map(str, _DROPPED_BELOW))
        return f"CUDA {_LAST_WITH_ALL} or older (13.0 dropped everything before {oldest})"
    known = [_LEAST.get(capability or (0, 0), ""), _LEAST_OF_SUFFIX.get(target.suffix, "")]
    known = sorted((v for v in known if v), key=lambda v: [int(part) for part in v.split(".")])
    return (
        f"CUDA {known[-1]} or newer"
        if _LEAST.get(capability or (0, 0))
        else "a newer CUDA (or the arch is misspelt)"
    )


def unknown_targets(nvcc: Tool, targets: Iterable[Target]) -> list[Target]:
    """The CUDA targets whose architecture this nvcc does not know."""
    wanted = [t for t in targets if t.backend == "cuda"]
    _, listed = run_tool([*nvcc.command, "--list-gpu-code"])
    codes = set(listed.split())

    def known(arch: str) -> bool:
        dry = ["-cubin", f"-arch={arch}", "--dryrun", "-x", "cu", os.devnull, "-o", os.devnull]
        return arch in codes or run_tool([*nvcc.command, *dry])[0] == 0

    return [t for t in wanted if not known(t.arch)]


def _too_old(nvcc: Tool, unknown: Sequence[Target]) -> str:
    needs = "; ".join(f"target {t.name} ({t.arch}) needs {least_version(t)}" for t in unknown)
    return (
        f"{nvcc.command[0]}: nvcc {nvcc.version} does not know {', '.join(t.arch for t in unknown)}: {needs}"
    )


def _fit(nvcc: Tool, targets: Sequence[Target]) -> tuple[Tool, Tool | None]:
    """An nvcc, and the fatbinary that it takes. ToolchainError where it does not build these targets."""
    if unknown := unknown_targets(nvcc, targets):
        raise ToolchainError(_too_old(nvcc, unknown))
    return nvcc, find_fatbinary(nvcc, targets)


def find_nvcc(targets: Sequence[Target], named: str, say: Say) -> tuple[Tool, Tool | None]:
    """The first nvcc that builds every target, and its fatbinary where a target ships what that makes.
    ToolchainError, or an installation, where there is none."""
    passed_over = []
    for path in nvcc_candidates(named):
        try:
            return _fit(probe_nvcc(path), targets)
        except ToolchainError as error:
            if named:
                raise
            passed_over.append(error)
    if named:
        raise ToolchainError(f"{named}: no such nvcc (--nvcc, WOOTZ_NVCC)")
    for problem in passed_over:
        say(f"passed over: {problem}")
    return _fit(probe_nvcc(install_nvcc(say)), targets)


def install_nvcc(say: Say) -> Path:
    """Install the pinned compiler wheels into the user's cache."""
    final = _installed()
    say(f"no nvcc on this machine: installing {PINNED} into {final} (about 150 MB to download)")
    advice = "name an nvcc with --nvcc, or leave out the CUDA targets"
    install("nvcc", PINNED, (), final, _wheel_nvcc, advice)
    return final / _WHEEL / "bin" / "nvcc"


# Beside nvcc


def fatbinary_candidates(nvcc: Path) -> list[Path]:
    """The fatbinary beside an nvcc, and beside what that is a link to."""
    beside = dict.fromkeys(path.with_name(_WRAP) for path in (nvcc, nvcc.resolve()))
    return [path for path in beside if is_executable(path)]


def find_fatbinary(nvcc: Tool, targets: Iterable[Target]) -> Tool | None:
    """fatbinary, which wraps and compresses cubins; None where no target ships them wrapped. ToolchainError
    where this nvcc has none, or one that does not compress them."""
    if not any(t.backend == "cuda" and t.compiled != t.extension for t in targets):
        return None
    path = next(iter(fatbinary_candidates(Path(nvcc.command[0]))), None)
    if path is None:
        raise ToolchainError(
            f"{nvcc.command[0]}: no {_WRAP} beside it, which compresses cubins; take the nvcc of a whole "
            f"toolkit, CUDA {_COMPRESS_SINCE} or newer"
        )
    tool = _probe(path, _WRAP)
    if _COMPRESS not in run_tool([str(path), "--help"])[1]:
        raise ToolchainError(
            f"{path}: {_WRAP} {tool.version} has no {_COMPRESS}, which cubins ship with; "
            f"take the nvcc of CUDA {_COMPRESS_SINCE} or newer"
        )
    return tool


def include_folders(nvcc: Tool, target: Target) -> tuple[str, ...]:
    """The folders of the CUDA toolkit's headers, as this nvcc has them."""
    dry = ["-cubin", f"-arch={target.arch}", "--dryrun", "-x", "cu", os.devnull, "-o", os.devnull]
    _, text = run_tool([*nvcc.command, *dry])
    lines = re.findall(r"^#\$ (?:SYSTEM_)?INCLUDES=(.*)$", text, re.M)
    words = [word for line in lines for word in shlex.split(line)]
    folders = [word.removeprefix("-I") for word in words if word != "-isystem"]
    return tuple(str(Path(folder).resolve()) for folder in folders)


def disassembler_candidates(nvcc: Tool) -> list[Path]:
    """Every cuobjdump there is: beside nvcc, in wheels, on PATH. It needs nvdisasm beside it, or on PATH."""
    on_path = shutil.which(_DUMP)
    beside = Path(nvcc.command[0])
    found = [
        beside.with_name(_DUMP),
        beside.resolve().with_name(_DUMP),
        *(path for folder in site_packages() for path in sorted(folder.glob(f"nvidia/*/bin/{_DUMP}"))),
        *([Path(on_path)] if on_path else []),
        _USUAL / "bin" / _DUMP,
    ]
    whole = shutil.which("nvdisasm") is not None
    return [
        p
        for p in dict.fromkeys(found)
        if is_executable(p) and (whole or is_executable(p.with_name("nvdisasm")))
    ]


def find_disassembler(nvcc: Tool) -> Tool:
    """cuobjdump, which shows the instructions of a cubin. ToolchainError where there is none."""
    for path in disassembler_candidates(nvcc):
        code, text = run_tool([str(path), "--version"])
        if not code and (found := re.search(r"V(\d+\.\d+\.\d+)", text)):
            return Tool((str(path),), found[1], text)
    raise ToolchainError(
        "no cuobjdump with nvdisasm, which look for matrix instructions in cubins: run: pip install "
        "'wootz[gen]' (or: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)"
    )
