"""A format as data: the descriptor of the index, parsed and checked once.

The dict is what `index.json` carries for a format: element, block, scale levels, zero point and byte
layout. Nothing else is known about a format; a descriptor made by hand works as one from the index does.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Any

from ..errors import FormatError
from .bits import Move, plan_moves, stream_pitch
from .element import Element, choice, lookup

RULES = ("absmax", "signed_absmax", "minmax", "floor", "nearest", "ceil", "even")
STORAGE = {"u8": "uint8", "u16": "uint16", "f16": "float16", "f32": "float32"}
"""NumPy's names of the dtypes that fields are stored in."""

Block = tuple[int, int]


def _block(value: Any, where: str) -> Block:
    ok = isinstance(value, list | tuple) and len(value) == 2 and all(type(v) is int and v >= 0 for v in value)
    if not ok:
        raise FormatError(
            f"{where}: wanted two integers (rows, columns), 0 for the whole extent; got {value!r}"
        )
    return (value[0], value[1])


@dataclass(frozen=True, eq=False, repr=False)
class Scale:
    """One scale level. Level 0 multiplies (op "multiply"); a further level multiplies or divides what the
    levels before it gave.
    """

    element: Element
    block: Block
    rule: str
    op: str


@dataclass(frozen=True, eq=False, repr=False)
class Zero:
    """A zero point of level 0's blocks: (q - z) * s in the code domain, q * s + z in the value domain."""

    element: Element
    domain: str
    minus_one: bool


@dataclass(frozen=True, eq=False, repr=False)
class Field:
    """One array of a tensor; block is None for the codes. See `Descriptor.field_shape`."""

    name: str
    dtype: str
    bits: int
    block: Block | None


@dataclass(frozen=True, eq=False, repr=False)
class Inline:
    """A field interleaved with the codes: `count` entries a unit, entry i at bit `bit + i * bits`."""

    field: str
    bit: int
    bits: int
    count: int

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        starts = [self.bit + i * self.bits for i in range(self.count)]
        return plan_moves([range(start, start + self.bits) for start in starts])


@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """Bytes of a row of codes: chunks of units, each unit a fixed table of bit positions."""

    unit: int
    unit_bytes: int
    positions: tuple[tuple[int, ...], ...]
    inline: tuple[Inline, ...]
    chunk: int
    load: int
    fields: tuple[Field, ...]

    def row_bytes(self, k: int) -> int:
        """Bytes a row of k elements takes: whole chunks."""
        return ceil(k / (self.chunk * self.unit)) * self.chunk * self.unit_bytes

    def natural_bytes(self, k: int) -> int:
        """The same without the padding to whole chunks: whole units."""
        return ceil(k / self.unit) * self.unit_bytes

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        return plan_moves(self.positions)

    @classmethod
    def parse(cls, obj: Any, bits: int, where: str) -> Layout:
        numbers = {}
        for key in ("unit", "unit_bytes", "chunk", "load"):
            numbers[key] = lookup(obj, key, where)
            if type(numbers[key]) is not int or numbers[key] < 1:
                raise FormatError(f"{where}.{key}: wanted a positive integer; got {numbers[key]!r}")
        positions = tuple(tuple(int(p) for p in row) for row in lookup(obj, "positions", where))
        inline = tuple(
            Inline(
                str(lookup(i, "field", where)),
                int(lookup(i, "bit", where)),
                int(lookup(i, "bits", where)),
                int(i["count"]),
            )
            for i in obj.get("inline", ())
        )
        fields = tuple(
            Field(
                str(lookup(f, "name", where)),
                choice(lookup(f, "dtype", where), tuple(STORAGE), f"{where}.fields.dtype"),
                int(lookup(f, "bits", where)),
                None if f.get("block") is None else _block(f["block"], f"{where}.fields.block"),
            )
            for f in lookup(obj, "fields", where)
        )
        layout = cls(positions=positions, inline=inline, fields=fields, **numbers)
        layout._check(bits, where)
        return layout

    def _check(self, bits: int, where: str) -> None:
        if len(self.positions) != self.unit or any(len(row) != bits for row in self.positions):
            raise FormatError(f"{where}.positions: wanted {self.unit} lists of {bits} bit offsets")
        taken = [p for row in self.positions for p in row]
        taken += [i.bit + b for i in self.inline for b in range(i.bits * i.count)]
        if len(set(taken)) != len(taken) or min(taken) < 0 or max(taken) >= 8 * self.unit_bytes:
            raise FormatError(
                f"{where}: wanted distinct bit offsets from 0 to {8 * self.unit_bytes - 1}; got {taken}"
            )
        if not self.fields or self.fields[0].name != "codes":
            raise FormatError(f"{where}.fields: wanted the codes first; got {[f.name for f in self.fields]}")


@dataclass(frozen=True, eq=False)
class Descriptor:
    """A parsed format. `raw` is the dict it came from; two descriptors are equal when those are. `digest`: 12
    hexadecimal digits of it, where a definition has to be told by a text.
    """

    name: str
    element: Element
    block: Block
    scales: tuple[Scale, ...]
    zero: Zero | None
    layout: Layout
    raw: Mapping[str, Any] = field(repr=False)
    digest: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", _digest(self.raw))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descriptor) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<format {self.name}: {self.element.bits}-bit {self.element.kind}, block {self.block}>"

    @classmethod
    def parse(cls, obj: Any) -> Descriptor:
        """A descriptor dict, or an object whose descriptor() gives one -> Descriptor; FormatError says what
        is off.
        """
        if isinstance(obj, Descriptor):
            return obj
        if not isinstance(obj, Mapping) and callable(getattr(obj, "descriptor", None)):
            obj = obj.descriptor()
        if not isinstance(obj, Mapping):
            raise FormatError(f"format: wanted a descriptor (a dict); got {type(obj).__name__}")
        obj = {key: value for key, value in obj.items() if key != "key"}  # the index' own name of the record
        name = str(lookup(obj, "name", "format"))
        where = f"format {name}"
        element = Element.parse(lookup(obj, "element", where), f"{where}.element")
        if element.wide:
            raise FormatError(
                f"{where}.element: wanted at most 8 bits; {element.wide} is for scales and zero points"
            )
        block = _block(lookup(obj, "block", where), f"{where}.block")
        scales = tuple(
            Scale(
                Element.parse(lookup(s, "element", where), f"{where}.scales[{i}].element"),
                _block(lookup(s, "block", where), f"{where}.scales[{i}].block"),
                choice(s.get("rule", "absmax"), RULES, f"{where}.scales[{i}].rule"),
                choice(s.get("op", "multiply"), ("multiply", "divide"), f"{where}.scales[{i}].op"),
            )
            for i, s in enumerate(lookup(obj, "scales", where))
        )
        found = cls(
            name, element, block, scales, _zero(obj.get("zero"), where),
            Layout.parse(lookup(obj, "layout", where), element.bits, f"{where}.layout"), obj,
        )  # fmt: skip
        found._check(where)
        kept = _ALIVE.setdefault(found.digest, found)
        return kept if kept == found else found

    def _check(self, where: str) -> None:
        for i, scale in enumerate(self.scales):
            finer = self.block if i == 0 else self.scales[i - 1].block
            fits = scale.block == self.block if i == 0 else all(map(_holds, scale.block, finer))
            if not fits:
                raise FormatError(
                    f"{where}.scales[{i}].block: {scale.block} does not hold whole blocks of {finer}"
                )
        rule = self.scales[0].rule if self.scales else ""
        if self.zero is None and rule == "minmax":
            raise FormatError(f"{where}: the rule minmax needs a zero point; use absmax")
        if rule == "signed_absmax" and not self.scales[0].element.wide and self.scales[0].element.low >= 0:
            raise FormatError(f"{where}: the rule signed_absmax needs a scale type with a sign")
        if self.scales and self.scales[0].op != "multiply":
            raise FormatError(
                f"{where}.scales[0].op: the first level multiplies; divide is for levels above it"
            )
        known = (
            {self.field_name(i) for i in range(len(self.scales))}
            | {"codes"}
            | ({"zero"} if self.zero else set())
        )
        given = [f.name for f in self.layout.fields] + [i.field for i in self.layout.inline]
        if sorted(given) != sorted(known):
            raise FormatError(f"{where}.layout: wanted the fields {sorted(known)}; got {sorted(given)}")

    @staticmethod
    def field_name(level: int) -> str:
        """Name of the field that carries a scale level: scale, scale1, scale2."""
        return f"scale{level}" if level else "scale"

    @property
    def side_fields(self) -> tuple[tuple[str, Element, Block], ...]:
        """(name, element, block) of every scale level and of the zero point, inline or not."""
        sides = [(self.field_name(i), s.element, s.block) for i, s in enumerate(self.scales)]
        if self.zero:
            sides.append(("zero", self.zero.element, self.block))
        return tuple(sides)

    def field_shape(self, field: Field, shape: tuple[int, int]) -> tuple[int, int]:
        """Shape of a field's array for an [N, K] tensor."""
        n, k = shape
        if field.block is None:
            return n, self.layout.row_bytes(k)
        rows, columns = grid(field.block, shape)
        return rows, columns if field.bits in (8, 16, 32) else stream_pitch(columns, field.bits)


_ALIVE: weakref.WeakValueDictionary[str, Descriptor] = weakref.WeakValueDictionary()
"""By digest. Equal formats, of whatever library or file, are one object: plans compare identities."""


def _digest(raw: Mapping[str, Any]) -> str:
    """Of equal dicts it is the same: in any order, and with 1 for 1.0."""
    import hashlib
    import json

    numbers = json.loads(json.dumps(raw, default=dict), parse_int=float)
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:12]


def _zero(obj: Any, where: str) -> Zero | None:
    if obj is None:
        return None
    element = Element.parse(lookup(obj, "element", where), f"{where}.zero.element")
    domain = choice(lookup(obj, "domain", where), ("code", "value"), f"{where}.zero.domain")
    stored = choice(obj.get("stored", "value"), ("value", "minus_one"), f"{where}.zero.stored")
    return Zero(element, domain, stored == "minus_one")


def _holds(outer: int, inner: int) -> bool:
    """Whether a block extent is a whole number of finer ones; 0 is the whole axis."""
    return outer == 0 or (inner != 0 and outer % inner == 0)


def extent(block: Block, shape: tuple[int, int]) -> Block:
    """The block with 0 replaced by the axis' length."""
    return block[0] or shape[0], block[1] or shape[1]


def grid(block: Block, shape: tuple[int, int]) -> tuple[int, int]:
    """Blocks along N and along K, the ragged last ones included."""
    rows, columns = extent(block, shape)
    return -(-shape[0] // rows), -(-shape[1] // columns)
