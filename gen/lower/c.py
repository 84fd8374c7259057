"""Spellings that C++, CUDA C++ and Metal share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..ir.nodes import MATH, Function, Ref, Value, float_bits
from .walker import Refused

Spell = Callable[[Value, list[str]], str]

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%",
    "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
_LOGICAL = {"and": "&&", "or": "||", "xor": "!="}
_LANES = "xyzw"


def _infix(value: Value, args: list[str]) -> str:
    table = _LOGICAL if value.args[0].dtype == "bool" and value.op in _LOGICAL else _INFIX
    return f"({args[0]} {table[value.op]} {args[1]})"


def call(name: str) -> Spell:
    return lambda value, args: f"{name}({', '.join(args)})"


HALVES = ("max_halves", "min_halves", "fma_bf16_halves")


PACKED = {"pack_e4m3": (3, 7, 448.0), "pack_e5m2": (2, 15, 57344.0)}
"""Of the floats that an operation packs: bits of the mantissa, bias, largest number."""


def halves() -> dict[str, Spell]:
    """Calls of the helpers for halves of words."""
    return {name: call(name) for name in HALVES}


def by_types(table: dict[tuple[str, str], str], what: str) -> Spell:
    """A conversion chosen by (from, to): a template with {0}."""

    def spell(value: Value, args: list[str]) -> str:
        key = (value.args[0].dtype, value.dtype)
        if key not in table:
            raise Refused(f"{what} from {key[0]} to {key[1]} has no spelling")
        return table[key].format(args[0])

    return spell


def numeric_casts(types: dict[str, str]) -> dict[tuple[str, str], str]:
    """Value conversions among integers, and between u32, i32 and f32, by a constructor."""
    integers = ("u8", "u16", "u32", "u64", "i32")
    pairs = [(a, b) for a in integers for b in (*integers, "f32")] + [("f32", "u32"), ("f32", "i32")]
    return {(a, b): f"{types[b]}({{0}})" for a, b in pairs}


def functions(names: dict[str, str], prefix: str = "", suffix: str = "") -> dict[str, Spell]:
    """The operations of `ir.MATH`: each by its own name, or by that in `names`, between prefix and suffix."""
    return {op: call(names.get(op, f"{prefix}{op}{suffix}")) for op in MATH}


def extreme(integer: str, real: str) -> Spell:
    """min or max: integers by one function, floats by another that propagates NaN."""
    return lambda value, args: f"{real if value.dtype == 'f32' else integer}({', '.join(args)})"


def literal_of(types: dict[str, str], from_bits: str) -> Callable[[str, float], str]:
    """Constants; `from_bits` turns an integer into the f32 of those bits, for what has no decimal
    spelling."""

    def literal(dtype: str, number: float) -> str:
        if dtype == "bool":
            return "true" if number else "false"
        if dtype == "f32":
            if not math.isfinite(number):
                return from_bits.format(f"0x{0x7FC00000 if math.isnan(number) else float_bits(number):08x}u")
            text = repr(float(number))
            return f"({text}f)" if number < 0 else f"{text}f"
        if dtype == "u32":
            return f"0x{int(number):x}u" if number > 0xFFFF else f"{int(number)}u"
        if dtype == "u64":
            return f"{types['u64']}({int(number)}{'u' if number < 2**32 else 'ull'})"
        return f"{types[dtype]}({int(number)})"

    return literal


def indexed(ref: Ref, index: str) -> str:
    return f"{ref.name}[{bare(index)}]"


def bare(text: str) -> str:
    """Without one pair of parentheses around the whole."""
    depth = 0
    for i, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def lane(value: Value, args: list[str]) -> str:
    return f"{args[0]}.{_LANES[int(value.attrs['lane'])]}"


COMMON: dict[str, Spell] = {
    **dict.fromkeys(_INFIX, _infix),
    "neg": lambda value, args: f"(-{args[0]})",
    "not": lambda value, args: f"({'!' if value.dtype == 'bool' else '~'}{args[0]})",
    "select": lambda value, args: f"({args[0]} ? {args[1]} : {args[2]})",
    "load": lambda value, args: indexed(value.ref, args[0]) if value.ref else "",
    "get": lambda value, args: value.ref.name if value.ref else "",
    "word": lane,
}


def dot4_i8(head: str, signed: str, word: str) -> str:
    """The helper of that name where there is no instruction: `head` stands before it. Sums wrap."""
    products = "".join(
        f"    sum += {word}(({signed}(a << {shift}) >> 24) * ({signed}(b << {shift}) >> 24));\n"
        for shift in (24, 16, 8, 0)
    )
    return f"""{head} {signed} dot4_i8({word} a, {word} b, {signed} total)
{{
    {word} sum = {word}(total);
{products}    return {signed}(sum);
}}
"""


def extreme_halves(name: str, head: str, word: str) -> str:
    """The helper max_halves or min_halves where there is no instruction: `head` stands before it."""
    sign = ">" if name == "max_halves" else "<"
    halves = [
        f"(a & {mask}) {sign} (b & {mask}) ? a & {mask} : b & {mask}" for mask in ("0xffff0000u", "0xffffu")
    ]
    return f"""{head} {word} {name}({word} a, {word} b)
{{
    return ({halves[0]}) | ({halves[1]});
}}
"""


def fma_halves(word: str, to_float: str, to_word: str) -> str:
    """Statements for `result`, 0 before: a * b + c of the halves of words, which are bf16, by f32. to_float,
    to_word: what takes the bits of one as the other."""
    return f"""    for ({word} at = 0; at < 32; at += 16) {{
        const float product = {to_float}(a >> at << 16) * {to_float}(b >> at << 16);
        const {word} sum = {to_word}(product + {to_float}(c >> at << 16));
        result |= (sum + 0x7fffu + (sum >> 16 & 1u)) >> 16 << at;
    }}
"""


def fma_bf16_halves(head: str, word: str, to_float: str, to_word: str) -> str:
    """The helper of that name where there is no instruction: `head` stands before it."""
    return f"""{head} {word} fma_bf16_halves({word} a, {word} b, {word} c)
{{
    {word} result = 0;
{fma_halves(word, to_float, to_word)}    return result;
}}
"""


def pack_floats(name: str, head: str, word: str, to_float: str, to_word: str) -> str:
    """The helper of that name where there is no instruction: `head` stands before it. A number is rounded by
    adding to it a power of two whose last place is its step."""
    mantissa, bias, most = PACKED[name]
    cut, least = 23 - mantissa, 128 - bias
    return f"""{head} {word} {name}(float a, float b, float c, float d)
{{
    const float values[4] = {{a, b, c, d}};
    {word} result = 0;
    for ({word} i = 0; i < 4; ++i) {{
        const {word} bits = {to_word}(values[i]), size = bits & 0x7fffffffu;
        const {word} near = size < 0x{float_bits(most):x}u ? size : 0x{float_bits(most):x}u;
        const {word} power = near >> 23 > {least}u ? near >> 23 : {least}u;
        const {word} sum = {to_word}({to_float}((power + {cut}u) << 23) + {to_float}(near));
        const {word} code = sum + (sum >> {cut}) - {(least + cut) << mantissa}u;
        result |= ((code & 0x7fu) | (bits >> 24 & 0x80u)) << 8 * i;
    }}
    return result;
}}
"""


def declare(types: dict[str, str], fragment: Callable[[Ref], tuple[str, str]]) -> Spell:
    """Local arrays, variables and tiles; `fragment`: what stands before and after a tile's name and count."""

    def spell(value: Value, args: list[str]) -> str:
        ref = value.ref
        if ref is None:
            raise KeyError("declare names no object")
        if ref.space == "var":
            return f"{types[ref.dtype]} {ref.name} = {args[0]};"
        before, after = fragment(ref) if ref.space == "tile" else (types[ref.dtype], "")
        return f"{before} {ref.name}[{ref.size}]{after};"

    return spell


def tile_operands(value: Value, args: list[str]) -> tuple[list[str], Ref, str, str]:
    """Of a tile operation: its fragments (those written first), the memory that it reaches, where, and the
    distance of rows."""
    refs = [r for r in (value.ref, *value.reads) if r is not None]
    tiles = [r for r in refs if r.space == "tile"]
    memory = next((r for r in refs if r.space != "tile"), tiles[0])
    at, stride = (args[1], args[2]) if memory.space != "tile" else ("", "")
    return [f"{r.name}[{bare(i)}]" for r, i in zip(tiles, args)], memory, at, stride


def statements(
    types: dict[str, str], pointer: Callable[[Ref], str], fragment: Callable[[Ref], tuple[str, str]]
) -> dict[str, Spell]:
    """Effects that every language writes alike."""
    return {
        "declare": declare(types, fragment),
        "set": lambda value, args: f"{value.ref.name if value.ref else ''} = {args[0]};",
        "store": lambda value, args: f"{indexed(value.ref, args[0]) if value.ref else ''} = {args[1]};",
        "offset": lambda value, args: _offset(value, args, pointer),
        "choose": lambda value, args: _choose(value, args, pointer),
    }


def _offset(value: Value, args: list[str], pointer: Callable[[Ref], str]) -> str:
    ref = value.ref
    if ref is None or ref.base is None:
        raise KeyError("offset moves no buffer")
    return f"{pointer(ref)} {ref.name} = {ref.base.name} + {args[0]};"


def _choose(value: Value, args: list[str], pointer: Callable[[Ref], str]) -> str:
    if value.ref is None:
        raise KeyError("choose names no buffer")
    then, orelse = (each.name for each in value.reads)
    return f"{pointer(value.ref)} {value.ref.name} = {args[0]} ? {then} : {orelse};"


def tables(functions: Sequence[Function], kind: str, literal: Callable[[str, float], str]) -> str:
    """The constant tables of a file, each once. ValueError where one name has two meanings."""
    found: dict[str, Ref] = {}
    for ref in (r for f in functions for r in f.refs if r.space == "table"):
        if repr(found.setdefault(ref.name, ref).values) != repr(ref.values):
            raise ValueError(f"two tables of different values are called {ref.name}")
    return "\n".join(table(kind, name, ref.values, literal) for name, ref in found.items())


def table(kind: str, name: str, values: tuple[float, ...], literal: Callable[[str, float], str]) -> str:
    """A constant array, eight entries a line."""
    cells = [literal("f32", v) for v in values]
    lines = [", ".join(cells[i : i + 8]) for i in range(0, len(cells), 8)]
    return f"{kind} {name}[{len(values)}] = {{\n    " + ",\n    ".join(lines) + "};"
