"""Sources to modules: what is loaded already, what is in the cache, or else what the compiler makes."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import CompileError, DriverError
from ..log import event
from ..modules import Module, read_artifact
from ..once import Turns
from ..select import Device
from .cache import Cache
from .compiler import Compiler, Nvrtc

__all__ = ["Counters", "Jit", "Recipe", "key_of", "shared"]

_REJECTED = frozenset({200, 209, 218, 222, 300})
"""CUresult: what a driver says of a binary that it does not take."""

_COUNTERS = "counters"
"""No key of a binary: whose turn it is to count."""

_log = logging.getLogger("wootz.jit")


@dataclass(frozen=True)
class Counters:
    """How modules were come by, in this process. memory_hits: loaded or compiled before. disk_hits: from the
    cache's folder. compilations, failures: of the compiler. removals: of entries that the driver rejected.
    evictions: of entries past the cache's limit.
    """

    memory_hits: int = 0
    disk_hits: int = 0
    compilations: int = 0
    failures: int = 0
    removals: int = 0
    evictions: int = 0

    def to_json(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Recipe:
    """A source of an artifact folder, and how to compile it for one device. file: its record, as that of a
    binary. arch: as the compiler is told.
    """

    jit: Jit
    folder: Path
    file: Mapping[str, Any]
    arch: str
    options: Mapping[str, Any]

    def load(self, device: Device) -> Module:
        """The module. Raises ArtifactError, CompileError, DriverError."""
        return self.jit.load(self, device)


def key_of(source: str, options: Mapping[str, Any], arch: str, compiler: str, ingredients: str) -> str:
    """The key of a binary: a digest of everything that it depends on. source: the sha256 of its text."""
    parts = json.dumps([source, dict(options), arch, compiler, ingredients], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


class Jit:
    """Compiles, keeps and loads; one compilation a key at a time. cache: default a folder of the user's
    cache. compiler: default NVRTC.
    """

    def __init__(self, compiler: Compiler | None = None, cache: Cache | None = None) -> None:
        self.compiler: Compiler = compiler or Nvrtc()
        self.cache = cache or Cache()
        self._counters = Counters()
        self._modules: dict[tuple[str, str], Module] = {}
        """By key and device. They stay loaded, as shipped binaries do."""
        self._turns: Turns[str] = Turns()

    @property
    def counters(self) -> Counters:
        """Since this process began."""
        return self._counters

    def load(self, recipe: Recipe, device: Device) -> Module:
        """The module of a source on a device. Raises ArtifactError for a source that is missing, truncated or
        edited; CompileError where the compiler is missing or refuses it, or the driver what was made of it;
        DriverError.
        """
        text = read_artifact(recipe.folder, recipe.file).decode()
        digest = hashlib.sha256(text.encode()).hexdigest()
        compiler = self.compiler
        key = key_of(digest, recipe.options, recipe.arch, compiler.identity(), compiler.ingredients(text))
        with self._turns.of(key):
            module = self._modules.get((key, str(device)))
            if module is not None:
                self._count("memory_hits")
                return module
            module = self._modules[key, str(device)] = self._load(key, text, recipe, device)
            return module

    def _load(self, key: str, text: str, recipe: Recipe, device: Device) -> Module:
        """The first of the binaries that the driver takes: the one that was kept, then a new one."""
        reason: DriverError | None = None
        for image in self._images(key, text, recipe):
            try:
                return _core.CudaModule(device.index, image)
            except DriverError as error:
                if error.code not in _REJECTED:
                    raise
                _log.warning("the driver rejects %s for %s: %s", recipe.file["file"], recipe.arch, error)
                self.cache.remove(key)
                self._count("removals")
                reason = error
        raise CompileError(
            f"the driver rejects what {self.compiler.identity()} makes of {recipe.file['file']} for "
            f"{recipe.arch} ({reason}): update the driver, or install an nvidia-cuda-nvrtc that is no newer",
            recipe.file["file"],
            recipe.arch,
        ) from reason

    def _images(self, key: str, text: str, recipe: Recipe) -> Iterator[bytes]:
        held = self.cache.held(key)
        kept = self.cache.get(key) if held is None else held
        if kept is not None:
            self._count("disk_hits" if held is None else "memory_hits")
            yield kept
        yield self._compile(key, text, recipe)

    def _compile(self, key: str, text: str, recipe: Recipe) -> bytes:
        name, begin = recipe.file["file"], time.monotonic()
        try:
            image = self.compiler.compile(text, name, recipe.arch, recipe.options)
        except CompileError:
            self._count("failures")
            raise
        self._count("compilations")
        milliseconds = (time.monotonic() - begin) * 1e3
        event(
            "source_compiled",
            f"compiled {name} for {recipe.arch}",
            file=name,
            arch=recipe.arch,
            milliseconds=milliseconds,
        )
        self._count("evictions", self.cache.put(key, image))
        return image

    def _count(self, name: str, by: int = 1) -> None:
        with self._turns.of(_COUNTERS):
            self._counters = replace(self._counters, **{name: getattr(self._counters, name) + by})


@functools.cache
def shared() -> Jit:
    """The one of every `wootz.load(jit=True)`, made with the settings of the time of the first."""
    return Jit()
