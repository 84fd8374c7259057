"""A cell at a size: random operands of its check, grown to that size on the device, and its launches.

Only some rows are drawn on the host where outputs along a symbol do not depend on each other (see
`families`): repeated, they fill operands of any size, and so does their reference.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import Check
from ..errors import ArgumentError, near
from ..formats import Descriptor
from ..kernel import Kernel
from ..layouts import field_shapes, tensor_class
from ..own_checks import check_of
from ..reference import Expected, round_to, to_double
from ..signature import Binding, Operand, Signature
from ..verify import operand_dtypes
from .devices import Bench
from .families import Family, family
from .timing import Launch, copies_for

MOST_COPIES, LEAST_COPIES = 256, 2
"""Of the operands of one replay."""

SMALL = 16
"""Operands of at most one in so many of a set's bytes do not rotate."""

LEFT_OUT = ("alpha", "beta", "activation", "causal", "window", "eps", "softplus")
"""Scalars that a check draws and a bench leaves at their defaults: it times the plain call."""

FLOATS = ("f16", "bf16", "f32")

_SHORT = {"uint8": "u8", "int8": "i8", "uint16": "u16", "float16": "f16", "float32": "f32", "int32": "i32",
          "uint32": "u32"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Problem:
    """One cell at one size. check: of its kernel. size: extents by symbol. drawn: those of `values`, the
    operands on the host in the kernel's order (optional ones are left out) and its scalars. shapes: of the
    grown operands. types: dtypes by operand and output."""

    cell: Mapping[str, Any]
    record: Mapping[str, Any]
    check: Check
    signature: Signature
    format: Descriptor | None
    size: Mapping[str, int]
    drawn: Mapping[str, int]
    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, str]

    @property
    def kernel(self) -> str:
        """Its name, without options."""
        return str(self.cell["kernel"])

    @property
    def dtype(self) -> str:
        return str(self.cell["dtype"])

    @property
    def options(self) -> Mapping[str, str]:
        return dict(self.cell.get("options") or {})

    @property
    def family(self) -> Family:
        return family(self.kernel)

    @property
    def arrays(self) -> dict[str, Any]:
        """The operands among the values."""
        names = [each.name for each in self.signature.operands]
        return {name: self.values[name] for name in names if name in self.values}

    @property
    def scalars(self) -> dict[str, Any]:
        """The scalars among the values."""
        return {name: value for name, value in self.values.items() if name in self.signature.scalars}

    @functools.cached_property
    def expected(self) -> Expected:
        """The reference of the drawn operands."""
        return self.check.expect(self.values, self.dtype, self.options)

    @functools.cached_property
    def updates(self) -> dict[str, Expected]:
        """What the check expects of operands that are written to."""
        updated = getattr(self.check, "updated", None)
        return updated(self.values, self.dtype, self.options) if updated else {}


def check_for(lib: Any, cell: Mapping[str, Any]) -> Check:
    """The check that `wootz verify` takes for a cell: ours, or the one that the kernel ships.

    Raises ArgumentError for a kernel without one, ArtifactError for one that cannot be run.
    """
    record = lib.index.find("kernels", cell["kernel"])
    return check_of(lib.folder(cell) if record.get("check") else None, {"key": cell["kernel"], **record})


def symbols(lib: Any, cell: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the extents that a problem of the cell has. Raises what `check_for` does."""
    return _symbols(check_for(lib, cell), cell, _format(lib, cell))


def _symbols(check: Check, cell: Mapping[str, Any], format: Descriptor | None) -> tuple[str, ...]:
    sizes = check.shapes(format)
    if not sizes:
        raise ArgumentError(f"the check of {cell['kernel']} gives no shapes: its extents have no names")
    return tuple(name for name in sizes[0] if name != "sms")


def _format(lib: Any, cell: Mapping[str, Any]) -> Descriptor | None:
    name = cell.get("format")
    found: Descriptor | None = None if name in (None, "", "-") else lib.format(name)
    return found


def operands_for(lib: Any, cell: Mapping[str, Any], size: Mapping[str, int], seed: int = 0) -> Problem:
    """Random operands of a cell at a size: extents by the symbols of the kernel's check.

    cell: a record of the index. Raises ArgumentError for a symbol that is missing or unknown, or an extent
    that the kernel refuses.
    """
    format, check = _format(lib, cell), check_for(lib, cell)
    _check_symbols(str(cell["kernel"]), size, _symbols(check, cell, format))
    record = lib.index.find("kernels", cell["kernel"])
    signature, of = Signature.parse(record), family(cell["kernel"])
    _check_limits(signature, size)
    drawn = {name: min(n, of.drawn) if name in of.grows else n for name, n in size.items()}
    values = _draw(check, cell, signature, format, drawn, seed)
    shapes = {o.name: _extents(signature, o, size) for o in signature.operands} if drawn != dict(size) else {}
    return Problem(
        cell, record, check, signature, format, dict(size), drawn, values, shapes,
        operand_dtypes(record, cell),
    )  # fmt: skip


def _check_symbols(kernel: str, size: Mapping[str, int], wanted: Sequence[str]) -> None:
    for name in size:
        if name not in wanted:
            raise ArgumentError(
                f"{kernel} has no extent {name!r}{near(name, wanted)}; its: {', '.join(wanted)}"
            )
    missing = [name for name in wanted if name not in size]
    if missing:
        raise ArgumentError(f"{kernel} needs {', '.join(missing)}: its extents are {', '.join(wanted)}")


def _check_limits(signature: Signature, size: Mapping[str, int]) -> None:
    known = {name: n for name, n in size.items() if name in signature.limits}
    Binding(signature, known).check_limits()


def _draw(
    check: Check,
    cell: Mapping[str, Any],
    signature: Signature,
    format: Descriptor | None,
    drawn: Mapping[str, int],
    seed: int,
) -> dict[str, Any]:
    digest = hashlib.sha256(str(cell["key"]).rpartition("/")[0].encode()).digest()
    rng = np.random.default_rng([int.from_bytes(digest[:8], "little"), seed])
    draw = getattr(check, "plain", check.operands)
    values = draw(format, drawn, cell["dtype"], cell.get("options") or {}, rng)
    dropped = {*LEFT_OUT, *(each.name for each in signature.operands if each.optional)}
    types = {each.name: each.dtype or cell["dtype"] for each in signature.operands}
    kept = {n: _finite(v, types.get(n, "")) for n, v in values.items() if n not in dropped}
    return kept | (_routed(drawn, rng) if {"counts", "offsets"} <= set(kept) else {})


def _finite(value: Any, dtype: str) -> Any:
    """Without what checks put among the numbers for its own sake: NaN and infinities, here ones."""
    if not isinstance(value, np.ndarray) or not value.flags.c_contiguous or dtype not in FLOATS:
        return value
    plain = np.isfinite(to_double(value, dtype))
    return value if plain.all() else np.where(plain, value, round_to(np.float64(1.0), dtype))


def _routed(size: Mapping[str, int], rng: np.random.Generator) -> dict[str, Any]:
    """Groups of all rows, one after the other, each row sent to a random matrix of the bank."""
    counts = np.bincount(rng.integers(0, size["experts"], size["m"]), minlength=size["experts"])
    return {"counts": counts.astype(np.int32), "offsets": (np.cumsum(counts) - counts).astype(np.int32)}


def _extents(signature: Signature, operand: Operand, size: Mapping[str, int]) -> tuple[int, ...]:
    return Binding(signature, {**signature.defaults, **size})._extents(operand.shape)


# ---- on the device


@dataclass(frozen=True, eq=False)
class Placed:
    """The operands of one replay, by name, one dict a launch; those of the first are the drawn ones, in
    order. small: bytes up to which an operand, or the output, is the same one in every launch. cold: the
    others outgrow the device's cache."""

    problem: Problem
    operands: Sequence[Mapping[str, Any]]
    small: int
    cold: bool


def place(problem: Problem, device: Bench, copies: int | None = None) -> Placed:
    """Operands on a device: `copies` sets, or as many as together outgrow its cache. Those that are small
    beside the rest, as activations of few rows are beside weights, are the same in every set: in a model the
    launch before has just written them, and they are in the cache."""
    size = max(1, operand_bytes(problem))
    wanted = copies_for(size, LEAST_COPIES, device.rotate) if copies is None else copies
    count = min(wanted, MOST_COPIES)
    given = {**problem.arrays, **problem.scalars}
    small = size // SMALL
    kept = {name for name in problem.arrays if sizes_of(problem, name) <= small}
    sets = [{n: _there(problem, n, v, device, 0) for n, v in given.items()}]
    for i in range(1, count):
        others = {n: _there(problem, n, v, device, i) for n, v in given.items() if n not in kept}
        sets.append({**sets[0], **others})
    return Placed(problem, sets, small, count * size >= device.rotate // 2)


def operand_bytes(problem: Problem) -> int:
    """Of all operands of one launch, once grown."""
    return sum(sizes_of(problem, name) for name in problem.arrays)


def sizes_of(problem: Problem, name: str) -> int:
    """Bytes of an operand, once grown."""
    value = problem.arrays[name]
    if not hasattr(value, "fields"):
        shape = problem.shapes.get(name, value.shape)
        return int(np.prod(shape, dtype=np.int64)) * int(value.itemsize)
    parts = grown_fields(problem, name)
    return sum(int(np.prod(parts[f], dtype=np.int64)) * a.itemsize for f, a in value.fields.items())


def grown_fields(problem: Problem, name: str) -> dict[str, tuple[int, ...]]:
    """The shapes of a tensor's arrays, once it is grown."""
    value = problem.arrays[name]
    if name not in problem.shapes:
        return {field: array.shape for field, array in value.fields.items()}
    kind = next(each.kind for each in problem.signature.operands if each.name == name)
    return {field: shape for field, _, shape in field_shapes(kind, value.format, problem.shapes[name])}


def _there(problem: Problem, name: str, value: Any, device: Bench, copy: int) -> Any:
    """A value on the device: arrays grown, and rolled by `copy` rows where they are no indices."""
    if hasattr(value, "fields"):
        shapes = grown_fields(problem, name)
        fields = {
            field: device.grown(array, _SHORT[array.dtype.name], shapes[field], copy)
            for field, array in value.fields.items()
        }
        return tensor_class(_kind(problem, name))(value.format, problem.shapes.get(name, value.shape), fields)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind in "iu" and problem.types.get(name) == "i32":
        copy = 0
    if not value.flags.c_contiguous:
        return device.memory.put(value, problem.types[name])
    return device.grown(value, problem.types[name], problem.shapes.get(name, value.shape), copy)


def _kind(problem: Problem, name: str) -> str:
    return next(each.kind for each in problem.signature.operands if each.name == name)


@dataclass(frozen=True, eq=False)
class Runs:
    """Launches of a kernel, one for each set of operands, and the outputs that they write. symbol: of the
    entry that was chosen; early: it may start while the launch before it still runs. out_bytes: of one
    output."""

    launches: Sequence[Launch]
    outputs: Sequence[Any]
    symbol: str
    early: bool
    out_bytes: int


def prepare(kernel: Kernel, placed: Placed, device: Bench) -> Runs:
    """Launches that are checked and settled beforehand, on the device's current stream when they are made.

    Raises what calls of the kernel do.
    """
    made: list[_Prepared] = []
    for each in placed.operands:
        made.append(_prepared(kernel, placed, each, device, made[0] if made else None))
    first = made[0]
    return Runs(
        [each.launch for each in made], [each.out for each in made], first.recipe.entry.symbol,
        bool(first.recipe.entry.early), first.out_bytes,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Prepared:
    launch: Launch
    given: Any
    out: Any
    recipe: Any
    out_bytes: int
    space: Any


def _prepared(
    kernel: Kernel, placed: Placed, operands: Mapping[str, Any], device: Bench, first: _Prepared | None
) -> _Prepared:
    problem, signature = placed.problem, placed.problem.signature
    required = [each.name for each in signature.operands if not each.optional]
    named = {name: value for name, value in operands.items() if name in signature.scalars}
    call = kernel._read([operands[name] for name in required], None, named)
    given = None
    if signature.output.kind == "array" and not signature.in_place:
        again = first if first and first.out_bytes <= placed.small else None
        given = again.given if again else _blank(problem, call, device)
    out = kernel._reader.read_output(call, given)
    kind, number = call.device
    program = kernel._program(kind, number or 0)
    recipe = program.recipe(call.binding.values, call.views)
    space = first.space if first else device.space(max(recipe.workspace, 1))
    if recipe.workspace:
        where = kernel._reader.read_workspace(call, space, recipe.workspace)
        address, size = where.address, where.bytes
    else:
        address = size = 0
    addresses, steps = program.addresses(call.views), recipe.steps

    def launch(kept: Any = (call, out, space)) -> None:
        steps.launch(addresses, address, size, device.stream())

    return _Prepared(launch, given, out, recipe, _out_bytes(problem, call), space)


def _blank(problem: Problem, call: Any, device: Bench) -> Any:
    """A poisoned output; None where an operand is the output, and for tensors, which the call makes."""
    output = problem.signature.output
    if output.kind != "array" or problem.signature.in_place:
        return None
    return device.blank(call.binding.output_shape(), problem.types[output.name])


def _out_bytes(problem: Problem, call: Any) -> int:
    name = problem.signature.output.name
    return sum(view.bytes for each, view in call.views.items() if each.partition(".")[0] == name)
