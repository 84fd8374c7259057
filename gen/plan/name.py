"""Every name the build makes: cell keys, unit keys, symbols, paths inside an artifact folder. Nothing else
makes any.

A cell is kernel [.option]* x format x dtype x target. A unit is kernel x format x target: one source file,
and one artifact for each instruction set. Paths are relative to the artifact folder and use "/". Names in the
manifest are identifiers (targets may hold dots), so no part can leave the folder or collide with another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..manifest.target import BACKENDS, COMPILED, Target

NO_FORMAT = "-"
"""Stands for the format in keys, tables and command lines where the kernel takes none."""

FOLDERS = {"fatbin": "fatbin", "cubin": "cubin", "ptx": "ptx", "metallib": "metallib", "so": "cpu"}
"""Artifact folder by file extension."""

SOURCES = "src"
STUBS = "stub"
CHECKS = "checks"
WORK = ".wootz"
"""Everything in an artifact folder that is not shipped, but the build file and what ships wrapped."""

INDEX = "index.json"
BUILD_FILE = "build.ninja"


def cell_key(kernel: str, options: Mapping[str, str], fmt: str | None, dtype: str, target: str) -> str:
    """ "qgemv/mxfp4/f32/sm_90a"; "binary.add/-/f32/cpu": option values in the kernel's order, "-" for no
    format."""
    return f"{'.'.join((kernel, *options.values()))}/{fmt or NO_FORMAT}/{dtype}/{target}"


def unit_key(kernel: str, fmt: str | None, target: str) -> str:
    """ "qgemv/mxfp4/sm_90a", "copy/-/cpu"."""
    return f"{kernel}/{fmt or NO_FORMAT}/{target}"


def symbol(kernel: str, options: Mapping[str, str], fmt: str | None, dtype: str, variant: str = "") -> str:
    """The entry point of a cell, unique inside its file; further entries of the same cell append a
    variant."""
    parts: Iterable[str] = ("wootz", kernel, *options.values(), fmt or "", dtype, variant)
    return "_".join(part for part in parts if part)


def source(kernel: str, fmt: str | None, target: Target) -> str:
    """The emitted source of a unit: "src/qgemv/mxfp4/sm_90a.cu", "src/copy/cpu.cpp"."""
    return f"{SOURCES}/{_stem(kernel, fmt, target)}.{BACKENDS[target.backend].source}"


def artifacts(kernel: str, fmt: str | None, target: Target) -> tuple[tuple[str, str], ...]:
    """The artifacts of a unit as (instruction set, path), best first; the set is "" where the target has
    none."""
    stem = f"{FOLDERS[target.extension]}/{_stem(kernel, fmt, target)}"
    sets = target.isa or ("",)
    return tuple((isa, f"{stem}{'.' if isa else ''}{isa}.{target.extension}") for isa in sets)


def compiled(artifact: str) -> str:
    """What the compiler makes, where that ships wrapped: of "fatbin/copy/sm_90a.fatbin" it is
    "cubin/copy/sm_90a.cubin". Any other artifact is itself."""
    stem, _, extension = artifact.rpartition(".")
    if extension not in COMPILED:
        return artifact
    inner = COMPILED[extension]
    return f"{FOLDERS[inner]}/{stem.removeprefix(f'{FOLDERS[extension]}/')}.{inner}"


def stub_source(kernel: str, fmt: str | None, target: Target) -> str:
    """The emitted host stub of a unit: "src/gemm/sm_90a.stub.cpp"."""
    return f"{SOURCES}/{_stem(kernel, fmt, target)}.stub.cpp"


def stub(kernel: str, fmt: str | None, target: Target) -> str:
    """The compiled host stub of a unit: "stub/gemm/sm_90a.so"."""
    return f"{STUBS}/{_stem(kernel, fmt, target)}.so"


def check(kernel: str) -> str:
    """The reference of a project's own kernel: "checks/hardswish.py"."""
    return f"{CHECKS}/{kernel}.py"


def intermediate(artifact: str, extension: str) -> str:
    """Where a step between source and artifact leaves its file."""
    return f"{WORK}/{artifact}.{extension}"


def _stem(kernel: str, fmt: str | None, target: Target) -> str:
    return "/".join(part for part in (kernel, fmt, target.name) if part)
