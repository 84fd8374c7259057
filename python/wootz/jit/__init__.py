"""Compile on demand, off by default: for a CUDA device that no shipped binary fits, `wootz.load(jit=True)`
compiles the source that the artifact folder carries, with NVRTC through cuda.core, and keeps the result in a
folder of the user's cache.

Nothing here is read before such a device asks, and no optional package is imported before that.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_LAZY = {
    "Cache": "cache",
    "Limits": "cache",
    "cache_folder": "cache",
    "Compiler": "compiler",
    "Nvrtc": "compiler",
    "Counters": "engine",
    "Jit": "engine",
    "Recipe": "engine",
    "shared": "engine",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def counters() -> Counters:
    """What the compiler and cache of `wootz.load(jit=True)` have done in this process."""
    from .engine import shared

    return shared().counters
