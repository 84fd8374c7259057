"""Installs pinned packages into the user's cache, where the machine has none. Nothing half-installed is ever
seen there."""

from __future__ import annotations

import os
import shlex
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .tool import ToolchainError


def cache_folder() -> Path:
    """Where packages are installed: WOOTZ_CACHE, else wootz/ in the user's cache folder."""
    named = os.environ.get("WOOTZ_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wootz"


def site_packages() -> Iterator[Path]:
    """Folders that this Python takes packages from."""
    yield from (Path(entry) for entry in sys.path if entry)
    yield from (Path(entry) for entry in site.getsitepackages())
    yield Path(site.getusersitepackages())


def install(
    what: str, package: str, flags: Sequence[str], final: Path, whole: Callable[[Path], object], advice: str
) -> None:
    """Put a package and what it depends on into the folder `final`. whole: whether a folder has all of it.
    ToolchainError says what to do by hand."""
    command = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *flags]
    by_hand = f"run: {shlex.join([*command[:4], *flags, package])}, or {advice}"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".install-") as temporary:
            staged = Path(temporary) / "staged"
            code, text = _run([*command, package, "--target", str(staged)])
            if code or not whole(staged):
                last = (text.strip().splitlines() or ["no output"])[-1]
                raise ToolchainError(
                    f"no {what}, and the pinned one could not be installed ({last}); {by_hand}"
                )
            if not whole(final):
                shutil.rmtree(final, ignore_errors=True)
                staged.replace(final)
    except OSError as error:
        raise ToolchainError(f"no {what}, and {final}: {error.strerror or error}; {by_hand}") from error


def _run(command: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout
