"""The host code around a cell's kernels: what a call holds, and which kernel is launched how.

`Call` has the arguments of every entry; `launch` takes the first entry whose conditions hold, on the grid
that its formulas give, as the loader does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..lower import c
from .cell import ExportError, Source

_TYPES = {"u32": "uint32_t", "u64": "uint64_t", "f32": "float"}
_ROLES = {"in": "const void*", "out": "void*", "workspace": "void*"}
_INFIX = {
    "mul": "*", "add": "+", "sub": "-", "div": "/", "mod": "%",
    "lt": "<", "le": "<=", "eq": "==", "ge": ">=", "gt": ">", "and": "&&", "or": "||",
}  # fmt: skip
_CALLS = {"ceildiv": "ceildiv", "min": "smaller", "max": "larger"}


@dataclass(frozen=True)
class Field:
    """A member of Call: an argument of an entry, or a number that formulas alone name (type int64_t)."""

    name: str
    role: str
    type: str

    @property
    def symbol(self) -> str:
        stem = self.name.replace(".", "_")
        return f"{stem}_pitch" if self.role == "pitch" else stem


def fields(source: Source) -> tuple[Field, ...]:
    """What a call of the cell's kernels holds, in the order of the first kernel that has it."""
    found: dict[str, Field] = {}
    for launch in _launches(source):
        for name, kind, role in launch["args"]:
            field = Field(name, role, _ROLES.get(role, "") if kind == "ptr" else _TYPES[kind])
            known = found.setdefault(field.symbol, field)
            if known.type != field.type:
                raise ExportError(
                    f"{source.key}: {name} is {known.type} of one kernel, {field.type} of another"
                )
    for name in _formula_names(source):
        if name not in found:
            found[name] = Field(name, "shape", "int64_t")
    return tuple(found.values())


def _launches(source: Source) -> Iterator[Mapping[str, Any]]:
    """Every launch of every entry."""
    for entry in source.entries:
        yield from entry.get("prologue", ())
        yield entry


def _formula_names(source: Source) -> list[str]:
    """Numbers of a call that formulas name: not what `_spell` finds elsewhere."""
    known: dict[str, None] = {}
    for formula in _formulas(source):
        known.update(dict.fromkeys(_leaves(formula, source.kernel.get("extents", {}))))
    return [name for name in known if name != "sms" and not name.startswith("has_")]


def _formulas(source: Source) -> Iterator[Any]:
    """Every formula of every launch."""
    for launch in _launches(source):
        yield from (*launch["grid"], launch.get("shared", 0), launch.get("workspace", 0))
        yield from launch.get("when", ())


def _leaves(formula: Any, extents: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(formula, str):
        yield from _leaves(extents[formula], extents) if formula in extents else (formula,)
    elif not isinstance(formula, int):
        for part in formula[1:]:
            yield from _leaves(part, extents)


def spell(formula: Any, source: Source, member: str = "call.") -> str:
    """A formula in C++, of int64_t. member: what stands before the name of a number; "": names are variables
    of int64_t."""
    if isinstance(formula, int):
        return str(formula)
    if isinstance(formula, str):
        return _name(formula, source, member)
    left, right = (spell(each, source, member) for each in formula[1:])
    if formula[0] in _INFIX:
        return f"({left} {_INFIX[formula[0]]} {right})"
    return f"{_CALLS[formula[0]]}({c.bare(left)}, {c.bare(right)})"


def _name(name: str, source: Source, member: str) -> str:
    if not member:
        return name
    extents = source.kernel.get("extents", {})
    if name in extents:
        return spell(extents[name], source, member)
    if name == "sms":
        return "multiprocessors()"
    if name.startswith("has_"):
        arrays = fields_of(source, name.removeprefix("has_"))
        return f"int64_t({member}{arrays[0]} != nullptr)" if arrays else "0"
    return f"int64_t({member}{name})"


def fields_of(source: Source, operand: str) -> list[str]:
    """The members that hold an operand's arrays."""
    arrays = [str(arg[0]) for launch in _launches(source) for arg in launch["args"] if arg[1] == "ptr"]
    return [n.replace(".", "_") for n in dict.fromkeys(arrays) if n.partition(".")[0] == operand]


_HEAD = """\
// What the launch formulas are made of.
static int64_t ceildiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t multiprocessors()
{
    int device = 0, count = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}
"""
_START = """\
// Launches one kernel; an empty grid is nothing to do.
static cudaError_t start(const void* kernel, int64_t x, int64_t y, int64_t z, unsigned threads, size_t shared,
                         void** args, cudaStream_t stream)
{
    if (x == 0 || y == 0 || z == 0) {
        return cudaSuccess;
    }
    return cudaLaunchKernel(kernel, dim3(unsigned(x), unsigned(y), unsigned(z)), dim3(threads), args, shared,
                            stream);
}
"""


def parts(source: Source, title: str, headers: Iterable[str]) -> tuple[str, ...]:
    """How every export begins: what it is, the kernels, and their launch."""
    includes = "".join(f"#include <{header}>\n" for header in headers)
    return f"{source.header}\n// {title}\n", includes, source.text, text(source)


def text(source: Source) -> str:
    """Call, workspace_bytes where there is one, and launch."""
    beside = notes(source)
    members = [(f"{field.type} {field.symbol};", beside.get(field.symbol, "")) for field in fields(source)]
    width = max(len(member) for member, _ in members)
    struct = [f"    {member:{width}}  // {note}" if note else f"    {member}" for member, note in members]
    told = "// One call: arrays are on the device, row-major, aligned to 16 bytes."
    whole = "\n".join([told, "struct Call {", *struct, "};", ""])
    parts = [_helpers(source), whole, _workspace(source), _START, _launch(source)]
    return "\n".join(part for part in parts if part)


def _helpers(source: Source) -> str:
    """The functions that formulas call."""
    spelt = " ".join(spell(formula, source) for formula in _formulas(source))
    note, *functions = re.split(r"^(?=static int64_t )", _HEAD, flags=re.M)
    used = [each for each in functions if f"{each.split()[2].partition('(')[0]}(" in spelt]
    return note + "".join(used) if used else ""


def _workspace(source: Source) -> str:
    if not has_workspace(source):
        return ""
    sizes = [(entry, spell(entry.get("workspace", 0), source)) for entry in source.entries]
    lines = [f"    {_when(entry, source)}return size_t({c.bare(size)});" for entry, size in sizes]
    return "\n".join(
        ["// Bytes of memory that the kernels need beside their operands.",
         "static size_t workspace_bytes(const Call& call)", "{", *lines, *_otherwise(source, "0"), "}", ""]
    )  # fmt: skip


def has_workspace(source: Source) -> bool:
    """Whether any entry needs memory of its own."""
    return any(field.role == "workspace" for field in fields(source))


def _when(entry: Mapping[str, Any], source: Source) -> str:
    conditions = [c.bare(spell(formula, source)) for formula in entry["when"]]
    if not conditions:
        return ""
    whole = conditions[0] if len(conditions) == 1 else " && ".join(f"({c})" for c in conditions)
    return f"if ({whole}) "


def _otherwise(source: Source, value: str) -> list[str]:
    """What follows where no entry's conditions hold, unless the last has none."""
    return [f"    return {value};"] if source.entries[-1]["when"] else []


def _launch(source: Source) -> str:
    lines = [
        "static cudaError_t launch(const Call& given, cudaStream_t stream)",
        "{",
        "    Call call = given;",
    ]
    for entry in source.entries:
        when = _when(entry, source)
        lines += [f"    {when or ''}{{", *_started(entry, source), "    }"]
        if not when:
            break
    return "\n".join(
        ["// The first kernel that takes these sizes; cudaErrorInvalidValue where none does.", *lines,
         *_otherwise(source, "cudaErrorInvalidValue"), "}", ""]
    )  # fmt: skip


def _started(entry: Mapping[str, Any], source: Source) -> list[str]:
    """The launches of an entry, in order."""
    lines: list[str] = []
    if entry.get("zeroed"):
        lines += _returned("cudaMemsetAsync(call.workspace, 0, workspace_bytes(call), stream)")
    launches: Sequence[Mapping[str, Any]] = (*entry.get("prologue", ()), entry)
    for i, each in enumerate(launches):
        args = f"args{i}" if len(launches) > 1 else "args"
        call = _one(each, source, args)
        lines += call[:-1] + ([f"        return {call[-1]};"] if each is entry else _returned(call[-1]))
    return lines


def _returned(call: str) -> list[str]:
    """A call whose error ends the launch."""
    return [f"        if (const cudaError_t error = {call}) {{", "            return error;", "        }"]


def _one(launch: Mapping[str, Any], source: Source, args: str) -> list[str]:
    """The lines before one launch, and its call."""
    symbols = [Field(name, role, "").symbol for name, _, role in launch["args"]]
    grid = ", ".join(c.bare(spell(axis, source)) for axis in launch["grid"])
    shared = c.bare(spell(launch.get("shared", 0), source))
    kernel = f"reinterpret_cast<const void*>({launch['symbol']})"
    lines = [f"        void* {args}[] = {{{', '.join(f'&call.{symbol}' for symbol in symbols)}}};"]
    if shared != "0":
        most = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        lines += [f"        cudaFuncSetAttribute({kernel},", f"            {most}, int({shared}));"]
    return [
        *lines,
        f"start({kernel},\n            {grid}, {launch['block'][0]}, {shared}, {args}, stream)",
    ]


def notes(source: Source) -> dict[str, str]:
    """What stands beside the members that hold arrays: type and shape, or the tensor whose part they are."""
    found: dict[str, str] = {}
    for operand in (*source.kernel["operands"], source.kernel["output"]):
        dtype = source.types.get(operand["name"]) or operand.get("dtype") or source.dtype
        shape = ", ".join(
            str(axis) if isinstance(axis, (int, str)) else c.bare(_plain(axis)) for axis in operand["shape"]
        )
        quantised = operand.get("kind", "array") != "array"
        fmt = source.format.name if quantised and source.format else dtype
        for symbol in fields_of(source, operand["name"]):
            part = "of " if quantised else ""
            found[symbol] = f"{part}{fmt} [{shape}]" + (", or null" if operand.get("optional") else "")
    return found


def _plain(formula: Any) -> str:
    """A formula for people."""
    if isinstance(formula, (int, str)):
        return str(formula)
    operation, left, right = formula[0], _plain(formula[1]), _plain(formula[2])
    return f"({left} {_INFIX[operation]} {right})" if operation in _INFIX else f"{operation}({left}, {right})"
