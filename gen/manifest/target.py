"""A compilation target: one manifest row. Code asks for features and limits, never for a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GRID = (2**31 - 1, 65535, 65535)
"""Blocks that CUDA launches along x, y and z."""


@dataclass(frozen=True)
class Backend:
    """What every target of a backend has in common; a manifest row may override numbers and extension."""

    source: str  # extension of emitted sources
    extension: str  # extension of artifacts, as they ship
    axes: tuple[str, ...]  # what a row of this backend may say beside features and limits
    simd: int  # lanes that run together
    max_threads: int  # threads of one block
    shared_bytes: int  # static group memory a kernel may declare
    grid: tuple[int, int, int]  # blocks of a launch, by axis
    isa: tuple[str, ...] = ()

    @property
    def has_arch(self) -> bool:
        """Whether the compiler is told an architecture; a row's default is its name."""
        return "arch" in self.axes


BACKENDS = {
    "cpu": Backend("cpp", "so", ("isa",), 1, 1024, 1 << 16, (1 << 31,) * 3, ("baseline",)),
    "cuda": Backend("cu", "fatbin", ("arch", "capability", "suffix"), 32, 1024, 48 << 10, GRID),
    "metal": Backend("metal", "metallib", ("arch", "min_os"), 32, 1024, 32 << 10, (2**32 - 1,) * 3),
}

COMPILED = {"fatbin": "cubin"}
"""What a compiler makes, by what ships of it, where that is wrapped."""


@dataclass(frozen=True)
class Target:
    """One target. `arch` is what its compiler is told; bytes and counts are per block unless said so."""

    name: str
    backend: str
    arch: str = ""
    features: frozenset[str] = frozenset()
    simd: int = 32
    max_threads: int = 1024
    shared_bytes: int = 0  # static group memory
    shared_max: int = 0  # the most a block can ask for at launch (dynamic)
    grid: tuple[int, int, int] = GRID  # blocks of a launch, by axis
    registers: int = 0  # 32-bit registers of one multiprocessor; 0 = no such limit
    isa: tuple[str, ...] = ()  # cpu: instruction sets to build for, best first
    min_os: str = ""
    extension: str = ""
    capability: tuple[int, int] | None = None
    suffix: str = ""  # "" plain, "a" this chip only, "f" its family
    kernels: Literal["all"] | tuple[str, ...] = "all"  # those that are built for it

    @property
    def compiled(self) -> str:
        """The extension of what its compiler makes."""
        return COMPILED.get(self.extension, self.extension)

    def has(self, feature: str) -> bool:
        """Whether the manifest row lists `feature`."""
        return feature in self.features
