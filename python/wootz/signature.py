"""What a kernel takes and gives, from its record in the index: operands, scalars, shapes, limits; and the
checks of a call.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ._core import View
from .errors import ArgumentError, ArtifactError, DeviceError, DtypeError, near
from .formulas import Formula, compile_formula, spell

__all__ = [
    "ALIGNMENT",
    "RESERVED",
    "Binding",
    "Operand",
    "Scalar",
    "Signature",
    "check_memory",
    "check_overlap",
    "check_workspace",
    "common_device",
]

ALIGNMENT = 16
"""Bytes: kernels load and store vectors of this size from the start of every array."""

WORKSPACE_ALIGNMENT = 128
"""Bytes, on CUDA: a workspace may hold what the copy engine writes."""

RESERVED = ("out", "stream", "workspace")
"""Keywords of a call that no operand and no scalar may be called."""

Shape = tuple[int, ...]

_KINDS = ("array", "quantised", "packed", "tiled")
_BYTE_FLOATS = ("e4m3", "e5m2")
_FLOAT_MAX = (2.0 - 2.0**-23) * 2.0**127


@dataclass(frozen=True)
class Derived:
    """An extent that follows from others: checked, never bound."""

    text: str
    formula: Formula


@dataclass(frozen=True)
class Operand:
    """One array or quantised tensor; `shape` names its axes (a number is a fixed extent, a Derived one
    follows from the others). kind: "array", or a layout of a quantised tensor: "quantised" (natural),
    "packed", "tiled". dtype: of an array; "" is the cell's. format: the option that names a tensor's elements
    where it is not "same"; "": the tensor has the cell's format."""

    name: str
    kind: str
    shape: tuple[Any, ...]
    dtype: str = ""
    optional: bool = False
    format: str = ""

    @property
    def quantised(self) -> bool:
        return self.kind != "array"

    def __str__(self) -> str:
        axes = ", ".join(axis.text if isinstance(axis, Derived) else str(axis) for axis in self.shape)
        return f"{self.name}[{axes}]" + ("?" if self.optional else "")


@dataclass(frozen=True)
class Scalar:
    """A number that a call may give by name. choices: words that stand for 0, 1, ... of a u32."""

    name: str
    type: str
    default: float
    choices: tuple[str, ...]

    def read(self, value: Any) -> float:
        """The number for the kernel. Raises ArgumentError: another kind of thing, out of range, no such word.

        An f32 may be any number that float32 holds, infinities and NaN included.
        """
        if isinstance(value, str):
            return self._choice(value)
        if self.type == "u32":
            return self._whole(value)
        if not isinstance(value, numbers.Real):
            raise ArgumentError(f"{self.name} is a {type(value).__name__}; want {self._wanted()}")
        wide = float(value)
        if _FLOAT_MAX < abs(wide) < float("inf"):
            raise ArgumentError(f"{self.name} is {wide}, outside float32's range")
        return wide

    def _whole(self, value: Any) -> int:
        try:
            whole = operator.index(value)
        except TypeError:
            raise ArgumentError(f"{self.name} is {value!r}; want {self._wanted()}") from None
        if not 0 <= whole < (len(self.choices) or 2**32):
            raise ArgumentError(f"{self.name} is {whole}; want {self._wanted()}")
        return whole

    def _choice(self, value: str) -> int:
        if value not in self.choices:
            raise ArgumentError(f"{self.name} is {value!r}{near(value, self.choices)}; want {self._wanted()}")
        return self.choices.index(value)

    def _wanted(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return "a number" if self.type == "f32" else "a whole number from 0 to 4294967295"

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Scalar:
        name, type_, choices = record["name"], record["type"], tuple(record.get("choices") or ())
        if type_ not in ("f32", "u32") or not all(isinstance(each, str) for each in (name, *choices)):
            raise ValueError(f"scalar {name!r} of type {type_!r}")
        scalar = cls(name, type_, 0, choices)
        return replace(scalar, default=scalar.read(record.get("default", 0)))


def _axis(axis: Any, names: frozenset[str]) -> Any:
    return Derived(spell(axis), compile_formula(axis, names)) if isinstance(axis, list) else axis


def _operand(record: Mapping[str, Any], names: frozenset[str]) -> Operand:
    shape = tuple(_axis(axis, names) for axis in record["shape"])
    kind = record.get("kind", "array")
    if kind not in _KINDS:
        raise ValueError(f"operand of kind {kind!r}")
    if record["name"] in RESERVED:
        raise ValueError(f"operand called {record['name']!r}")
    dtype, optional = record.get("dtype") or "", bool(record.get("optional"))
    return Operand(record["name"], kind, shape, dtype, optional, record.get("format") or "")


@dataclass(frozen=True)
class Signature:
    """A kernel's record. flat: its operands may have any rank, as long as their shapes are equal; the one
    axis counts all elements. alias: the output may be the very memory of an operand. plain: a call is its
    operands, all of them, in order."""

    name: str
    operands: tuple[Operand, ...]
    output: Operand
    limits: Mapping[str, tuple[int, int]]
    options: tuple[str, ...]
    alias: bool
    flat: bool
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    plain: bool = True

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
        operands = tuple(_operand(row, names) for row in rows)
        output = _operand(record["output"], names)
        limits = {name: (int(low), int(high)) for name, (low, high) in (record.get("limits") or {}).items()}
        scalars = {each.name: each for each in map(Scalar.parse, record.get("scalars") or ())}
        taken = {*names, *(each.name for each in operands), *RESERVED}
        if taken & set(scalars):
            raise ValueError(f"scalars called {sorted(taken & set(scalars))}")
        plain = not scalars and not any(each.optional for each in operands)
        return cls(
            record["key"], operands, output, limits, tuple(record.get("options") or ()),
            bool(record.get("alias")), bool(record.get("flat")), scalars, plain,
        )  # fmt: skip

    @property
    def names(self) -> frozenset[str]:
        """The shape names that the operands bind."""
        return frozenset(axis for each in self.operands for axis in each.shape if isinstance(axis, str))

    @property
    def flags(self) -> Mapping[str, str]:
        """By optional operand, the name of the number that says whether it is given."""
        return {each.name: f"has_{each.name}" for each in self.operands if each.optional}

    @property
    def formula_names(self) -> frozenset[str]:
        """What launch formulas may use."""
        return self.names | {"sms", *self.scalars, *self.flags.values()}

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
        operand, one given twice, an unknown keyword.
        """
        rest = dict(named)
        order = sorted(self.operands, key=lambda each: each.optional)
        if len(operands) > len(order):
            raise ArgumentError(f"got {len(operands)} operands; {self} takes {len(order)}")
        for each in order[: len(operands)]:
            if each.name in rest:
                raise ArgumentError(f"{each.name} is given twice: in its place and by name")
        placed = dict(zip((each.name for each in order), operands))
        placed |= {each.name: rest.pop(each.name, None) for each in order[len(operands) :]}
        values = [placed[each.name] for each in self.operands]
        scalars = {name: each.read(rest.pop(name, each.default)) for name, each in self.scalars.items()}
        if rest:
            self._refuse(next(iter(rest)))
        for each, value in zip(self.operands, values):
            if each.optional:
                scalars[f"has_{each.name}"] = int(value is not None)
            elif value is None:
                given = sum(value is not None for value in values)
                raise ArgumentError(f"got {given} operands; {self} takes {each.name} as well")
        return values, scalars

    def _refuse(self, keyword: str) -> None:
        known = [*(each.name for each in self.operands), *self.scalars, *RESERVED]
        raise ArgumentError(
            f"{self.name} has no argument {keyword!r}{near(keyword, known)}; it takes {', '.join(known)}"
        )


@dataclass
class Binding:
    """The values of the shape names in one call (and, to launch, of scalars and flags), and where each was
    seen first."""

    signature: Signature
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    shape: Shape | None = None
    derived: list[tuple[Operand, Shape]] | None = None

    def bind(self, operand: Operand, shape: Shape) -> None:
        """Raises ArgumentError naming the operand when its rank or an extent does not fit."""
        if self.signature.flat:
            shape = self._flatten(operand, shape)
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
        """Once all operands are bound. Raises ArgumentError for one whose extents do not follow from theirs.

        Extents that only operands not given would bind are 0 from then on.
        """
        for axis in () if self.signature.plain else self.signature.names:
            self.values.setdefault(axis, 0)
        for operand, shape in self.derived or ():
            wanted = self._shape(operand)
            if wanted != shape:
                text = str(operand).rstrip("?").removeprefix(operand.name)
                raise ArgumentError(f"{operand.name} has shape {list(shape)}; want {text} = {list(wanted)}")

    def _shape(self, operand: Operand) -> Shape:
        return tuple([self._extent(axis) for axis in operand.shape])

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
            value = self.values.get(axis, low)
            if not low <= value <= high:
                raise ArgumentError(
                    f"{self.origins[axis]} has {axis}={value}; "
                    f"{self.signature.name} takes {axis} from {low} to {high}"
                )

    def output_shape(self) -> Shape:
        if self.shape is not None:
            return self.shape
        return self._shape(self.signature.output)


def check_memory(name: str, view: View, dtype: str, shape: Sequence[int] | None = None) -> None:
    """Element type, shape, strides and alignment of one array. Raises DtypeError, ArgumentError naming it.

    Bytes pass for 8-bit floats: libraries that have no such type hold them so.
    """
    if view.dtype != dtype and not (view.dtype == "u8" and dtype in _BYTE_FLOATS):
        raise DtypeError(
            f"{name} has elements of type {view.dtype}; the kernel takes {dtype} there: convert it"
        )
    if shape is not None and view.shape != shape:
        raise ArgumentError(f"{name} has shape {list(view.shape)}; want {list(shape)}")
    if not view.contiguous:
        raise ArgumentError(
            f"{name} has strides {list(view.strides)} for shape {list(view.shape)}; kernels take dense "
            f"row-major arrays: pass {name}.contiguous() or numpy.ascontiguousarray({name})"
        )
    if view.address % ALIGNMENT and view.size:
        raise ArgumentError(
            f"{name} starts at address {view.address:#x}, which is no multiple of {ALIGNMENT} bytes "
            f"(a slice of a larger array?): pass a copy of it"
        )


def check_workspace(view: View, wanted: int, device: str) -> None:
    """Raises ArgumentError: read-only, with gaps, too small or misaligned."""
    if view.readonly:
        raise ArgumentError("workspace is read-only; the kernel writes there")
    if not view.contiguous:
        raise ArgumentError(f"workspace has strides {list(view.strides)}; want dense memory")
    if view.bytes < wanted:
        raise ArgumentError(
            f"workspace has {view.bytes} bytes; the call needs {wanted}: see the kernel's workspace_bytes()"
        )
    alignment = WORKSPACE_ALIGNMENT if device == "cuda" else ALIGNMENT
    if view.address % alignment:
        raise ArgumentError(
            f"workspace starts at address {view.address:#x}, which is no multiple of {alignment} bytes"
        )


def check_overlap(name: str, view: View, out_name: str, out: View, alias: bool) -> None:
    """Raises ArgumentError when output and operand overlap: `alias` kernels take the very same memory."""
    if out.address >= view.address + view.bytes or view.address >= out.address + out.bytes:
        return
    same = out.address == view.address and out.bytes == view.bytes
    if alias and not same:
        raise ArgumentError(
            f"{out_name} shares a part of {name}'s memory: pass the same array, or another one"
        )
    if not alias:
        raise ArgumentError(
            f"{out_name} shares memory with {name}; the kernel cannot work in place: pass another out"
        )


def common_device(views: Mapping[str, View]) -> tuple[str, int | None]:
    """(kind, number) of the one device that all arrays are on. Raises DeviceError naming two that differ.

    An empty array without an address may be anywhere.
    """
    first_name, first = "", None
    for name, view in views.items():
        if view.device_id is None:
            continue
        if first is None:
            first_name, first = name, view
        elif view.device_id != first.device_id or view.device_type != first.device_type:
            raise DeviceError(
                f"{name} is on {view.device}, {first_name} is on {first.device}: move one of them"
            )
    if first is None:
        first = next(iter(views.values()))
    return first.device_type, first.device_id
