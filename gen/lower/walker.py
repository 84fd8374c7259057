"""The walk that turns a `Function` into C-like text. A `Dialect` supplies spellings; nothing else differs.

An operation used once, in the block that defines it, is written in place; anything else gets a name. A read
keeps its place among effects: it is named before the first effect that does not consume it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..ir.nodes import OPS, Block, For, Function, If, Ref, Statement, Value, While, is_const, operands, walk

WIDTH = 100


class Refused(Exception):
    """An operation that a language cannot express: operation, language, reason."""


@dataclass(frozen=True)
class Dialect:
    """A language's spellings.

    types: scalar type names. spell[op] writes an expression from its operands' text; entries of `helpers`
    are functions that the text may call: only those that a kernel uses are emitted, in table order.
    """

    name: str
    types: dict[str, str]
    spell: dict[str, Callable[[Value, list[str]], str]]
    statements: dict[str, Callable[[Value, list[str]], str]]
    literal: Callable[[str, float], str]
    pointer: Callable[[Ref], str]
    vector: Callable[[int], str]
    index: Callable[[Ref, str], str]
    unroll: Callable[[int], str]
    helpers: dict[str, str]


@dataclass
class _Text:
    dialect: Dialect
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    names: dict[Value, str] = field(default_factory=dict)
    uses: dict[Value, int] = field(default_factory=dict)
    home: dict[Value, Block] = field(default_factory=dict)
    inner: set[Value] = field(default_factory=set)  # used from a nested block
    pending: dict[Value, None] = field(default_factory=dict)
    count: int = 0
    loops: int = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)


def body(function: Function, dialect: Dialect, depth: int = 1) -> list[str]:
    """The statements of a kernel, indented by `depth` levels."""
    text = _Text(dialect, depth=depth)
    _count(text, function.body)
    _block(text, function.body)
    return text.lines


def used_helpers(dialect: Dialect, text: str) -> list[str]:
    """The helpers that `text` calls, directly or through another helper, in table order."""
    return used(dialect.helpers, text)


def used(helpers: Mapping[str, str], text: str) -> list[str]:
    """Of the functions in `helpers`, by name, those that `text` calls, or that these call."""
    needed: set[str] = set()
    changed = True
    while changed:
        whole = text + "".join(helpers[name] for name in needed)
        more = {name for name in helpers if re.search(rf"\b{name}\b", whole)} - needed
        needed |= more
        changed = bool(more)
    return [helpers[name] for name in helpers if name in needed]


IN_PLACE = frozenset({"const", "param", "index"})
"""Operations that the walk itself writes, in every language."""


def lowers(op: str, dialect: Dialect) -> bool:
    """Whether the language can express an operation."""
    return op in IN_PLACE or op in dialect.spell or op in dialect.statements


def refused(function: Function, dialect: Dialect) -> str | None:
    """Why the language cannot express the function, or None."""
    for statement in walk(function.body):
        if isinstance(statement, Value) and (reason := unspelled(statement, dialect)):
            return reason
    return None


def unspelled(value: Value, dialect: Dialect) -> str | None:
    """Why the language cannot express an operation on its types, or None."""
    if not lowers(value.op, dialect):
        return f"operation {value.op} has no lowering to {dialect.name}"
    spell = dialect.spell.get(value.op) or dialect.statements.get(value.op)
    try:
        if spell:
            spell(value, ["x"] * len(value.args))
    except Refused as error:
        return str(error)
    return None


def _count(text: _Text, block: Block) -> None:
    for statement in block.statements:
        if isinstance(statement, Value):
            text.home[statement] = block
        if isinstance(statement, While):
            _count(text, statement.head)
            _use(text, statement, statement.head)
            _count(text, statement.body)
            continue
        _use(text, statement, block)
        if isinstance(statement, For):
            _count(text, statement.body)
        elif isinstance(statement, If):
            _count(text, statement.then)
            _count(text, statement.orelse)


def _use(text: _Text, statement: Statement, block: Block) -> None:
    for operand in operands(statement):
        text.uses[operand] = text.uses.get(operand, 0) + 1
        if text.home.get(operand) is not block:
            text.inner.add(operand)


def _block(text: _Text, block: Block) -> None:
    outer, text.pending = text.pending, {}
    _statements(text, block)
    text.pending = outer


def _statements(text: _Text, block: Block) -> None:
    for statement in block.statements:
        if isinstance(statement, Value) and statement.dtype:
            _value(text, statement)
        else:
            _effect(text, statement)


def _value(text: _Text, value: Value) -> None:
    if value.op in IN_PLACE:
        return
    if OPS[value.op].kind == "collective":
        _flush(text, value)
    once = text.uses.get(value, 0) == 1 and value not in text.inner and OPS[value.op].kind != "collective"
    if once and len(_expression(text, value)) <= WIDTH:
        text.pending[value] = None
    else:
        _name(text, value)


def _name(text: _Text, value: Value) -> None:
    expression = _take(text, value)
    kind = text.dialect.vector(value.width) if value.width > 1 else text.dialect.types[value.dtype]
    name = f"v{text.count}"
    text.count += 1
    text.line(f"const {kind} {name} = {_bare(expression)};")
    text.names[value] = name


def _closure(text: _Text, value: Value, found: set[Value]) -> set[Value]:
    for arg in value.args:
        if arg in text.pending and arg not in found:
            found.add(arg)
            _closure(text, arg, found)
    return found


def _reads(text: _Text, value: Value) -> bool:
    return OPS[value.op].kind == "read" or any(_reads(text, a) for a in value.args if a in text.pending)


def _flush(text: _Text, statement: Statement) -> None:
    """Names the pending reads that `statement` does not consume itself."""
    consumed: set[Value] = set()
    for operand in operands(statement):
        if operand in text.pending:
            consumed.add(operand)
            _closure(text, operand, consumed)
    for value in [v for v in text.pending if v not in consumed]:
        if value in text.pending and _reads(text, value):
            _name(text, value)


def _take(text: _Text, value: Value) -> str:
    """The value's expression, its pending operands no longer pending."""
    expression = _expression(text, value)
    for arg in _closure(text, value, set()):
        del text.pending[arg]
    text.pending.pop(value, None)
    return expression


def _expression(text: _Text, value: Value) -> str:
    if value in text.names:
        return text.names[value]
    if value.op == "const":
        return text.dialect.literal(value.dtype, value.attrs["value"])  # type: ignore[arg-type]
    if value.op == "param":
        return str(value.attrs["name"])
    args = [_expression(text, arg) for arg in value.args]
    if value.op not in text.dialect.spell:
        raise Refused(f"operation {value.op} has no lowering to {text.dialect.name}")
    return text.dialect.spell[value.op](value, args)


def _bare(expression: str) -> str:
    """Without one pair of parentheses around the whole."""
    if not (expression.startswith("(") and expression.endswith(")")):
        return expression
    depth = 0
    for i, char in enumerate(expression):
        depth += (char == "(") - (char == ")")
        if depth == 0 and i < len(expression) - 1:
            return expression
    return expression[1:-1]


def _effect(text: _Text, statement: Statement) -> None:
    if isinstance(statement, While):
        _while(text, statement)
        return
    _flush(text, statement)
    if isinstance(statement, For):
        _for(text, statement)
    elif isinstance(statement, If):
        text.line(f"if ({_bare(_operand(text, statement.condition))}) {{")
        _nested(text, statement.then)
        if statement.orelse.statements:
            text.line("} else {")
            _nested(text, statement.orelse)
        text.line("}")
    else:
        args = [_bare(_operand(text, arg)) for arg in statement.args]
        if statement.op not in text.dialect.statements:
            raise Refused(f"operation {statement.op} has no lowering to {text.dialect.name}")
        text.line(text.dialect.statements[statement.op](statement, args))


def _operand(text: _Text, value: Value) -> str:
    return _take(text, value) if value in text.pending else _expression(text, value)


def _for(text: _Text, loop: For) -> None:
    for bound in (loop.stop, loop.step):  # the text evaluates them on every trip, the loop once
        if bound in text.pending and _reads(text, bound):
            _name(text, bound)
    start, stop, step = (_operand(text, v) for v in (loop.start, loop.stop, loop.step))
    name = f"i{text.loops}"
    text.loops += 1
    text.names[loop.index] = name
    kind = text.dialect.types["u32"]
    if loop.unroll:
        trips = [int(v.attrs["value"]) for v in (loop.start, loop.stop, loop.step)]
        text.line(text.dialect.unroll(len(range(*trips))))
    advance = f"++{name}" if is_const(loop.step, 1) else f"{name} += {step}"
    text.line(f"for ({kind} {name} = {_bare(start)}; {name} < {stop}; {advance}) {{")
    _nested(text, loop.body)
    text.line("}")


def _while(text: _Text, loop: While) -> None:
    """A head that is more than an expression stands in the loop."""
    for value in list(text.pending):
        if value in text.pending and _reads(text, value):
            _name(text, value)
    outer, text.pending = text.pending, {}
    text.line("for (;;) {")
    text.depth += 1
    _statements(text, loop.head)
    text.line(f"if (!{_operand(text, loop.condition)}) {{")
    text.line("    break;")
    text.line("}")
    text.pending = {}
    _block(text, loop.body)
    text.depth -= 1
    text.line("}")
    text.pending = outer


def _nested(text: _Text, block: Block) -> None:
    text.depth += 1
    _block(text, block)
    text.depth -= 1
