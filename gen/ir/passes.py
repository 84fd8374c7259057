"""Rewrites of the IR between building and lowering. Each keeps the meaning and is verified before and
after."""

from __future__ import annotations

from collections.abc import Callable

from ..manifest.target import Target
from .nodes import GRID, OPS, Block, For, Function, If, Ref, Statement, Value, While, operands, walk
from .verify import verify

Pass = Callable[[Function, Target], None]


def _keep(block: Block, keep: Callable[[Value], bool]) -> bool:
    """Drops operations that are not kept, and regions that become empty. Whether anything went."""
    before = len(block.statements)
    changed = False
    kept: list[Statement] = []
    for statement in block.statements:
        if isinstance(statement, For):
            changed |= _keep(statement.body, keep)
            if statement.body.statements:
                kept.append(statement)
        elif isinstance(statement, If):
            changed |= _keep(statement.then, keep) | _keep(statement.orelse, keep)
            if statement.then.statements or statement.orelse.statements:
                kept.append(statement)
        elif isinstance(statement, While):  # kept for its end, if it has one
            changed |= _keep(statement.head, keep) | _keep(statement.body, keep)
            kept.append(statement)
        elif keep(statement):
            kept.append(statement)
    block.statements = kept
    return changed or len(kept) != before


def launches_in_turn(function: Function, target: Target) -> None:
    """Drops what orders launches that overlap, where they do not."""
    if not target.has("pdl"):
        _keep(function.body, lambda value: value.op not in GRID)


def dead_code(function: Function, target: Target) -> None:
    """Removes values that nothing uses, arrays that nothing reads, pointers that nothing follows."""
    while True:
        used: set[Value] = set()
        read: set[Ref] = set()
        followed: set[Ref] = set()
        for statement in walk(function.body):
            used.update(operands(statement))
            if isinstance(statement, Value) and statement.ref is not None:
                read.update(statement.reads)
                followed.update(statement.reads)
                if OPS[statement.op].kind == "read":
                    read.add(statement.ref)
                if statement.op == "offset" and statement.ref.base is not None:
                    followed.add(statement.ref.base)
                elif statement.op not in ("offset", "choose"):
                    followed.add(statement.ref)

        def live(value: Value) -> bool:
            if OPS[value.op].kind in ("pure", "read"):
                return value in used  # noqa: B023
            if value.op in ("offset", "choose"):
                return value.ref in followed  # noqa: B023
            if value.ref is not None and value.ref.space in ("local", "var", "tile"):
                return value.ref in read  # noqa: B023
            return True

        if not _keep(function.body, live):
            break
    mentioned = {r for s in walk(function.body) if isinstance(s, Value) for r in (s.ref, *s.reads)}
    mentioned |= {r.base for r in mentioned if r}
    function.refs = [r for r in function.refs if r in mentioned]


PASSES: tuple[Pass, ...] = (launches_in_turn, dead_code)


def run(function: Function, target: Target) -> Function:
    """The function after all passes."""
    verify(function, target)
    for rewrite in PASSES:
        rewrite(function, target)
        verify(function, target)
    return function
