"""A format's or a chip's name appears in kernels.yaml, tests and documents only.

Four exceptions, all narrow: a docstring or a comment, where an example may say what a name looks like, names
that NumPy gives to its own types, OTHERS, which say what other people's packages call their formats, and what
a header of one generation's instructions is called, as a file and as a namespace.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import numpy as np
import pytest

from gen.plan import cells as plan

ROOT = Path(__file__).resolve().parents[2]
CODE = {
    "gen": (".py", ".json"),
    "csrc": (".cpp", ".hpp", ".h", ".mm"),
    "cutlass": (".cuh", ".h", ".hpp"),
    "python": (".py", ".pyi"),
}
OTHERS = ("python/wootz/bench/peers/",)
SHAPES = re.compile(
    r"\b(?:sm|compute)_?[0-9]{2,3}[af]?\b|\b(?:h100|h200|b100|b200|a100|gb200|hopper|blackwell|ampere)\b",
    re.I,
)
"""Chips by the shape of their names, so that one which the manifest lacks is found as well."""


def names() -> list[str]:
    """The names that the shipped manifest gives to formats and targets, less those of backends and of NumPy's
    own types (sctypeDict would not do: packages add theirs)."""
    manifest = plan.load(ROOT / "kernels.yaml")
    backends = {target.backend for target in manifest.targets.values()}
    return sorted(n for n in {*manifest.formats, *manifest.targets} - backends if not hasattr(np, n))


def pattern(words: list[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(map(re.escape, words))})(?![A-Za-z0-9_])", re.I)


def code_of_python(text: str) -> str:
    """The text without comments and docstrings: strings that are a statement of their own."""
    kept = []
    statement_start = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL):
            continue
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING):
            statement_start = True
            continue
        if not (token.type == tokenize.STRING and statement_start):
            kept.append((token.start[0], token.string))
        statement_start = False
    return "\n".join(f"{line}: {string}" for line, string in kept)


def code_of_c(text: str) -> str:
    """The text without comments, includes of headers and names of namespaces. Other strings stay: a comment
    mark inside one would only hide what follows it."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r'^#include "[^"]*"|^(?:using )?namespace \w+', "", bare, flags=re.M)


def code_of_schema(text: str) -> str:
    """The text without descriptions and examples."""
    return re.sub(r'"(?:description|examples|\$comment)"\s*:\s*(?:"(?:[^"\\]|\\.)*"|\[[^\]]*\])', "", text)


STRIP = {".py": code_of_python, ".pyi": code_of_python, ".json": code_of_schema}


def sources() -> list[Path]:
    found = (p for folder, kinds in CODE.items() for p in (ROOT / folder).rglob("*") if p.suffix in kinds)
    return sorted(p for p in found if not str(p.relative_to(ROOT)).startswith(OTHERS))


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_format_and_no_chip_is_named(path: Path) -> None:
    code = STRIP.get(path.suffix, code_of_c)(path.read_text(encoding="utf-8"))
    found = {match[0] for match in [*pattern(names()).finditer(code), *SHAPES.finditer(code)]}
    assert not found, f"{path.relative_to(ROOT)} names {', '.join(sorted(found))}"


@pytest.mark.parametrize(
    ("code", "caught"),
    [
        ('#include "sm90.cuh"\nnamespace sm90 {\nusing namespace sm90;', False),
        ("return sm90::rows;", True),
        ('x = "sm90.cuh";', True),
        ("if (target == sm_90a) return;", True),
    ],
)
def test_the_check_of_c(code: str, caught: bool) -> None:
    assert bool(SHAPES.search(code_of_c(code))) is caught


@pytest.mark.parametrize(
    ("code", "caught"),
    [
        ('x = "sm_90a"', True),
        ("if name == 'mxfp4': pass", True),
        ("mxfp4 = 1", True),
        ('"""sm_90a is one."""', False),
        ('def f():\n    """For instance mxfp4."""\n    return 1', False),
        ("x = 1  # as sm_90a", False),
        ('x = f("""mxfp4""")', True),
        ("arch = 'sm_75'", True),
        ("int4x = 1", False),
    ],
)
def test_the_check_itself(code: str, caught: bool) -> None:
    text = code_of_python(code + "\n")
    assert bool(pattern(names()).search(text) or SHAPES.search(text)) is caught
