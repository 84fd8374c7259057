"""What an exported program runs its kernel on: operands and expected results of the kernel's check.

The only part of the generator that asks the run-time package, where the checks are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wootz import checks, reference
from wootz.broadcast import broadcast
from wootz.errors import WootzError
from wootz.formats import Descriptor
from wootz.layouts import made_fields
from wootz.staging import underlying
from wootz.verify import operand_dtypes

from ..build import index
from ..variants.formula import evaluate
from .cell import ExportError, Source

SMS = 132
"""Multiprocessors that a size is chosen for; the program asks its own device."""
USUAL = 64 << 10
"""Bytes of arrays that a program has where no size is asked for."""
MOST = 4 << 20
"""Bytes of arrays that a program may have: they are written out in its text."""
_LARGEST = 1 << 24
_WORK = 400_000
_EXACT = frozenset({"bool", "i8", "u8", "i32", "u32"})


@dataclass(frozen=True)
class Wanted:
    """What an array should hold afterwards: `bits`, or for numbers of a type, an interval of each, in float64
    (NaN: a NaN is wanted)."""

    dtype: str
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    bits: bytes = b""

    @property
    def bytes(self) -> int:
        return len(self.bits) + (2 * self.low.nbytes if self.low is not None else 0)

    @property
    def telling(self) -> bool:
        """Whether memory that nothing wrote to would not do: a good part are numbers."""
        if self.low is None:
            return bool(self.bits.strip(b"\xff"))
        return self.low.size > 0 and float(np.isfinite(self.low).mean()) > 0.25


@dataclass(frozen=True)
class Array:
    """One array of the call, by the name of its argument. data: what it holds before; None: a null pointer;
    a written one that held nothing is all ones, which are NaN. wanted: None of what is only read."""

    name: str
    role: str
    data: bytes | None
    wanted: Wanted | None = None


@dataclass(frozen=True)
class Problem:
    """size: as the check names it. numbers: shapes, pitches and scalars by (argument, role), those that
    formulas alone name among them. bytes: of all arrays, as a program writes them out."""

    size: Mapping[str, int]
    arrays: tuple[Array, ...]
    numbers: Mapping[tuple[str, str], float]
    names: Mapping[str, int]

    @property
    def telling(self) -> bool:
        """Whether every result tells right from wrong."""
        return all(a.wanted.telling for a in self.arrays if a.wanted)

    @property
    def bytes(self) -> int:
        return sum(len(a.data or b"") + (a.wanted.bytes if a.wanted else 0) for a in self.arrays)


def problem(source: Source, sizes: Mapping[str, int]) -> Problem:
    """Random operands and what the kernel should make of them, the same for the same cell and size. sizes:
    those asked for, by the check's names; the others are a size of the check's own.

    Raises ExportError: a kernel without a check, a name that is no size of the kernel, a size that it does
    not take, arrays beyond MOST.
    """
    fmt = Descriptor.parse(index.format_record(source.format)) if source.format else None
    known = _sizes(source, fmt)
    usual = _usual(source, fmt, known)
    if not sizes:
        return _told(source, usual)
    for given, extent in sizes.items():
        if given not in usual.size:
            raise ExportError(
                f"--size {given}: {source.kernel['key']} has the sizes {', '.join(usual.size)}; "
                "name one of them"
            )
        if extent < 1:
            raise ExportError(f"--size {given}={extent}: {_range(source, given)}")
    wanted = {**usual.size, **sizes}
    if prod(wanted.values()) > _LARGEST:
        raise ExportError(
            f"{source.key}: {_spelt(wanted)} is too much to be written out: the sizes' product may be "
            f"{_LARGEST}; choose smaller ones"
        )
    found = _draw(source, fmt, wanted)
    if found.bytes > MOST:
        raise ExportError(
            f"{source.key}: operands and results at {_spelt(found.size)} are {found.bytes} bytes; a program "
            f"holds at most {MOST}: choose smaller sizes"
        )
    return _told(source, found)


def _range(source: Source, name: str) -> str:
    """What a size may be: as the kernel says, but of nothing a program would prove nothing."""
    least, most = source.kernel["limits"].get(name, (1, ""))
    end = f"to {most}" if most else "or more"
    why = f"; {source.kernel['key']} takes {least}, too, but a program of nothing proves nothing"
    return f"wanted {max(1, least)} {end}{why if least < 1 else ''}"


def _told(source: Source, drawn: Problem) -> Problem:
    """The problem, if a program of it can fail."""
    if not drawn.telling:
        raise ExportError(
            f"{source.key}: at {_spelt(drawn.size)} the check's operands make NaN of most results, so that a "
            "program would prove nothing: choose other sizes"
        )
    return drawn


def _sizes(source: Source, fmt: Descriptor | None) -> list[dict[str, int]]:
    """The sizes that the check has."""
    try:
        check = checks.check(str(source.kernel["key"]))
    except WootzError as error:
        raise ExportError(f"{source.key}: {error}") from error
    given = (*check.small(fmt), *check.shapes(fmt))
    return [{name: extent for name, extent in size.items() if name != "sms"} for size in given]


def _usual(source: Source, fmt: Descriptor | None, sizes: Sequence[Mapping[str, int]]) -> Problem:
    """Of the check's problems whose result tells right from wrong: within USUAL one that leaves no extent out
    and has the most blocks, in this order; where all are larger, the smallest. Those that take long are
    looked at where no other tells."""
    quick = [size for size in sizes if prod(size.values()) <= _WORK]
    slow = [size for size in sizes if _WORK < prod(size.values()) <= _LARGEST]
    first = [_draw(source, fmt, size) for size in quick]
    drawn = [each for each in first if each.telling]
    drawn = drawn or [each for size in slow if (each := _draw(source, fmt, size)).telling]
    drawn = drawn or first or [_draw(source, fmt, sizes[0])]
    fitting = [each for each in drawn if each.bytes <= USUAL] or [min(drawn, key=lambda each: each.bytes)]
    return max(fitting, key=lambda each: (all(each.size.values()), _blocks(source, each), each.bytes))


def _blocks(source: Source, drawn: Problem) -> int:
    return prod(evaluate(axis, drawn.names) for axis in entry_for(source, drawn)["grid"])


def entry_for(source: Source, drawn: Problem) -> Mapping[str, Any]:
    """The entry that is launched on SMS multiprocessors: the first whose conditions hold. ExportError."""
    for entry in source.entries:
        if all(evaluate(formula, drawn.names) for formula in entry["when"]):
            return entry
    raise ExportError(f"{source.key}: no kernel of the cell takes {_spelt(drawn.size)}")


def _spelt(size: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {extent}" for name, extent in size.items())


def _draw(source: Source, fmt: Descriptor | None, size: Mapping[str, int]) -> Problem:
    """The problem of one size."""
    kernel, key = source.kernel, str(source.kernel["key"])
    _check_limits(source, size)
    rng = np.random.default_rng(list(f"{source.key} {sorted(size.items())}".encode()))
    try:
        drawn = checks.check(key).operands(fmt, size, source.dtype, source.options, rng)
        expected = checks.expect(key, source.options, drawn, source.dtype)
        updates = checks.updates(key, source.options, drawn, source.dtype)
        exact = checks.exact(key, source.options, drawn, source.dtype)
        given = _completed(kernel, drawn)
        names = _names(kernel, given, size)
    except (WootzError, ArithmeticError, AssertionError, LookupError, ValueError) as error:
        raise ExportError(f"{source.key}: cannot be run at {_spelt(size)}: {error}") from error
    for each in kernel["operands"]:
        if each.get("strided"):
            given[each["name"]] = underlying(given[each["name"]])[0]
    numbers: dict[tuple[str, str], float] = {(name, "shape"): value for name, value in names.items()}
    numbers.update(_numbers(given))
    found = Problem(size, (), numbers, names)
    args = _arrays(source, entry_for(source, found))
    wanted = _wanted(source, args, given, expected, updates, exact)
    arrays = tuple(_array(name, role, given, wanted) for name, role in args)
    return Problem(size, arrays, numbers, names)


def _arrays(source: Source, entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and role of the arrays that a program has: what the entry writes, and what any entry reads."""
    others = [each for each in source.entries if each is not entry]
    launches = [each for e in (entry, *others) for each in (*e.get("prologue", ()), e)]
    found = [(str(a[0]), str(a[2])) for each in launches for a in each["args"] if a[2] in ("in", "out")]
    written = {str(a[0]) for e in (*entry.get("prologue", ()), entry) for a in e["args"] if a[2] == "out"}
    return [arg for arg in dict.fromkeys(found) if arg[1] == "in" or arg[0] in written]


def _check_limits(source: Source, size: Mapping[str, int]) -> None:
    for name, (least, most) in source.kernel["limits"].items():
        if name in size and not least <= size[name] <= most:
            raise ExportError(
                f"{source.key}: {name} is {size[name]}; {source.kernel['key']} takes {least} to {most}"
            )


def _completed(kernel: Mapping[str, Any], drawn: Mapping[str, Any]) -> dict[str, Any]:
    """What a call gives and what it leaves out: scalars' defaults (words as numbers), None for arrays."""
    values = {o["name"]: None for o in kernel["operands"] if o.get("optional")}
    scalars = {s["name"]: s for s in kernel.get("scalars", ())}
    values |= {name: s["default"] for name, s in scalars.items()} | dict(drawn)
    words = {name for name in scalars if isinstance(values[name], str)}
    return {**values, **{name: scalars[name]["choices"].index(values[name]) for name in words}}


def _names(kernel: Mapping[str, Any], given: Mapping[str, Any], size: Mapping[str, int]) -> dict[str, int]:
    """What launch formulas may name."""
    known = {n: int(v) for n, v in given.items() if isinstance(v, (int, float)) and v % 1 == 0}
    known |= {
        f"has_{o['name']}": int(given[o["name"]] is not None) for o in kernel["operands"] if o.get("optional")
    }
    known |= {"sms": SMS, **size}
    if kernel.get("broadcasts"):
        strided = {o["name"]: _steps(given[o["name"]]) for o in kernel["operands"] if o.get("strided")}
        known |= broadcast({o["name"]: given[o["name"]].shape for o in kernel["operands"]}, strided)[1]
    return {**known, **{name: evaluate(each, known) for name, each in kernel.get("extents", {}).items()}}


def _steps(array: NDArray[Any]) -> tuple[tuple[int, ...], int]:
    return tuple(stride // array.itemsize for stride in array.strides), underlying(array)[1]


def _numbers(given: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], float]]:
    """Scalars, and the pitches of tensors' fields."""
    for name, value in given.items():
        if hasattr(value, "fields"):
            yield from (((f"{name}.{field}", "pitch"), a.shape[-1]) for field, a in value.fields.items())
        elif isinstance(value, (int, float)):
            yield (name, "scalar"), value


def _array(name: str, role: str, given: Mapping[str, Any], wanted: Mapping[str, tuple[Wanted, int]]) -> Array:
    """An argument's array. wanted: what each written one should hold, and its bytes."""
    held = _held(name, given)
    if role == "in":
        return Array(name, role, None if held is None else held.tobytes())
    expected, size = wanted[name]
    return Array(name, role, b"\xff" * size if held is None else held.tobytes(), expected)


def _held(name: str, given: Mapping[str, Any]) -> NDArray[Any] | None:
    operand, _, field = name.partition(".")
    value = given.get(operand)
    if value is None or not field:
        return value if value is None else np.ascontiguousarray(value)
    return np.ascontiguousarray(value.fields[field])


def _wanted(
    source: Source,
    args: Sequence[tuple[str, str]],
    given: dict[str, Any],
    expected: reference.Expected,
    updates: Mapping[str, reference.Expected],
    exact: Mapping[str, NDArray[Any]],
) -> dict[str, tuple[Wanted, int]]:
    """By argument: what it should hold, and how many bytes that is. What only the output has is taken out of
    `given`: it is written, not read."""
    output, types = source.kernel["output"], operand_dtypes(source.kernel, _cell_record(source))
    name, made = output["name"], made_fields(output.get("kind", "array"))
    updated = {o["name"] for o in source.kernel["operands"] if o.get("updated")}
    found = {each: _result(types.get(each, "u8"), value, exact.get(each)) for each, value in updates.items()}
    written = [each for each, role in args if role == "out" and each.partition(".")[0] not in updated]
    if made and name in given:
        parts = [(f"{name}.{field}", a.nbytes) for field, a in given.pop(name).fields.items()]
        return found | dict(_split([part for part in parts if part[0] in written], expected))
    own = name if name in updated else written[0]
    return found | {own: _result("u8" if made else types[name], expected, exact.get(name))}


def _cell_record(source: Source) -> dict[str, Any]:
    return {"dtype": source.dtype, "types": source.types}


def _split(
    parts: Iterable[tuple[str, int]], expected: reference.Expected
) -> Iterator[tuple[str, tuple[Wanted, int]]]:
    """The fields of a tensor that is written, whose bytes are expected in a row."""
    row, start = expected, 0
    for name, size in parts:
        part = slice(start, start + size)
        yield name, _result("u8", reference.Expected(row.value.ravel()[part], row.bound.ravel()[part]), None)
        start += size


def _result(dtype: str, expected: reference.Expected, exact: NDArray[Any] | None) -> tuple[Wanted, int]:
    """What is right, as `reference.compare` has it, and how many bytes an array of it has."""
    storage = np.dtype(reference.DTYPES[dtype][2])
    size = expected.value.size * storage.itemsize
    if exact is not None:
        return Wanted(dtype, bits=np.ascontiguousarray(exact).tobytes()), size
    value, bound = expected.value, np.nan_to_num(expected.bound, nan=0.0, posinf=0.0)
    if dtype in _EXACT and not bound.any():
        return Wanted(dtype, bits=value.astype(storage).tobytes()), size
    with np.errstate(invalid="ignore"):
        low, high = (_end(value, step, dtype) for step in (-bound, bound))
    return Wanted(dtype, low, high), size


def _end(value: NDArray[np.float64], step: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """An end of the interval of what is right: an infinity where it rounds to one."""
    end = value + step
    rounded = (
        reference.to_double(reference.round_to(end, dtype), dtype) if dtype in ("f16", "bf16", "f32") else end
    )
    found: NDArray[np.float64] = np.where(np.isinf(rounded), rounded, end)
    return found
