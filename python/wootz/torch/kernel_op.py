"""One kernel as a custom op: its schema, its launch, the shapes of its results, its Python function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..errors import ArgumentError, DtypeError, FormatError
from ..formats import Descriptor
from ..formats.tiles import activations
from ..layouts import check_layout, field_shapes, made_fields, make
from ..signature import Binding, Operand, Signature
from .dispatch import Dispatch, Request, aligned, device_name
from .tensors import assemble, flatten, mark, refuse_grad, short_dtype, torch_dtype

__all__ = ["KernelOp"]

SAME = "same"
"""The choice of an option that says: as the operands."""

Values = Mapping[str, Any]
"""The arguments of an op by name."""


class KernelOp:
    """A kernel of a library as the op NAMESPACE::KERNEL.

    The schema follows the signature: an array is a Tensor; a quantised tensor w is its fields, `Tensor[] w`,
    `str w_format` (NAME, or NAME@DIGEST) and `SymInt[] w_shape`, all None of one that is left out; scalars
    and options go by name. Calling it is the function of Ops.
    """

    def __init__(self, dispatch: Dispatch, signature: Signature, namespace: str) -> None:
        self.signature, self._dispatch, self._namespace = signature, dispatch, namespace
        operands = {each.name: each for each in signature.operands}
        self._operands = [operands[name] for name in signature.order]
        arrays = [each for each in self._operands if each.kind == "array" and not each.optional]
        self._first = arrays[0].name if arrays and not arrays[0].strided else None
        self._typed = next((each.name for each in arrays if not each.dtype), None)
        """The operand whose dtype is the cell's."""
        self._weights = next((each for each in self._operands if each.quantised and not each.format), None)
        """The operand whose format is the cell's."""
        self._positional = [name for each in self._operands for name in _names(each)]
        self._defaults = dict(self._find_defaults())
        _ = signature.flags, signature.defaults  # torch.compile reads what is cached, and cannot compute it

    # ---- the schema

    @property
    def schema(self) -> str:
        letters = dict(zip([each.name for each in self._operands if each.updated], "abcdefgh"))
        declared = [_declared(each, letters.get(each.name, "")) for each in self._operands]
        positional = [text for some in declared for text in some]
        named = list(self._declared_names())
        count = len(made_fields(self.signature.output.kind))
        made = "Tensor" if count < 2 else f"({', '.join(['Tensor'] * count)})"
        made = "Tensor[]" if self._listed else made
        made = "()" if self.signature.in_place else made
        return f"({', '.join([*positional, *(['*', *named] if named else [])])}) -> {made}"

    def _declared_names(self) -> Iterator[str]:
        if self.needs_dtype:
            yield "ScalarType dtype"
        if self.needs_format:
            yield "str format"
        for option in self.signature.options:
            default = self._defaults.get(option)
            yield f"str {option}" + (f'="{default}"' if default else "")
        for scalar in self.signature.scalars.values():
            kind = "str" if scalar.choices else "float" if scalar.type == "f32" else "int"
            value = self._defaults[scalar.name]
            yield f"{kind} {scalar.name}=" + (f'"{value}"' if kind == "str" else repr(value))

    @property
    def needs_dtype(self) -> bool:
        """Whether dtype= says what type the result has: no operand does."""
        output = self.signature.output
        return self._typed is None and output.kind == "array" and not output.dtype

    @property
    def needs_format(self) -> bool:
        """Whether format= says what format the result has: no operand does."""
        return self.signature.quantised and self._weights is None

    def _find_defaults(self) -> Iterator[tuple[str, Any]]:
        for each in self._operands:
            if each.optional:
                yield from ((name, None) for name in _names(each))
        for option in self.signature.options:
            if SAME in self._dispatch.choices(self.signature.name, option):
                yield option, SAME
        for scalar in self.signature.scalars.values():
            if scalar.choices:
                yield scalar.name, scalar.choices[int(scalar.default)]
            else:
                yield scalar.name, float(scalar.default) if scalar.type == "f32" else int(scalar.default)

    # ---- inside the dispatcher

    def run(self, *args: Any, **named: Any) -> Any:
        """The launch."""
        values = {**self._defaults, **dict(zip(self._positional, args)), **named}
        operands = self._read(values)
        refuse_grad(dict(_tensors(operands)))
        device = next(tensor for _, tensor in _tensors(operands)).device
        request, _ = self._request(values, operands, device_name(device))
        out = self.fake(*args, **named).zero_() if self.signature.partial else None
        if self._first:
            operands[self._first] = aligned(operands[self._first])
        given = {name: value for name, value in operands.items() if value is not None}
        scalars = {name: values[name] for name in self.signature.scalars}
        made = self._dispatch.call(request, given, scalars, out)
        if self.signature.in_place:
            return None
        parts = [made.fields[name] for name in self._made if name in made.fields]
        return self._results(parts if self._made else [made])

    def fake(self, *args: Any, **named: Any) -> Any:
        """Empty results, of extents that may be symbols."""
        values = {**self._defaults, **dict(zip(self._positional, args)), **named}
        operands = self._read(values)
        refuse_grad(dict(_tensors(operands)))
        request, format = self._request(values, operands, None)
        kernel = self._dispatch.kernel(request)
        binding, like = Binding(self.signature), next(tensor for _, tensor in _tensors(operands))
        for each in self.signature.operands:
            value = operands[each.name]
            if isinstance(value, torch.Tensor):
                _check_type(each.name, value, kernel.dtype_of(each.name))
            if value is not None:
                binding.bind(each, tuple(value.shape))
        binding.values.update({n: each.read(values[n]) for n, each in self.signature.scalars.items()})
        binding.values.update({f: int(operands[n] is not None) for n, f in self.signature.flags.items()})
        if not self.signature.plain or binding.derived:
            binding.check_derived()
        shape, output = binding.output_shape(), self.signature.output
        if self.signature.in_place:
            return None
        if not self._made:
            return like.new_empty(shape, dtype=torch_dtype(kernel.dtype_of(output.name)))
        assert format is not None, "tensors have a format"
        fields = {name: (dtype, extents) for name, dtype, extents in field_shapes(output.kind, format, shape)}
        made = (fields[name] for name in self._made if name in fields)
        return self._results([like.new_empty(extents, dtype=torch_dtype(dtype)) for dtype, extents in made])

    @property
    def _made(self) -> tuple[str, ...]:
        return made_fields(self.signature.output.kind)

    @property
    def _listed(self) -> bool:
        """Whether the results are as many as the fields of the format."""
        return self.signature.output.kind == "quantised"

    def _results(self, made: Sequence[torch.Tensor]) -> Any:
        if self._listed:
            return list(made)
        return made[0] if len(made) == 1 else tuple(made)

    def _request(
        self, values: Values, operands: Values, device: str | None
    ) -> tuple[Request, Descriptor | None]:
        """The kernel that is asked for, and the format of its cell."""
        format = None
        if self._weights is not None:
            format = operands[self._weights.name].format
        elif self.needs_format:
            format = self._dispatch.format(values["format"])
        name = None if format is None else format.name
        if self._typed is not None:
            dtype = short_dtype(self._typed, operands[self._typed].dtype)
        elif self.needs_dtype:
            dtype = short_dtype("dtype", values["dtype"])
        else:
            dtype = self._dispatch.only_dtype(self.signature.name, name or "-")
        options = tuple((option, values[option]) for option in self.signature.options)
        return Request(self.signature.name, name, dtype, device, options), format

    def _read(self, values: Values) -> dict[str, Any]:
        """The operands by name: tensors, quantised tensors, None."""
        found: dict[str, Any] = {}
        for each in self._operands:
            value = values[each.name]
            if each.quantised and value is not None:
                format = self._format(each, values)
                value = assemble(each.name, each.kind, format, values[f"{each.name}_shape"], value)
            found[each.name] = value
        return found

    def _format(self, operand: Operand, values: Values) -> Descriptor:
        marked = values[f"{operand.name}_format"]
        chosen = values[operand.format] if operand.format else SAME
        if chosen == SAME or self._weights is None:
            return self._dispatch.format(marked)
        # activations beside weights: their format follows from the weights'
        made = activations(self._dispatch.format(values[f"{self._weights.name}_format"]), chosen)
        if marked not in (made.name, mark(made)):
            raise FormatError(f"{operand.name} has format {marked}; want {made.name}")
        return made

    # ---- the function

    def __call__(self, *operands: Any, **named: Any) -> Any:
        """See Ops."""
        own = {"dtype": self.needs_dtype, "format": self.needs_format}
        own.update(dict.fromkeys(self.signature.options, True))
        chosen = {name: named.pop(name) for name, known in own.items() if known and name in named}
        if "format" in chosen and isinstance(chosen["format"], Descriptor):
            chosen["format"] = mark(chosen["format"])
        arranged, _ = self.signature.arrange(operands, named)
        given = {each.name: value for each, value in zip(self.signature.operands, arranged)}
        scalars = {name: named[name] for name in self.signature.scalars if name in named}
        flat: list[Any] = []
        for each in self._operands:
            flat += self._flatten(each, given[each.name])
        op = getattr(getattr(torch.ops, self._namespace), self.signature.name)
        missing = [each for each in own if own[each] and each not in {**chosen, **self._defaults}]
        if missing:
            raise ArgumentError(f"{self.signature.name} needs {missing[0]}=, which no operand says")
        return self._wrap(op(*flat, **chosen, **scalars), given, chosen)

    def _flatten(self, operand: Operand, value: Any) -> list[Any]:
        if operand.quantised and value is None and operand.optional:
            return [None, None, None]
        if operand.quantised:
            check_layout(operand.name, operand.kind, value, "FORMAT", self.signature.name)
            return list(flatten(operand.name, value)[:3])
        if value is not None and not isinstance(value, torch.Tensor):
            raise ArgumentError(f"{operand.name} is a {type(value).__name__}; want a torch tensor")
        return [value]

    def _wrap(self, made: Any, given: Values, chosen: Values) -> Any:
        """The tensor that a kernel's results are parts of; its other fields are the operands'. Of a kernel in
        place, the operand that it updates."""
        if self.signature.in_place:
            return given[self.signature.output.name]
        if not self._made:
            return made
        kind = self.signature.output.kind
        binding = Binding(self.signature)
        for each in self.signature.operands:
            if given[each.name] is not None:
                binding.bind(each, tuple(given[each.name].shape))
        source = None if self._weights is None else given[self._weights.name]
        format = self._dispatch.format(chosen["format"]) if source is None else source.format
        names = [name for name, _, _ in field_shapes(kind, format, binding.output_shape())]
        written = [name for name in self._made if name in names]
        fields = dict(zip(written, made if self._listed or len(written) > 1 else [made]))
        for name in names:
            if name not in fields:
                fields[name] = given[name] if source is None else source.fields[name]
        return make(kind, format, binding.output_shape(), fields)


def _names(operand: Operand) -> list[str]:
    name = operand.name
    return [name, f"{name}_format", f"{name}_shape"] if operand.quantised else [name]


def _declared(operand: Operand, letter: str) -> list[str]:
    """letter: of the memory that an operand which is written to has for itself."""
    name, kind = operand.name, f"Tensor({letter}!)" if operand.updated else "Tensor"
    if operand.quantised:
        fields = (f"{kind}[]{{}} {name}", f"str{{}} {name}_format", f"SymInt[]{{}} {name}_shape")
        return [each.format("?") + "=None" if operand.optional else each.format("") for each in fields]
    return [f"{kind}? {name}=None" if operand.optional else f"{kind} {name}"]


def _tensors(operands: Values) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in operands.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif value is not None:
            yield from ((f"{name}.{field}", tensor) for field, tensor in value.fields.items())


def _check_type(name: str, tensor: torch.Tensor, wanted: str) -> None:
    found = short_dtype(name, tensor.dtype)
    if found != wanted:
        raise DtypeError(f"{name} has elements of type {found}; the kernel takes {wanted} there: convert it")
