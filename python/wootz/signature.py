"""What a kernel takes and gives, from its record in the index: operands, scalars, shapes, limits; and the
shapes of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from . import broadcast
from .errors import ArgumentError, ArtifactError, near
from .formulas import Formula, compile_formula, spell
from .scalars import Scalar

__all__ = ["RESERVED", "Binding", "Derived", "Operand", "Signature"]

RESERVED = ("out", "stream", "workspace")
"""Keywords of a call that no operand and no scalar may be called."""

Shape = tuple[int, ...]

_KINDS = ("array", "quantised", "packed", "tiled")


@dataclass(frozen=True, eq=False, repr=False)
class Derived:
    """An extent that follows from others: checked, never bound."""

    text: str
    formula: Formula


@dataclass(frozen=True, eq=False, repr=False)
class Operand:
    """One array or quantised tensor; `shape` names its axes (a number is a fixed extent, a Derived one
    follows from the others). kind: "array", or a layout of a quantised tensor: "quantised" (natural),
    "packed", "tiled". dtype: of an array; "" is the cell's. format: the option that names a tensor's elements
    where it is not "same"; "": the tensor has the cell's format. shapes: those that it may have, if not any
    that `shape` binds. handed_on: it becomes the output's field of its name. updated: a call writes to it,
    too. strided: it need not be dense."""

    name: str
    kind: str
    shape: tuple[Any, ...]
    dtype: str = ""
    optional: bool = False
    format: str = ""
    shapes: tuple[tuple[Any, ...], ...] = ()
    handed_on: bool = False
    updated: bool = False
    strided: bool = False

    @property
    def quantised(self) -> bool:
        return self.kind != "array"

    def __str__(self) -> str:
        return f"{self.name}{_spell(self.shape)}" + ("?" if self.optional else "")


def _spell(shape: tuple[Any, ...]) -> str:
    return f"[{', '.join(axis.text if isinstance(axis, Derived) else str(axis) for axis in shape)}]"


def _axis(axis: Any, names: frozenset[str]) -> Any:
    return _derived(axis, names) if isinstance(axis, list) else axis


def _derived(formula: Any, names: frozenset[str]) -> Derived:
    return Derived(spell(formula), compile_formula(formula, names))


def _operand(record: Mapping[str, Any], names: frozenset[str], known: frozenset[str]) -> Operand:
    """names: those that plain axes may have; known: those that formulas may use, too."""
    shape, *shapes = (
        tuple(_axis(axis, known) for axis in each)
        for each in (record["shape"], *(record.get("shapes") or ()))
    )
    if any(isinstance(axis, str) and axis not in names for each in shapes for axis in each):
        raise ValueError(f"shapes of {record['name']!r} with names that no operand binds")
    kind = record.get("kind", "array")
    if kind not in _KINDS:
        raise ValueError(f"operand of kind {kind!r}")
    if record["name"] in RESERVED:
        raise ValueError(f"operand called {record['name']!r}")
    dtype, format = record.get("dtype") or "", record.get("format") or ""
    optional, *rest = (bool(record.get(key)) for key in ("optional", "handed_on", "updated", "strided"))
    return Operand(record["name"], kind, shape, dtype, optional, format, tuple(shapes), *rest)


def _aliased(alias: Any, operands: tuple[Operand, ...]) -> frozenset[str]:
    """Of the index: whether any operand may be written over, or the names of those that may."""
    every = frozenset(each.name for each in operands)
    named = frozenset(alias) if isinstance(alias, list) else every if alias else frozenset()
    if named - every:
        raise ValueError(f"alias of {sorted(named - every)}")
    return named


def _check_needs(scalars: Mapping[str, Scalar], operands: Sequence[Operand]) -> None:
    optional = {each.name for each in operands if each.optional}
    for each in scalars.values():
        if each.needs and each.needs not in optional:
            raise ValueError(f"scalar {each.name!r} needs {each.needs!r}, which is no optional operand")


@dataclass(frozen=True, eq=False, repr=False)
class Signature:
    """A kernel's record. flat: its operands may have any rank, as long as their shapes are equal; the one
    axis counts all elements. broadcasts: their shapes may differ as NumPy's may. alias: the operands whose
    very memory the output may be. plain: a call is its operands, all of them, in order. in_place: the output
    is the operand of its name, which the kernel updates. extents: numbers that follow from the others, by
    name. omissible: axes that arrays may lack, the first ones first. knobs: what a call may choose, with the
    default. partial: rows that no group names are not written."""

    name: str
    operands: tuple[Operand, ...]
    output: Operand
    limits: Mapping[str, tuple[int, int]]
    options: tuple[str, ...]
    alias: frozenset[str]
    flat: bool
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    plain: bool = True
    broadcasts: bool = False
    partial: bool = False
    in_place: bool = False
    extents: Mapping[str, Derived] = field(default_factory=dict)
    omissible: tuple[str, ...] = ()
    knobs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Signature:
        """Raises ArtifactError when the record lacks a field."""
        try:
            return cls._parse(record)
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"the index describes kernel {record.get('key')!r} wrongly: {error!r}"
            ) from None

    @classmethod
    def _parse(cls, record: Mapping[str, Any]) -> Signature:
        rows = record["operands"]
        names = frozenset(axis for row in rows for axis in row["shape"] if isinstance(axis, str))
        limits = {name: (int(low), int(high)) for name, (low, high) in (record.get("limits") or {}).items()}
        scalars = {each.name: each for each in map(Scalar.parse, record.get("scalars") or ())}
        known = names | frozenset(scalars)
        extents = {name: _derived(each, known) for name, each in (record.get("extents") or {}).items()}
        operands = tuple(_operand(row, names, known) for row in rows)
        output = _operand(record["output"], names | frozenset(extents), known)
        unknown = {axis for axis in output.shape if isinstance(axis, str)} - names - set(extents)
        if unknown and not record.get("broadcasts"):
            raise ValueError(f"an output with axes {sorted(unknown)}, which nothing gives")
        taken = {*names, *(each.name for each in operands), *RESERVED}
        if taken & set(scalars):
            raise ValueError(f"scalars called {sorted(taken & set(scalars))}")
        if (taken | set(scalars)) & set(extents):
            raise ValueError(f"extents called {sorted((taken | set(scalars)) & set(extents))}")
        _check_needs(scalars, operands)
        plain = not (scalars or extents or any(each.optional for each in operands))
        same = [each for each in operands if each.name == output.name]
        if any((each.shape, each.updated) != (output.shape, True) for each in same):
            raise ValueError(f"output {output.name!r} is an operand that it does not update as a whole")
        if not record.get("broadcasts") and any(each.strided for each in operands):
            raise ValueError("a strided operand whose strides are no arguments")
        return cls(
            record["key"], operands, output, limits, tuple(record.get("options") or ()),
            _aliased(record.get("alias"), operands), bool(record.get("flat")), scalars, plain,
            bool(record.get("broadcasts")), bool(record.get("partial")), bool(same), extents,
            tuple(record.get("omissible") or ()),
            dict(record.get("knobs") or {}),
        )  # fmt: skip

    @property
    def names(self) -> frozenset[str]:
        """The shape names that the operands bind."""
        if self.broadcasts:
            strided = tuple(each.name for each in self.operands if each.strided)
            return broadcast.names(tuple(each.name for each in self.operands), strided)
        return frozenset(axis for each in self.operands for axis in each.shape if isinstance(axis, str))

    @cached_property
    def flags(self) -> Mapping[str, str]:
        """By optional operand, the name of the number that says whether it is given."""
        return {each.name: f"has_{each.name}" for each in self.operands if each.optional}

    @cached_property
    def choosy(self) -> tuple[Operand, ...]:
        """The operands that may have certain shapes only."""
        return tuple(each for each in self.operands if each.shapes)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The operands as calls give them without names: the required ones first."""
        return tuple(each.name for each in sorted(self.operands, key=lambda each: each.optional))

    @cached_property
    def defaults(self) -> Mapping[str, float]:
        """The scalars of a call that names none."""
        return {name: each.default for name, each in self.scalars.items()}

    @property
    def formula_names(self) -> frozenset[str]:
        """What launch formulas may use."""
        return self.names | {"sms", *self.scalars, *self.sizes}

    @property
    def sizes(self) -> frozenset[str]:
        """Numbers of a call that are neither extents of its operands nor scalars."""
        return frozenset({*self.extents, *self.flags.values()})

    @property
    def quantised(self) -> bool:
        """Whether it has a format."""
        return any(each.quantised for each in (*self.operands, self.output))

    def __str__(self) -> str:
        return f"{self.name}({', '.join([*map(str, self.operands), *(f'{each}=' for each in self.scalars)])})"

    def arrange(
        self, operands: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, float]]:
        """A call's operands in the kernel's order, None for those not given; and its scalars, with the flags
        of optional operands. Without names, the required operands come first. Raises ArgumentError: a missing
        operand, one given twice, an unknown keyword, a scalar without the operand that it needs.
        """
        order = self.order
        if len(operands) > len(order):
            raise ArgumentError(f"got {len(operands)} operands; {self} takes {len(order)}")
        placed = dict(zip(order, operands))
        scalars = dict(self.defaults)
        for name, value in named.items():
            if name in placed:
                raise ArgumentError(f"{name} is given twice: in its place and by name")
            if name in scalars:
                scalars[name] = self.scalars[name].read(value)
            elif name in order:
                placed[name] = value
            else:
                self._refuse(name)
        values = [placed.get(each.name) for each in self.operands]
        for each, value in zip(self.operands, values):
            if each.optional:
                scalars[self.flags[each.name]] = int(value is not None)
            elif value is None:
                given = sum(value is not None for value in values)
                raise ArgumentError(f"got {given} operands; {self} takes {each.name} as well")
        for name in named:
            self._check_need(name, placed, scalars)
        return values, scalars

    def _check_need(self, name: str, placed: Mapping[str, Any], scalars: Mapping[str, float]) -> None:
        needs = self.scalars[name].needs if name in self.scalars else ""
        if needs and placed.get(needs) is None and scalars[name] != 0:
            raise ArgumentError(
                f"{name} is {scalars[name]} and {needs} is not given: {name} is for {needs} alone; "
                f"pass {needs}=, or leave {name} out"
            )

    def _refuse(self, keyword: str) -> None:
        known = [*(each.name for each in self.operands), *self.scalars, "out"]
        raise ArgumentError(
            f"{self.name} has no argument {keyword!r}{near(keyword, known)}; it takes {', '.join(known)}"
        )


@dataclass(eq=False, repr=False)
class Binding:
    """The values of the shape names in one call (and, to launch, of scalars and flags), and where each was
    seen first."""

    signature: Signature
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    shape: Shape | None = None
    derived: list[tuple[Operand, Shape]] | None = None
    shapes: dict[str, Shape] = field(default_factory=dict)
    strided: dict[str, broadcast.Steps] = field(default_factory=dict)
    omitted: int | None = None
    """How many axes the arrays lack, once it is known."""

    def bind(self, operand: Operand, shape: Shape) -> None:
        """Raises ArgumentError naming the operand when its rank or an extent does not fit."""
        if self.signature.broadcasts:
            self.shapes[operand.name] = shape
            return
        if self.signature.flat:
            shape = self._flatten(operand, shape)
        if self.signature.omissible:
            shape = self._complete(operand, shape)
        if len(shape) != len(operand.shape):
            raise ArgumentError(
                f"{operand.name} has {len(shape)} dimensions {list(shape)}; "
                f"{self.signature} takes {len(operand.shape)}"
            )
        for axis, extent in zip(operand.shape, shape):
            if axis.__class__ is not str:
                if axis.__class__ is Derived:
                    self.derived = self.derived or []
                    self.derived.append((operand, shape))
                elif axis != extent:
                    raise ArgumentError(f"{operand.name} has extent {extent}; {self.signature} takes {axis}")
                continue
            known = self.values.setdefault(axis, extent)
            if known != extent:
                raise ArgumentError(
                    f"{operand.name} has {axis}={extent}, {self.origins[axis]} has {axis}={known}"
                )
            self.origins.setdefault(axis, operand.name)

    def check_derived(self) -> None:
        """Once all operands are bound, and the values of scalars are there. Raises ArgumentError for one
        whose extents do not follow from theirs, and for extents outside their limits.

        Extents that only operands not given would bind are 0 from then on.
        """
        for operand in self.signature.choosy:
            if all(axis in self.values for axis in operand.shape if isinstance(axis, str)):
                self._check_shape(operand, self._extents(operand.shape), operand.shapes)
        for axis in () if self.signature.plain else self.signature.names:
            self.values.setdefault(axis, 0)
        for operand, shape in self.derived or ():
            self._check_shape(operand, shape, (operand.shape,))
        for name, each in self.signature.extents.items():
            self.values[name] = each.formula(self.values)
            self._check_limit(name, *self.signature.limits.get(name, (0, self.values[name])))

    def shape_of(self, operand: Operand) -> Shape:
        """An operand's extents, once all names are bound, without those of axes that arrays lack."""
        shape = self._extents(operand.shape)
        if not self.omitted:
            return shape
        lacking = self._lacking(operand, self.omitted)
        for axis, extent in zip(operand.shape, shape):
            if axis in lacking and extent != 1:
                raise ArgumentError(
                    f"{axis} is {extent}, and {operand.name} would lack that axis: "
                    f"give arrays of {len(shape)} axes"
                )
        return tuple([extent for axis, extent in zip(operand.shape, shape) if axis not in lacking])

    def _complete(self, operand: Operand, shape: Shape) -> Shape:
        """A shape with the axes of extent 1 that it lacks."""
        lacking = self._lacking(operand, len(operand.shape) - len(shape))
        if not any(axis in self.signature.omissible for axis in operand.shape):
            return shape
        if self.omitted is None:
            self.omitted = len(lacking)
        if len(operand.shape) - self.omitted != len(shape):
            wanted = len(operand.shape) - self.omitted
            raise ArgumentError(
                f"{operand.name} has {len(shape)} dimensions {list(shape)}; {self.signature} takes {wanted}"
                + (f" here, without the axes {', '.join(sorted(self.left_out()))}" if self.omitted else "")
            )
        extents = iter(shape)
        return tuple([1 if axis in lacking else next(extents) for axis in operand.shape])

    def left_out(self) -> set[str]:
        """The axes that the arrays lack."""
        return {axis for each in self.signature.operands for axis in self._lacking(each, self.omitted or 0)}

    def _lacking(self, operand: Operand, count: int) -> list[str]:
        """The first `count` axes of an operand that may be left out."""
        return [axis for axis in operand.shape if axis in self.signature.omissible][: max(count, 0)]

    def _check_shape(self, operand: Operand, shape: Shape, allowed: Sequence[tuple[Any, ...]]) -> None:
        wanted = {_spell(each): self._extents(each) for each in allowed}
        if shape not in wanted.values():
            texts = [t if t == str(list(each)) else f"{t} = {list(each)}" for t, each in wanted.items()]
            raise ArgumentError(f"{operand.name} has shape {list(shape)}; want {' or '.join(texts)}")

    def _extents(self, shape: tuple[Any, ...]) -> Shape:
        return tuple([self._extent(axis) for axis in shape])

    def _extent(self, axis: Any) -> int:
        if isinstance(axis, int):
            return axis
        found: int = self.values[axis] if isinstance(axis, str) else axis.formula(self.values)
        return found

    def _flatten(self, operand: Operand, shape: Shape) -> Shape:
        if self.shape is None:
            self.shape = shape
        if shape != self.shape:
            first = next(iter(self.origins.values()))
            raise ArgumentError(f"{operand.name} has shape {list(shape)}, {first} has {list(self.shape)}")
        size = 1
        for extent in shape:
            size *= extent
        return (size,)

    def check_limits(self) -> None:
        """Raises ArgumentError when a shape name is outside what the kernel was made for."""
        for axis, (low, high) in self.signature.limits.items():
            self._check_limit(axis, low, high)

    def _check_limit(self, name: str, low: int, high: int) -> None:
        value = self.values.get(name, low)
        if low <= value <= high:
            return
        if name in self.origins:
            found = f"{self.origins[name]} has {name}={value}"
        elif name in self.signature.extents:
            found = f"{name} = {self.signature.extents[name].text} is {value}"
        else:
            found = f"{name} is {value}"
        raise ArgumentError(f"{found}; {self.signature.name} takes {name} from {low} to {high}")

    def output_shape(self) -> Shape:
        if self.signature.broadcasts:
            self.shape, extents = broadcast.broadcast(self.shapes, self.strided)
            self.values.update(extents)
        if self.shape is not None:
            return self.shape
        return self.shape_of(self.signature.output)
