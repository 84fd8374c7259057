"""The arguments of a call: what is given is looked at and checked, what is not given is made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from . import _core, arrays
from .errors import ArgumentError, FormatError
from .formats import Descriptor, QuantizedTensor
from .layouts import check_element, check_layout, field_shapes, made_fields, make
from .memory import (
    Seen,
    Strided,
    check_memory,
    check_overlap,
    check_strided,
    check_workspace,
    common_device,
)
from .program import Space
from .select import Device
from .signature import Binding, Operand, Signature

__all__ = ["Call", "Problem", "Reader", "Request", "Wanted", "handed_on"]

View = _core.View
_KNOWN_SHAPES = 1024


@dataclass(frozen=True)
class Request:
    """What was asked of a library. device: (kind, number); either may be None for "where the arrays are"."""

    kernel: str
    format: Descriptor | None
    dtype: str
    options: Mapping[str, str]
    device: tuple[str | None, int | None] = (None, None)

    def cell(self, target: str) -> str:
        """The key of the cell for a target."""
        return f"{self.stem}/{target}"

    @property
    def stem(self) -> str:
        name = ".".join((self.kernel, *self.options.values()))
        return f"{name}/{self.format.name if self.format else '-'}/{self.dtype}"


@dataclass(eq=False, repr=False)
class Call:
    """The arrays of one call by name: views to launch with, objects to ask for streams and allocate like."""

    binding: Binding
    stream: int | None  # as given by the caller
    views: dict[str, Seen] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)
    formats: dict[str, Descriptor] = field(default_factory=dict)  # of its tensors
    device: tuple[str, int | None] = ("cpu", 0)  # once the operands are read

    def look(self, array: Any, name: str, label: str | None = None) -> View:
        # Producers that do not order themselves with a current stream make the work that is due wait for
        # theirs.
        ordered = arrays.orders_itself(array)
        view = arrays.view(
            array, label or name, arrays.NO_SYNC if ordered else self.stream or arrays.DEFAULT_STREAM
        )
        self.views[name], self.objects[name] = view, array
        return view


@dataclass(frozen=True, eq=False, repr=False)
class Wanted:
    """An array as the calls of one problem give it."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * arrays.ITEM_BYTES[self.dtype]


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """What is known of a call before it is made.

    values: extents, scalars and flags, as formulas take them. operands: those that calls give. formats: of
    its tensors. arrays: by their names in the index.
    """

    values: dict[str, Any]
    scalars: dict[str, Any]
    binding: Binding
    operands: tuple[Operand, ...]
    formats: dict[str, Any]
    arrays: dict[str, Wanted]


class Reader:
    """Reads the arguments of one kernel's calls. types: dtypes that are not the request's, by operand.

    Its methods raise ArgumentError, DtypeError, FormatError and DeviceError that name the argument.
    """

    def __init__(self, signature: Signature, request: Request, types: Mapping[str, str]) -> None:
        self.signature, self._request = signature, request
        self.dtypes = {
            each.name: types.get(each.name) or each.dtype or request.dtype
            for each in (*signature.operands, signature.output)
        }
        parts = made_fields(signature.output.kind)
        self.written = ".".join((signature.output.name, *parts[:1]))
        """The array that says whether there is anything to write."""
        self._fields: dict[tuple[str, tuple[int, ...]], list[Any]] = {}

    def read_operands(self, call: Call, operands: Sequence[Any]) -> None:
        for spec, operand in zip(self.signature.operands, operands):
            if operand is None and spec.optional:
                continue
            if spec.kind != "array":
                self._read_tensor(call, spec, operand)
                continue
            if hasattr(operand, "fields") and hasattr(operand, "format"):
                raise ArgumentError(
                    f"{spec.name} is a quantised tensor; {self.signature} takes an array there"
                )
            view = call.look(operand, spec.name)
            if spec.strided:
                self._walk(call, spec, view)
                continue
            check_memory(spec.name, view, self.dtypes[spec.name])
            call.binding.bind(spec, view.shape)
            if spec.updated:
                _check_writable(spec.name, view, operand, "the kernel writes to it")
        for spec in self.signature.operands:
            if spec.updated:
                self._check_apart(call, spec.name)

    def _walk(self, call: Call, spec: Operand, view: View) -> None:
        """An operand that need not be dense."""
        dtype = self.dtypes[spec.name]
        check_strided(spec.name, view, dtype, arrays.ITEM_BYTES[dtype])
        placed = call.views[spec.name] = Strided.of(view, arrays.ITEM_BYTES[dtype])
        call.binding.bind(spec, view.shape)
        call.binding.strided[spec.name] = view.strides, placed.start

    def _check_apart(self, call: Call, updated: str) -> None:
        """An operand that is written to lies in no other's memory, and so do its fields."""
        own = [name for name in call.views if name.partition(".")[0] == updated]
        for name in own:
            for other, view in call.views.items():
                if other not in own:
                    check_overlap(other, view, name, call.views[name], False)

    def _read_tensor(self, call: Call, spec: Operand, tensor: Any) -> None:
        wanted = self._request.format
        assert wanted is not None, "kernels with quantised operands have a format: Library.kernel sees to it"
        if tensor.__class__ is not QuantizedTensor or spec.kind != "quantised":
            check_layout(spec.name, spec.kind, tensor, wanted.name, self.signature.name)
        own = self.own_format(spec)
        if own:
            check_element(spec.name, tensor.format, own)
            wanted = tensor.format
        elif tensor.format is not wanted and tensor.format != wanted:
            raise FormatError(_format_mismatch(spec.name, tensor.format, wanted))
        call.formats[spec.name] = tensor.format
        shape = tuple(tensor.shape)
        call.binding.bind(spec, shape)
        fields = tensor.fields
        for name, part, dtype, extents in self._parts(spec, wanted, shape):
            view = call.look(fields[part], name)
            check_memory(name, view, dtype, extents)
            if spec.updated:
                _check_writable(name, view, fields[part], "the kernel writes to it")

    def own_format(self, spec: Operand) -> str:
        """The elements that a tensor has to have when its format is not the cell's; else nothing."""
        chosen = self._request.options.get(spec.format, "same") if spec.format else "same"
        return "" if chosen == "same" else chosen

    def _parts(self, spec: Operand, format: Descriptor, shape: tuple[int, ...]) -> list[Any]:
        """(name in the index, field, dtype, shape) of each array of a tensor."""
        if self.own_format(spec):
            return _named_fields(spec, format, shape)
        parts = self._fields.get((spec.name, shape))
        if parts is None:
            if len(self._fields) > _KNOWN_SHAPES:
                self._fields.clear()
            parts = self._fields[spec.name, shape] = _named_fields(spec, format, shape)
        return parts

    def read_output(self, call: Call, out: Any) -> Any:
        spec, shape = self.signature.output, call.binding.output_shape()
        if self.signature.in_place:
            return self._updated(call.objects[spec.name], out)
        if spec.kind == "array":
            return self._place(call, spec.name, "out", out, self.dtypes[spec.name], shape)
        return self._read_tensor_output(call, spec, shape, out)

    def _updated(self, operand: Any, out: Any) -> Any:
        """The operand that a kernel in place writes to, and nothing else."""
        if out is not None and out is not operand:
            name = self.signature.output.name
            raise ArgumentError(f"out is not {name}; {self.signature} writes to {name}: leave out= away")
        return operand

    def _place(
        self, call: Call, name: str, keyword: str, out: Any, dtype: str, shape: tuple[int, ...]
    ) -> Any:
        """An array to write to: `out`, checked, or a new one."""
        given = keyword
        if out is None:
            like = self._like(call)
            out = arrays.allocate(call.objects[like], shape, dtype, call.views[like].device_id)
            given = name
        inputs = list(call.views.items())
        view = call.look(out, name, given)
        _check_writable(given, view, out, "the result is written there")
        check_memory(given, view, dtype, shape)
        common_device({inputs[0][0]: inputs[0][1], given: view})
        for other, operand in inputs:
            check_overlap(other, operand, given, view, other in self.signature.alias)
        return out

    def _read_tensor_output(self, call: Call, spec: Operand, shape: tuple[int, ...], out: Any) -> Any:
        """A tensor whose codes are written to `out`'s, or to new ones; other arrays are handed on."""
        format = self._request.format
        assert format is not None, "kernels that give tensors have a format: Library.kernel sees to it"
        if out is not None:
            check_layout("out", spec.kind, out, format.name, self.signature.name)
            if out.format != format:
                raise FormatError(_format_mismatch("out", out.format, format))
        made, fields, parts = made_fields(spec.kind), {}, field_shapes(spec.kind, format, shape)
        self._check_handed_on(call.objects, [part for part, _, _ in parts])
        for part, dtype, extents in parts:
            if part in made:
                memory = None if out is None else out.fields[part]
                fields[part] = self._place(call, f"{spec.name}.{part}", f"out.{part}", memory, dtype, extents)
            else:
                fields[part] = call.objects[handed_on(call.objects, part, format)]
                if out is not None:
                    _take_over(f"out.{part}", out.fields[part], fields[part], extents)
        return make(spec.kind, format, shape, fields) if out is None else out

    def _check_handed_on(self, given: Collection[str], parts: Collection[str]) -> None:
        """Raises ArgumentError for an operand that would become a field which the output has not."""
        format = self._request.format
        for each in self.signature.operands:
            if format and each.handed_on and each.name in given and each.name not in parts:
                raise ArgumentError(
                    f"{each.name} is given; tensors of format {format.name} have none: leave it out"
                )

    def _like(self, call: Call) -> str:
        """The array that new ones are made like: the first array operand, or the first field."""
        for each in self.signature.operands:
            if each.kind == "array" and each.name in call.objects:
                return each.name
        return next(iter(call.views))

    def read_workspace(self, call: Call, workspace: Any, wanted: int) -> Space:
        others = list(call.views.items())
        view = call.look(workspace, "workspace")
        common_device({others[0][0]: others[0][1], "workspace": view})
        check_workspace(view, wanted, view.device_type)
        for other, operand in others:
            check_overlap(other, operand, "workspace", view, False)
        return Space(view.address, view.bytes)

    def make_workspace(
        self, call: Call, wanted: int, zeroed: bool, device: Device, stream: int
    ) -> tuple[Any, Space]:
        """New memory, and where it is; it is freed in the order of the stream."""
        like = self._like(call)
        with arrays.on_stream(call.objects[like], device.index, call.stream):
            made = arrays.allocate(call.objects[like], (wanted,), "u8", device.index, "workspace")
        view = arrays.view(made, "workspace")
        check_workspace(view, wanted, view.device_type)
        if zeroed and device.kind == "cuda":
            _core.cuda_set_memory(device.index, view.address, 0, wanted, stream)
        elif zeroed:
            made[:] = 0
        return made, Space(view.address, wanted)

    def assume(self, asker: str, sizes: Mapping[str, Any]) -> Problem:
        """The problem of calls with these extents and scalars; an optional operand's name with True: it is
        given; that of a tensor with a format of its own: this one. `asker` is for messages.
        """
        signature = self.signature
        if signature.broadcasts:
            raise ArgumentError(
                f"{asker} cannot be of {signature.name}: its extents come of the shapes of each call; "
                "call the kernel"
            )
        own = {each.name: each for each in signature.operands if self.own_format(each)}
        given = [each for each in signature.operands if not each.optional or _flag(each.name, sizes)]
        extents = {name: _extent(name, sizes[name]) for name in sizes if name in signature.names}
        needed = {axis for each in given for axis in each.shape if isinstance(axis, str)}
        missing = sorted(needed - set(extents))
        omitted = self._omitted(given, missing) if signature.omissible else None
        if omitted:
            extents.update(dict.fromkeys(missing, 1))
        elif missing:
            wanted = ", ".join(f"{axis}=" for axis in missing)
            raise ArgumentError(f"{asker} needs {wanted} of {signature} as well")
        settled = {*extents, *signature.flags, *own}
        named = {**dict.fromkeys([each.name for each in given], True)}
        named.update((name, value) for name, value in sizes.items() if name not in settled)
        scalars = signature.arrange((), named)[1]
        binding = Binding(signature, {**extents, **scalars}, dict.fromkeys(extents, asker), omitted=omitted)
        binding.check_limits()
        binding.check_derived()
        formats = {
            each.name: (each.name in own and sizes.get(each.name)) or self._request.format
            for each in given
            if each.quantised
        }
        names = self.array_names()
        self._check_handed_on(
            [each.name for each in given], [name.rpartition(".")[2] for name in names if "." in name]
        )
        problem = Problem(binding.values, scalars, binding, tuple(given), formats, {})
        for each in (*given, signature.output):
            problem.arrays.update(self._wanted(each, binding.shape_of(each), formats.get(each.name)))
        return problem

    def _omitted(self, given: Sequence[Operand], missing: Sequence[str]) -> int:
        """How many axes the arrays lack, if the extents of no others are missing."""
        able = [[axis for axis in each.shape if axis in self.signature.omissible] for each in given]
        counts = range(1 + max(map(len, able), default=0))
        return next((n for n in counts if {axis for some in able for axis in some[:n]} == {*missing}), 0)

    def _wanted(self, spec: Operand, shape: tuple[int, ...], format: Descriptor | None) -> dict[str, Wanted]:
        """The arrays of an operand; of an output, those that are written."""
        if spec.kind == "array":
            return {spec.name: Wanted(self.dtypes[spec.name], shape)}
        made = made_fields(spec.kind) if spec is self.signature.output else None
        format = format or self._request.format
        assert format is not None, "kernels with tensors have a format: Library.kernel sees to it"
        parts = _named_fields(spec, format, shape)
        return {
            name: Wanted(dtype, extents)
            for name, part, dtype, extents in parts
            if made is None or part in made
        }

    def array_names(self) -> list[str]:
        """The names of all arrays and fields that a call may have."""
        names = []
        for each in (self.signature.output, *self.signature.operands):
            if each.kind == "array" or self._request.format is None:
                names.append(each.name)
            else:
                parts = _named_fields(each, self._request.format, (1,) * len(each.shape))
                names += [name for name, _, _, _ in parts]
        return list(dict.fromkeys(names))


def _check_writable(name: str, view: View, array: Any, why: str) -> None:
    if view.readonly:
        raise ArgumentError(f"{name} is read-only; {why}")
    if arrays.family(array).immutable:
        raise ArgumentError(
            f"{name} is an array of {arrays.family(array).name}, whose arrays never change: "
            "pass memory of another library, as numpy.empty"
        )


def _named_fields(spec: Operand, format: Descriptor, shape: tuple[int, ...]) -> list[Any]:
    return [(f"{spec.name}.{part}", part, *rest) for part, *rest in field_shapes(spec.kind, format, shape)]


def handed_on(names: Iterable[str], part: str, format: Descriptor) -> str:
    """The array that becomes a field of the result: an operand of that name, or a tensor's field."""
    for name in names:
        if name == part or name.endswith(f".{part}"):
            return name
    raise ArgumentError(f"{part} is missing: tensors of format {format.name} have one, no operand does")


def _take_over(name: str, to: Any, array: Any, shape: tuple[int, ...]) -> None:
    """Makes an array of `out` hold what is handed on, so that its codes and its scales belong together."""
    if to is array:
        return
    if tuple(to.shape) != shape:
        raise ArgumentError(f"{name} has shape {list(to.shape)}; want {list(shape)}")
    try:
        to[...] = array
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"{name} cannot take the operand's values ({error}): "
            "pass a tensor that has the operand's own array"
        ) from error


def _flag(name: str, sizes: Mapping[str, Any]) -> bool:
    given = sizes.get(name, False)
    if not isinstance(given, bool):
        raise ArgumentError(f"{name} is {given!r}; want True where calls give it, or False")
    return given


def _extent(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentError(f"{name} is {value!r}; want an extent, a whole number from 0")
    return value


def _format_mismatch(name: str, got: Any, wanted: Descriptor) -> str:
    label = getattr(got, "name", got)
    if label == wanted.name:
        return (
            f"{name} has another definition of format {label} than the library: quantise again with its own"
        )
    return f"{name} has format {label}; the kernel takes {wanted.name}"
