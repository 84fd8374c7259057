"""What a kernel file in `kernels/` declares: its record for the index, its variants, what it needs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Union

from .. import kernels
from ..formats.axes import Format
from ..ir.dsl import Builder
from ..manifest.target import Target
from .tiles import Lattice

Formula = Union[int, str, list[Any]]
"""int | name | [op, a, b], op in ceildiv mul add sub min max div mod lt le eq ge gt and or. Names: those of
shapes, scalars and a family's extents, has_<optional operand> (0 or 1), sms."""

Axis = Formula
"""One axis of an operand. Only plain names bind; numbers and formulas are checked."""

QUANTISED = ("quantised", "packed", "tiled")
"""Kinds of operands that have a format."""


FAST_MATH: dict[str, tuple[str, ...]] = {"math": ("precise", "fast")}
"""The knob of kernels whose exponentials and quotients may be the hardware's own."""
LOAD_WIDTH: dict[str, tuple[str, ...]] = {"load_width": ("w4", "w2", "w1")}
"""The knob of kernels over flat arrays: 32-bit words of an access."""
PLAIN = ("f16", "bf16", "f32")
"""The types of a family that does not say which it accepts."""


@dataclass(frozen=True)
class Operand:
    """kind: "array"; "quantised" (natural layout); "packed" (units in the order of a matrix instruction);
    "tiled" (codes, and scales in the tiles that hardware reads). dtype "" is the cell's. An optional operand
    that is not given is a null pointer. format: the option that names its element, where that is not of the
    cell's format. shapes: all that it may have, where names of `shape` are its own and any extent is not
    right. handed_on: it becomes the output's field of its name; formats without that field do not take it.
    updated: the kernel writes to it, too (its buffer's role is "out"); where it has the output's name, it is
    the output, and nothing else is written. strided: of a family that broadcasts, it need not be dense;
    entries have its strides as u64, of which one that leads back wraps around, and `<name>_start`, where its
    first element is behind the pointer, which is aligned."""

    name: str
    kind: str
    shape: tuple[Axis, ...]
    dtype: str = ""
    optional: bool = False
    format: str = ""
    shapes: tuple[tuple[Axis, ...], ...] = ()
    handed_on: bool = False
    updated: bool = False
    strided: bool = False

    def record(self) -> dict[str, Any]:
        """For the index."""
        given: dict[str, Any] = {"dtype": self.dtype, "optional": self.optional, "format": self.format}
        given |= {"shapes": [list(shape) for shape in self.shapes], "handed_on": self.handed_on}
        given |= {"updated": self.updated, "strided": self.strided}
        return {
            "name": self.name,
            "kind": self.kind,
            "shape": list(self.shape),
            **{k: v for k, v in given.items() if v},
        }


@dataclass(frozen=True)
class Scalar:
    """A number that a call may give by name. type: f32 or u32; choices: words that stand for 0, 1, ...
    needs: the optional operand without which it may not be given, unless as 0."""

    name: str
    type: str
    default: float = 0
    choices: tuple[str, ...] = ()
    needs: str = ""

    def record(self) -> dict[str, Any]:
        """For the index."""
        return {
            "name": self.name,
            "type": self.type,
            "default": self.default,
            "choices": list(self.choices),
            **({"needs": self.needs} if self.needs else {}),
        }


@dataclass(frozen=True)
class Arg:
    """One parameter of an entry point. type: ptr, u32, u64, f32 or map; role: in, out, shape, pitch, scalar,
    workspace or map."""

    name: str
    type: str
    role: str


@dataclass(frozen=True)
class TensorMap:
    """A tensor map, passed by value as the argument `name`, over the array or field `of`. dims: innermost
    first; strides: bytes, one fewer than dims; box: elements. Reads outside give zero."""

    name: str
    of: str
    dtype: str
    dims: tuple[Formula, ...]
    strides: tuple[Formula, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    promotion: int = 256

    def record(self) -> dict[str, Any]:
        """For the index."""
        return {
            "of": self.of,
            "dtype": self.dtype,
            "dims": list(self.dims),
            "strides": list(self.strides),
            "box": list(self.box),
            "swizzle": self.swizzle,
            "promotion": self.promotion,
        }


@dataclass(frozen=True)
class Launch:
    """A launch before the main one, on the same stream: of the kernel `$SYMBOL_<suffix>` of the text."""

    suffix: str
    args: tuple[Arg, ...]
    threads: int
    grid: tuple[Formula, Formula, Formula]
    shared: Formula = 0


@dataclass(frozen=True)
class Spill:
    """Why an entry may have a stack frame of so many bytes a thread."""

    bytes: int
    reason: str


@dataclass(frozen=True)
class Variant:
    """One entry point: how it is launched, when it may be used, and the function that builds its body. gate:
    as of an Instance. before: launched first, on the same stream, its suffix after this one's symbol.
    workspace: bytes of the buffer of that role which both have."""

    suffix: str
    threads: int
    grid: tuple[Formula, Formula, Formula]
    build: Callable[[Builder], None]
    when: tuple[Formula, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    gate: str = ""
    before: Variant | None = None
    workspace: Formula = 0


@dataclass(frozen=True)
class Instance:
    """One entry point made from device templates.

    templates: headers in cutlass/, which emission puts into the text, each once. preamble: texts that several
    instances of a unit share (a decode functor), each once. text: what follows; `$SYMBOL` stands for the
    entry's symbol. shared: dynamic bytes of a block. workspace: bytes; zeroed: all zero before the first
    launch, and left so. gate: rows of the table in gate.py, joined by "+". stub: text of the host stub; then
    args are what the stub is given, and threads, grid, shared, cluster and workspace are the stub's answer.
    """

    suffix: str
    templates: tuple[str, ...]
    text: str
    args: tuple[Arg, ...]
    threads: int
    grid: tuple[Formula, Formula, Formula]
    when: tuple[Formula, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    shared: Formula = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    maps: tuple[TensorMap, ...] = ()
    workspace: Formula = 0
    zeroed: bool = False
    pdl: bool = False
    gate: str = ""
    stub: str = ""
    prologue: tuple[Launch, ...] = ()
    preamble: tuple[str, ...] = ()
    static_shared: int = 0
    spills: Spill | None = None


Variants = Callable[[Union[Format, None], str, Target, dict[str, str]], Iterable[Union[Variant, Instance]]]
Types = Callable[[str, dict[str, str]], dict[str, str]]
Lattices = Callable[[Union[Format, None], str, Target, dict[str, str]], Union[Lattice, None]]
Accepts = Callable[[Union[Format, None], str, Target, dict[str, str]], Union[str, None]]


@dataclass(frozen=True)
class Family:
    """A kernel family. `variants(fmt, dtype, target, options)` yields every entry of one cell's dtype, the
    first whose conditions hold is launched. limits: smallest and largest value of a shape name. alias:
    whether the output may be the very memory of an operand, or of which ones: what a thread overwrites,
    only it reads, and before. partial: what no group of rows names is not written. flat: operands of any
    one shape are taken as n elements in a row. broadcasts: their shapes may differ as NumPy's may; entries
    take what `kernels/_broadcast.py` says. extents: numbers that follow from extents of operands and from
    scalars, by name: the output's shape, conditions and entries may name them; limits bound them, and
    scalars, too. omissible: names of axes that arrays may lack, the first of them first, as many in every
    array: their extent is 1, and the output lacks them, too. options: the values that each of its options
    may have. needs: features that a target must have.
    scalars: numbers of a call. types(dtype, options): dtypes of operands and output that are not the cell's,
    by name. accepts(fmt, dtype, target, options): why a cell is refused, or None; declared facts only
    (absent: f16, bf16 and f32 are accepted).
    lattice(fmt, dtype, target, options): the tiles that its template could have, for `wootz explain`. tiles:
    as variants, further entries for tuning: a build has none of them but those that it is asked for. knobs:
    the values that each may have, the default first; `options` has those that are not the default."""

    operands: tuple[Operand, ...]
    output: Operand
    variants: Variants
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)
    alias: bool | tuple[str, ...] = False
    flat: bool = False
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    scalars: tuple[Scalar, ...] = ()
    types: Types | None = None
    accepts: Accepts | None = None
    lattice: Lattices | None = None
    tiles: Variants | None = None
    broadcasts: bool = False
    partial: bool = False
    extents: dict[str, Formula] = field(default_factory=dict)
    omissible: tuple[str, ...] = ()
    knobs: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def quantised(self) -> bool:
        """Whether an operand, or the output, has a format."""
        return any(o.kind in QUANTISED for o in (*self.operands, self.output))

    @property
    def packed(self) -> bool:
        """Whether an operand is made of packed units."""
        return any(o.kind == "packed" for o in (*self.operands, self.output))

    def record(self) -> dict[str, Any]:
        """For the index."""
        output = self.output.record()
        if self.output.kind == "array":
            del output["kind"]
        record = {
            "operands": [o.record() for o in self.operands],
            "output": output,
            "limits": {name: list(bounds) for name, bounds in sorted(self.limits.items())},
            "alias": list(self.alias) if isinstance(self.alias, tuple) else self.alias,
            "flat": self.flat,
        }
        for name in ("broadcasts", "partial"):
            if getattr(self, name):
                record[name] = True
        if self.extents:
            record["extents"] = dict(self.extents)
        if self.omissible:
            record["omissible"] = list(self.omissible)
        return {**record, **({"scalars": [s.record() for s in self.scalars]} if self.scalars else {})}


def plain(kernel: str, dtype: str) -> str | None:
    """Why a type is refused by a kernel that takes the usual ones, or None."""
    return None if dtype in PLAIN else f"{kernel} takes {', '.join(PLAIN)}; got {dtype}"


class UnknownKernel(LookupError):
    """No file gen/kernels/<name>.py declares this kernel."""


@cache
def family(name: str) -> Family:
    """The family declared in kernels/<name>.py. Raises UnknownKernel, naming what exists."""
    try:
        module = importlib.import_module(f"{kernels.__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{kernels.__name__}.{name}":
            raise
        raise UnknownKernel(
            f"kernel {name!r}: no such file gen/kernels/{name}.py; known: {known()}"
        ) from None
    found = module.FAMILY
    if not isinstance(found, Family):
        raise UnknownKernel(
            f"kernel {name!r}: FAMILY in gen/kernels/{name}.py is a {type(found).__name__}, not a Family"
        )
    return found


def known() -> list[str]:
    """The kernels that have a file."""
    import pkgutil

    return sorted(m.name for m in pkgutil.iter_modules(kernels.__path__) if not m.name.startswith("_"))
