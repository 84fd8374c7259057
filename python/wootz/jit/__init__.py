"""Compile on demand, off by default: for a CUDA device that no shipped binary fits, `wootz.load(jit=True)`
compiles the source that the artifact folder carries, with NVRTC through cuda.core, and keeps the result in a
folder of the user's cache.

Nothing here is read before such a device asks, and no optional package is imported before that.
"""

from __future__ import annotations

from .cache import Cache, Limits, cache_folder
from .compiler import Compiler, Nvrtc
from .engine import Counters, Jit, Recipe, shared

__all__ = [
    "Cache",
    "Compiler",
    "Counters",
    "Jit",
    "Limits",
    "Nvrtc",
    "Recipe",
    "cache_folder",
    "counters",
    "shared",
]


def counters() -> Counters:
    """What the compiler and cache of `wootz.load(jit=True)` have done in this process."""
    return shared().counters
