"""Reads a Metal kernel's signature from the syntax tree that clang made of the emitted text.

The launcher binds buffers by what the text says, the values come in the order of the plan: a wrong buffer
index, type or address space shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MAX_BUFFERS = 31  # Metal feature set tables: buffer arguments of a function


class SignatureError(Exception):
    """The emitted text's kernel is not one that Metal, or the plan, would accept."""


@dataclass
class Parameter:
    """type is clang's spelling, with OpenCL's address spaces; index is set for the binding "buffer"."""

    name: str
    type: str
    binding: str = ""
    index: int | None = None


_BUILTIN_VALUES = {
    "thread_position_in_grid": "lanes_grid_place",
    "thread_position_in_threadgroup": "lanes_thread_position",
    "threadgroup_position_in_grid": "lanes_group_position",
    "threads_per_threadgroup": "lanes_group_size",
    "threadgroups_per_grid": "lanes_grid_size",
    "threads_per_grid": "lanes_grid_threads",
    "thread_index_in_threadgroup": "lanes_thread_index",
    "thread_index_in_simdgroup": "lanes_lane_index",
    "simdgroup_index_in_threadgroup": "lanes_simd_index",
    "simdgroups_per_threadgroup": "lanes_simd_count",
    "threads_per_simdgroup": "lanes_simd_width",
}
_SCALARS = {"U32": "uint", "U64": "ulong", "F32": "float"}

_FUNCTION = re.compile(r"^[|`]-FunctionDecl .*? (\w+) 'void \(")
_PARAMETER = re.compile(r"^[| ] [|`]-ParmVarDecl .*? (?:used |referenced )?(\w+) '([^']*)'")
_ANNOTATION = re.compile(r"^[| ] [| ] [|`]-AnnotateAttr .* \"(\w+)\"")
_INDEX = re.compile(r"^[| ] [| ] [| ] +[|`]-(?:IntegerLiteral|.*value: Int) .*?(\d+)$")
_POINTER = re.compile(r"(?:Parm)?VarDecl .*__generic")


def own_lines(dump: str, source: str) -> list[str]:
    """The part of a syntax tree that comes from the emitted file itself, which stands after its headers."""
    lines = dump.splitlines()
    first = re.compile(rf"^[|`]-\w+ 0x\w+ .*{re.escape(source)}:")
    start = next((i for i, line in enumerate(lines) if first.match(line)), len(lines))
    return lines[start:]


def parse(dump: str, source: str) -> dict[str, list[Parameter]]:
    """Every function of the emitted file with its parameters. SignatureError for a pointer in no address
    space.
    """
    functions: dict[str, list[Parameter]] = {}
    parameters: list[Parameter] = []
    for line in own_lines(dump, source):
        if _POINTER.search(line):
            raise SignatureError(f"pointer or reference without an address space: {line.strip(' |`-')}")
        if line[:2] in ("|-", "`-"):
            function = _FUNCTION.match(line)
            parameters = functions.setdefault(function[1], []) if function else []
        elif found := _PARAMETER.match(line):
            parameters.append(Parameter(found[1], found[2]))
        elif parameters and not parameters[-1].binding and (found := _ANNOTATION.match(line)):
            parameters[-1].binding = found[1]
        elif parameters and parameters[-1].index is None and (found := _INDEX.match(line)):
            parameters[-1].index = int(found[1])
    return functions


def _fits(kind: str, spelling: str) -> bool:
    """Whether a buffer parameter's type is what the plan's argument needs."""
    if kind == "Input":
        return re.fullmatch(r"const __(?:global|constant) [\w ]+\*(?:__private)?", spelling) is not None
    if kind == "Output":
        return re.fullmatch(r"__global [\w ]+\*(?:__private)?", spelling) is not None
    return re.fullmatch(rf"(?:const )?__constant {_SCALARS[kind]} &(?:__private)?", spelling) is not None


def check(symbol: str, parameters: Sequence[Parameter], kinds: Sequence[str]) -> None:
    """SignatureError where the kernel's buffers are not, index by index, what the plan's entry has."""
    unbound = [p.name for p in parameters if not p.binding]
    if unbound:
        raise SignatureError(f"{symbol}: parameters without a binding attribute: {', '.join(unbound)}")
    buffers = {p.index: p for p in parameters if p.binding == "buffer"}
    indices = [p.index for p in parameters if p.binding == "buffer"]
    if len(buffers) != len(indices):
        raise SignatureError(f"{symbol}: duplicate buffer index: {indices}")
    if sorted(i for i in buffers if i is not None) != list(range(len(kinds))) or len(kinds) > MAX_BUFFERS:
        raise SignatureError(
            f"{symbol}: buffer indices {indices}; the plan's entry has {len(kinds)} arguments"
        )
    for index, kind in enumerate(kinds):
        parameter = buffers[index]
        if not _fits(kind, parameter.type):
            raise SignatureError(
                f"{symbol}: buffer({index}) is '{parameter.type} {parameter.name}', wanted {kind}"
            )


def _builtin(parameter: Parameter) -> str:
    function = _BUILTIN_VALUES.get(parameter.binding)
    found = re.search(r"\b(uint|ushort)([23]?)$", parameter.type)
    if not function or not found:
        raise SignatureError(
            f"parameter {parameter.name}: no launcher for {parameter.type} [[{parameter.binding}]]"
        )
    return f"lanes_builtin<{found[1]}{found[2]}>({function}())"


def _buffer(parameter: Parameter) -> str:
    spelling = re.sub(r"__private$", "", parameter.type).strip()
    if spelling.endswith("&"):
        return f"*({spelling[:-1]}*)addresses[{parameter.index}]"
    return f"({spelling})addresses[{parameter.index}]"


def launchers(
    functions: dict[str, list[Parameter]], wanted: Iterable[tuple[str, Sequence[str]]]
) -> Iterator[str]:
    """The text of lanes_call_<symbol> for each (symbol, kinds of its plan's entry)."""
    for symbol, kinds in wanted:
        if symbol not in functions:
            raise SignatureError(
                f"no kernel {symbol} in the text; it has {', '.join(sorted(functions)) or 'none'}"
            )
        parameters = functions[symbol]
        check(symbol, parameters, kinds)
        values = [_buffer(p) if p.binding == "buffer" else _builtin(p) for p in parameters]
        yield (
            f'extern "C" void lanes_call_{symbol}(LANES_PRIVATE ulong* addresses) {{\n'
            f"    {symbol}(\n        " + ",\n        ".join(values) + ");\n}\n"
        )
