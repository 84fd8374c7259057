"""A new project: the files of template/, with its names in them.

A file NAME.in becomes NAME; dot-X becomes .X, so that no tool takes the template for what it is of.
"""

from __future__ import annotations

from pathlib import Path

from .. import __version__
from ..emit import provenance
from ..emit.provenance import BuildError

TEMPLATE = Path(__file__).with_name("template")
_SUFFIX, _DOT = ".in", "dot-"


def files(name: str, package: str) -> dict[str, str]:
    """Text by path, of a project whose distribution is `name`."""
    words = {"@NAME@": name, "@PACKAGE@": package, "@WOOTZ@": ".".join(__version__.split(".")[:2])}
    found = sorted(path for path in TEMPLATE.rglob(f"*{_SUFFIX}") if path.is_file())
    if not found:
        raise BuildError(f"{TEMPLATE}: no template is installed; reinstall wootz")
    return {
        _filled(_target(path.relative_to(TEMPLATE)), words): _filled(path.read_text("utf-8"), words)
        for path in found
    }


def write(folder: Path, name: str, package: str) -> list[str]:
    """Put a new project into `folder`, which is empty or not there; gives the paths in it. BuildError."""
    made = files(name, package)
    provenance.require_empty(folder)
    for path, text in made.items():
        provenance.write(folder / path, text)
    return list(made)


def _target(path: Path) -> str:
    parts = (f".{p.removeprefix(_DOT)}" if p.startswith(_DOT) else p for p in path.parts)
    return "/".join(parts).removesuffix(_SUFFIX)


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
