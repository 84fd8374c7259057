"""Data flows one way: which part may import which, and who may write files."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
THIRD_PARTY_OF_GEN = {"yaml", "jsonschema", "referencing", "rich", "ninja"}
RUN_TIME = {"numpy", "wootz"}
OPTIONAL = {"torch": {"torch"}, "bench": {"triton"}}
"""Subpackages that `import wootz` never imports, and what they need."""
WRITERS = {"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "unlink", "rmdir"}


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(level, dotted name) of every import statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


def writes(tree: ast.AST) -> Iterator[str]:
    """Calls that write or delete files: open() with a mode that writes, and methods that do by their name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        modes = [
            a.value for a in (*node.args, *(k.value for k in node.keywords)) if isinstance(a, ast.Constant)
        ]
        if called in WRITERS or (
            called == "open" and any(re.fullmatch("[rbt]*[wxa+][rbt+]*", str(m)) for m in modes)
        ):
            yield called


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def parsed(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", files("gen"), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_generator_imports_itself_relatively_and_little_else(path: Path) -> None:
    for level, module in imports(parsed(path)):
        top = module.split(".")[0]
        assert level or top in sys.stdlib_module_names or top in THIRD_PARTY_OF_GEN, (
            f"{path.name} imports {module}"
        )


@pytest.mark.parametrize("path", files("python"), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_package_never_reaches_the_generator(path: Path) -> None:
    tree = parsed(path)
    for level, module in imports(tree):
        assert "gen" not in module.split("."), f"{path.name} imports {'.' * level}{module}"
        top = module.split(".")[0]
        optional = (
            not any(node for node in tree.body if module in ast.unparse(node).split("\n")[0])
            if not level
            else True
        )
        own = OPTIONAL.get(path.relative_to(ROOT / "python" / "wootz").parts[0], set())
        allowed = level or top in sys.stdlib_module_names or top in RUN_TIME | own or optional
        assert allowed, f"{path.name} imports {module} at its top: only numpy is there at run time"


def test_the_extension_never_reaches_the_generator() -> None:
    sources = [p for p in (ROOT / "csrc").rglob("*") if p.suffix in (".cpp", ".hpp", ".h", ".mm")]
    assert sources
    for path in sources:
        assert not re.search(
            r"wootz[./]gen|#include .*\bgen/|import_?\(\"gen", path.read_text(encoding="utf-8")
        ), path


def test_only_provenance_writes_files() -> None:
    found = {
        path.name: sorted(set(writes(parsed(path)))) for path in files("gen") if path.name != "provenance.py"
    }
    assert {name: calls for name, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    ("code", "caught"),
    [
        ("open(p, 'w')", True),
        ("open(p, mode='ab')", True),
        ("p.write_text(t)", True),
        ("q.open('r+')", True),
        ("open(p)", False),
        ("open(p, 'rb')", False),
        ("file.writelines(t)", False),
        ("open(p, encoding='utf-8')", False),
    ],
)
def test_the_check_for_writers_works(code: str, caught: bool) -> None:
    assert bool(list(writes(ast.parse(code)))) is caught
