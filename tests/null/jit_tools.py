"""A compiler that makes what the stand-in of libcuda takes for a binary, and folders that carry sources."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wootz.errors import CompileError
from wootz.jit import Cache, Jit

from tests.null import loader_tools as tools

TEXT = "// the source of every kernel\n"


class FakeCompiler:
    """Counts what it is asked; says no to a text with #error, and rubbish where `rubbish` is set."""

    def __init__(self, version: str = "fake 1", seconds: float = 0) -> None:
        self.version, self.seconds, self.headers, self.rubbish = version, seconds, "", False
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.running = self.most = 0
        self._lock = threading.Lock()

    def identity(self) -> str:
        return self.version

    def ingredients(self, text: str) -> str:
        return self.headers

    def compile(self, text: str, file: str, arch: str, options: Mapping[str, Any]) -> bytes:
        with self._lock:
            self.calls.append((file, arch, dict(options)))
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(self.seconds)
        with self._lock:
            self.running -= 1
        if "#error" in text:
            raise CompileError(f"{file} does not compile", file, arch, "line 1: no")
        entries = [entry for each in tools.ENTRIES.values() for entry in each]
        return b"OTHER" if self.rubbish else tools.fake_cubin(entries, f"made {arch}")


class Bench:
    """A folder whose one CUDA target is for capability 8.0, with sources; a compiler and a cache."""

    def __init__(self, path: Path, kind: str = "dsl", text: str = TEXT, **more: Any) -> None:
        self.path = path
        self.compiler, self.cache = FakeCompiler(), Cache(path / "cache")
        self.folder = tools.Folder(path / "artifacts")
        self.folder.targets = [row for row in tools.TARGETS if row["key"] != "gpu90a"]
        entries = [entry for each in tools.ENTRIES.values() for entry in each]
        file = self.folder.file("cubin/gpu80.cubin", tools.fake_cubin(entries, "gpu80"))
        self.folder.add_all("gpu80", [file], **self.folder.source("src/gpu80.cu", text, kind), **more)
        self.folder.write()

    @property
    def source(self) -> Path:
        return self.folder.path / "src/gpu80.cu"

    def entries(self) -> list[Path]:
        """The cache's files."""
        return sorted(self.cache.folder.iterdir())

    def jit(self) -> Jit:
        """As a new process has it."""
        return Jit(self.compiler, Cache(self.cache.folder))
