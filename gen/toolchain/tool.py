"""A compiler as the build sees it, and how one is asked a question."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..emit.provenance import BuildError

Say = Callable[[str], None]


class ToolchainError(BuildError):
    """A compiler is missing, too old, or does not run."""


@dataclass(frozen=True)
class Tool:
    """A compiler: the command that starts it, and its version as the index records it (no path)."""

    command: tuple[str, ...]
    version: str
    identity: str = ""  # everything the tool says about itself: a change means a rebuild


def run_tool(command: Sequence[str], folder: Path | None = None) -> tuple[int, str]:
    """A tool's exit status and what it printed; folder: to run it in. ToolchainError where it cannot be
    started."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{command[0]}: does not run: {error}") from error
    return done.returncode, done.stdout


def words_of(variable: str, text: str) -> tuple[str, ...]:
    """A command and its options, of a variable of the environment. ToolchainError where no shell could read
    it."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ToolchainError(f"{variable}={text}: {error}; want a command as a shell reads it") from error


def launcher_named() -> tuple[str, ...]:
    """The command of WOOTZ_LAUNCHER. ToolchainError where there is none of that name."""
    text = os.environ.get("WOOTZ_LAUNCHER", "")
    words = words_of("WOOTZ_LAUNCHER", text)
    if words and not shutil.which(words[0]):
        raise ToolchainError(f"WOOTZ_LAUNCHER={text}: no such command; name a compile cache, or unset it")
    return words


def is_executable(path: Path) -> bool:
    """Whether there is a file that can be started; not what a folder that nobody may enter hides."""
    return os.access(path, os.X_OK) and path.is_file()


def is_readable(path: Path) -> bool:
    """Whether there is a file that can be read, likewise."""
    return os.access(path, os.R_OK) and path.is_file()
