"""The reference of a project's kernel, looked at without being run: `wootz verify` alone does that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ..manifest.problems import near

CHECK_FUNCTIONS = ("shapes", "operands", "expect")


def check_problem(text: str, file: str, beside: Path) -> str | None:
    """What is wrong with a reference, or None. file: as the manifest has it; beside: its folder."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return f"{file}:{error.lineno}: SyntaxError: {error.msg}"
    for line, module in _imported(tree):
        if module.startswith(".") or (beside / f"{module.partition('.')[0]}.py").is_file():
            return f"{file}:{line}: imports {module}: a check travels alone; write it into this file"
    names = {name for node in tree.body for name in _bound(node)}
    lacking = [f for f in CHECK_FUNCTIONS if f not in names]
    return f"{file} has no {lacking[0]}{near(lacking[0], sorted(names))}" if lacking else None


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, module) of every import; relative ones begin with dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ", ".join(alias.name for alias in node.names)
            yield node.lineno, "." * node.level + module


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of the file gives."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
