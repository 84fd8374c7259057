"""Packed tensors: the codes of a matrix where tensor cores want them, in units of 16 rows; see `Packing`.

`prepack` and `unpack` are exact inverses. Both work on some tiles of rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import ArgumentError, DtypeError, FormatError
from ..lazy_numpy import np
from .bank import Banked, check_banked, one_matrix
from .bits import Move, gather, plan_moves, scatter
from .descriptor import STORAGE, Descriptor, extent, grid
from .element import lookup
from .tensor import (
    QuantizedTensor,
    check_field,
    pack_rows,
    pack_side,
    side_entries,
    unpack_rows,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS, LANES, PERIOD = 16, 32, 16
CHUNK = 1 << 21  # elements that are packed at once
_UNSIGNED = {1: "uint8", 2: "uint16", 4: "uint32"}


@dataclass(frozen=True)
class Side:
    """Scales or zero points inside a unit, [g][run][row half]: `bytes` an entry, from byte `offset`."""

    name: str
    bytes: int
    offset: int
    type: str


@dataclass(frozen=True)
class Packing:
    """The packed layout of a format, from the index: units of 16 rows x `unit_k` columns, ordered
    [ceil(N / 16)][ceil(K / unit_k)].

    Lane l of a unit (g = l / 4, t = l % 4) holds pairs of codes, low and high half-word: pair 4 * s + r is
    row g + 8 * (r & 1), columns 16 * s + 2 * t + 8 * (r >> 1) and the next. `positions`: the bits of the
    codes of 16 pairs in the stream of the low half-words. Word 4 * i + c of lane l is at byte
    (32 * i + l) * 16 + 4 * c.
    `sides` follow; scales do not change within `run` columns. `tensors`: scale levels that stay arrays.
    """

    unit_k: int
    run: int
    unit_bytes: int
    bits: int
    positions: tuple[tuple[int, ...], ...]
    sides: tuple[Side, ...]
    tensors: tuple[str, ...]

    @classmethod
    def of(cls, format: Descriptor) -> Packing:
        """The record of a descriptor. FormatError where it has none or it does not fit the format."""
        return _parse(format)

    @property
    def words(self) -> int:
        """32-bit words of codes a lane."""
        return self.unit_k * self.bits // 64

    @property
    def runs(self) -> int:
        return self.unit_k // self.run

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """From the 32 codes of 16 pairs to the bytes of their words."""
        both = [
            [p // 16 * 32 + p % 16 + 16 * half for p in place] for place in self.positions for half in (0, 1)
        ]
        return plan_moves(both)

    def units(self, shape: tuple[int, int]) -> tuple[int, int, int]:
        """Shape of the units of an [N, K] matrix."""
        return -(-shape[0] // ROWS), -(-shape[1] // self.unit_k), self.unit_bytes


@lru_cache(maxsize=512)
def _parse(format: Descriptor) -> Packing:
    where = f"format {format.name}"
    if "packed" not in format.raw:
        raise FormatError(
            f"{where}: wanted a packed layout in its descriptor; got none; "
            "take the format from an artifact folder built by this version (Library.format)"
        )
    record, where = format.raw["packed"], f"{where}.packed"
    numbers = {}
    for key in ("unit_k", "run", "unit_bytes", "bits"):
        numbers[key] = lookup(record, key, where)
        if type(numbers[key]) is not int or numbers[key] < 1:
            raise FormatError(f"{where}.{key}: wanted a positive integer; got {numbers[key]!r}")
    bits = numbers["bits"]
    plain = [range(p * bits, (p + 1) * bits) for p in range(PERIOD)]
    positions = tuple(tuple(int(p) for p in place) for place in record.get("positions", plain))
    sides = tuple(
        Side(
            str(lookup(s, "name", where)),
            int(lookup(s, "bytes", where)),
            int(lookup(s, "offset", where)),
            str(lookup(s, "type", where)),
        )
        for s in lookup(record, "sides", where)
    )
    tensors = tuple(str(name) for name in record.get("tensors", ()))
    found = Packing(**numbers, positions=positions, sides=sides, tensors=tensors)
    _check(found, format, where)
    return found


def _check(p: Packing, format: Descriptor, where: str) -> None:
    bits = format.element.bits
    if p.bits != bits:
        raise FormatError(f"{where}.bits: wanted {bits}, as the element has; got {p.bits}")
    if p.unit_k % 64 or p.unit_k * bits % 256 or p.unit_k % p.run:
        raise FormatError(
            f"{where}: wanted whole vectors of 16 bytes a lane and whole runs in a unit; "
            f"got unit_k {p.unit_k}, run {p.run}"
        )
    taken = sorted(i for place in p.positions for i in place)
    if len(p.positions) != PERIOD or taken != list(range(PERIOD * bits)):
        raise FormatError(
            f"{where}.positions: wanted {PERIOD} lists of {bits} bits, "
            f"each bit from 0 to {PERIOD * bits - 1} once"
        )
    known = {name: (element, block) for name, element, block in format.side_fields}
    if sorted([*(s.name for s in p.sides), *p.tensors]) != sorted(known):
        raise FormatError(
            f"{where}: wanted sides and tensors {sorted(known)}; got {[s.name for s in p.sides]}, {p.tensors}"
        )
    for name in p.tensors:
        if known[name][1] != (0, 0):
            raise FormatError(f"{where}.tensors: {name} is not one for the whole tensor")
    end = p.words * 4 * LANES
    for s in p.sides:
        element, block = known[s.name]
        size = s.bytes * ROWS * p.runs
        if s.bytes != max(element.bits, 8) // 8 or s.offset < end or s.offset % 16 or block[1] % p.run:
            raise FormatError(
                f"{where}.sides: {s.name} at byte {s.offset}, {s.bytes} bytes an entry, does not fit "
                f"{element.bits} bits a block of {block} and the {end} bytes before it"
            )
        end = s.offset + size
    if end > p.unit_bytes or p.unit_bytes % 16:
        raise FormatError(f"{where}.unit_bytes: wanted a multiple of 16 from {end}; got {p.unit_bytes}")


@dataclass(frozen=True, eq=False, repr=False)
class PackedTensor(Banked):
    """An [N, K] matrix in a format's packed layout, as `prepack` makes it, or a bank of them (`stack`).

    format: the Descriptor (a descriptor dict is parsed). shape: (N, K), or (matrices, N, K). fields: `units`,
    uint8 [ceil(N / 16), ceil(K / unit_k), unit_bytes], and the scale levels that are one for the tensor, as a
    QuantizedTensor has them; a bank's have one axis more in front. Arrays may be NumPy's, torch's or CuPy's;
    names, shapes and dtypes are checked, the bytes are not. Raises FormatError (fields, or a format without a
    packed layout), ArgumentError (shapes), DtypeError.
    """

    layout: ClassVar[str] = "packed"

    format: Descriptor
    shape: tuple[int, ...]
    fields: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", Descriptor.parse(self.format))
        object.__setattr__(self, "shape", check_banked(self.shape))
        packing = self.packing
        wanted = ["units", *packing.tensors]
        if not isinstance(self.fields, Mapping):
            raise ArgumentError(f"fields: wanted arrays by name; got a {type(self.fields).__name__}")
        if sorted(self.fields) != sorted(wanted):
            raise FormatError(f"{self.format.name}: wanted the fields {wanted}; got {sorted(self.fields)}")
        *bank, n, k = self.shape
        _check_units(self.format.name, (*bank, *packing.units((n, k))), self.fields["units"])
        for f in self.format.layout.fields:
            if f.name in packing.tensors:
                check_field(self.format, f, (n, k), self.fields[f.name], tuple(bank))
        object.__setattr__(self, "fields", MappingProxyType({name: self.fields[name] for name in wanted}))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (dict(self.format.raw), self.shape, dict(self.fields))

    @property
    def packing(self) -> Packing:
        """The layout."""
        return Packing.of(self.format)

    @property
    def nbytes(self) -> int:
        """Bytes of all fields together, padding included."""
        storage = {f.name: STORAGE[f.dtype] for f in self.format.layout.fields}
        sizes = {name: np.dtype(storage.get(name, np.uint8)).itemsize for name in self.fields}
        return sum(int(np.prod(tuple(a.shape))) * sizes[name] for name, a in self.fields.items())

    def dequantize(self) -> NDArray[np.float32]:
        """float32 of the tensor's shape, rounded as kernels round it, bit for bit."""
        values = [unpack(matrix).dequantize() for matrix in self.matrices()]
        return np.stack(values) if len(self.shape) == 3 else values[0]

    def __repr__(self) -> str:
        size = f"{'x'.join(map(str, self.shape))}, {self.nbytes} bytes"
        return f"PackedTensor({self.format.name}, {size}: units {list(self.fields['units'].shape)})"


def _rebuild(raw: dict[str, Any], shape: tuple[int, ...], fields: dict[str, Any]) -> PackedTensor:
    return PackedTensor(Descriptor.parse(raw), shape, fields)


def _check_units(name: str, wanted: tuple[int, ...], array: Any) -> None:
    where = f"{name}, field units"
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise ArgumentError(f"{where}: wanted an array; got {type(array).__name__}")
    if tuple(array.shape) != wanted:
        raise ArgumentError(f"{where}: wanted shape {wanted}; got {tuple(array.shape)}")
    if str(array.dtype).rpartition(".")[2] != "uint8":
        raise DtypeError(f"{where}: wanted dtype uint8; got {array.dtype}")


# ------------------------------------------------------------ natural -> packed
def prepack(q: QuantizedTensor) -> PackedTensor:
    """The same matrix in its format's packed layout: what the matrix kernels for packed weights take.

    Exact: `unpack` gives back every field. Fields on a device are copied to the CPU first. Raises
    ArgumentError (no QuantizedTensor; a bank: see `matrices`), FormatError (a descriptor without a packed
    layout).
    """
    if not isinstance(q, QuantizedTensor):
        raise ArgumentError(f"tensor: wanted a QuantizedTensor (see quantize); got {type(q).__name__}")
    shape, packing = one_matrix("tensor", q), Packing.of(q.format)
    q = q.to("cpu")
    entries = side_entries(q)
    units = np.zeros(packing.units(shape), dtype=np.uint8)
    for first, last in _tiles(packing, shape):
        rows = slice(first * ROWS, min(last * ROWS, shape[0]))
        _pack_codes(packing, unpack_rows(q, rows.start, rows.stop), units[first:last])
        for side in packing.sides:
            _pack_side(packing, q, side, entries[side.name], first, units[first:last])
    fields = {"units": units, **{name: q.fields[name] for name in packing.tensors}}
    return PackedTensor(q.format, q.shape, fields)


def _tiles(packing: Packing, shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Ranges of tiles of rows, with about CHUNK elements each."""
    tiles, across, _ = packing.units(shape)
    step = max(1, CHUNK // (ROWS * across * packing.unit_k))
    for start in range(0, tiles, step):
        yield start, min(tiles, start + step)


def _pack_codes(p: Packing, codes: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Codes [rows, K] of some tiles into their units."""
    tiles, across, _ = out.shape
    whole = np.zeros((tiles * ROWS, across * p.unit_k), dtype=np.uint8)
    whole[: codes.shape[0], : codes.shape[1]] = codes
    # tile, row half, g, unit, step, k half, t, low or high
    # -> tile, unit, lane (g, t), pair (step, k half, row half), low or high
    parts = whole.reshape(tiles, 2, 8, across, p.unit_k // 16, 2, 4, 2)
    pairs = parts.transpose(0, 3, 2, 6, 4, 5, 1, 7).reshape(-1, 2 * PERIOD)
    packed = np.zeros((pairs.shape[0], 4 * p.bits), dtype=np.uint8)
    scatter(packed, pairs, p.moves)
    vectors = packed.view(np.uint32).reshape(tiles, across, LANES, p.words // 4, 4).transpose(0, 1, 3, 2, 4)
    out[:, :, : p.words * 4 * LANES] = np.ascontiguousarray(vectors).view(np.uint8).reshape(tiles, across, -1)


def _pack_side(
    p: Packing, q: QuantizedTensor, side: Side, entries: NDArray[Any], first: int, out: NDArray[np.uint8]
) -> None:
    """Entries by block into the units of some tiles: the block's of each row and run, the last repeated."""
    tiles, across, _ = out.shape
    rows, columns = _blocks(p, q, side, first, tiles, across)
    stored = np.ascontiguousarray(entries).view(_UNSIGNED[side.bytes])[rows][:, columns]
    # tile, row half, g, unit, run -> tile, unit, g, run, row half
    placed = stored.reshape(tiles, 2, 8, across, p.runs).transpose(0, 3, 2, 4, 1)
    size = side.bytes * ROWS * p.runs
    bytes_ = np.ascontiguousarray(placed).view(np.uint8).reshape(tiles, across, size)
    out[:, :, side.offset : side.offset + size] = bytes_


def _blocks(
    p: Packing, q: QuantizedTensor, side: Side, first: int, tiles: int, across: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The block's row of each row of some tiles, and its column of each run."""
    block = next(block for name, _, block in q.format.side_fields if name == side.name)
    n, k = one_matrix("tensor", q)
    height, width = extent(block, (n, k))
    rows = np.minimum(np.arange(first * ROWS, (first + tiles) * ROWS), n - 1) // height
    columns = np.minimum(np.arange(across * p.runs) * p.run, k - 1) // width
    return rows, columns


# ------------------------------------------------------------ packed -> natural
def unpack(packed: PackedTensor) -> QuantizedTensor:
    """The matrix in its format's natural layout: the inverse of `prepack`.

    Fields on a device are copied to the CPU first. Raises ArgumentError (no PackedTensor; a bank: see
    `matrices`).
    """
    if not isinstance(packed, PackedTensor):
        raise ArgumentError(f"tensor: wanted a PackedTensor (see prepack); got {type(packed).__name__}")
    shape = one_matrix("tensor", packed)
    packed = packed.to("cpu")
    format, packing = packed.format, packed.packing
    units = np.ascontiguousarray(packed.fields["units"])
    sides = {s.name: _unpack_side(packing, format, shape, s, units) for s in packing.sides}
    codes = np.zeros((shape[0], format.layout.row_bytes(shape[1])), dtype=np.uint8)
    inline = [i.field for i in format.layout.inline]
    for first, last in _tiles(packing, shape):
        rows = slice(first * ROWS, min(last * ROWS, shape[0]))
        some = _unpack_codes(packing, units[first:last])[: rows.stop - rows.start, : shape[1]]
        pack_rows(format, some, {name: sides[name][rows] for name in inline}, codes[rows])
    fields: dict[str, Any] = {"codes": codes}
    elements = {name: element for name, element, _ in format.side_fields}
    for f in format.layout.fields[1:]:
        kept = f.name in packing.tensors
        fields[f.name] = packed.fields[f.name] if kept else pack_side(sides[f.name], elements[f.name])
    return QuantizedTensor(format, shape, fields)


def _unpack_codes(p: Packing, units: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes [rows, K], padding included, of some tiles."""
    tiles, across, _ = units.shape
    bytes_ = np.ascontiguousarray(units[:, :, : p.words * 4 * LANES])
    vectors = bytes_.view(np.uint32).reshape(tiles, across, p.words // 4, LANES, 4).transpose(0, 1, 3, 2, 4)
    packed = np.ascontiguousarray(vectors).view(np.uint8).reshape(-1, 4 * p.bits)
    pairs = gather(packed, 2 * PERIOD, np.uint8, p.moves)
    parts = pairs.reshape(tiles, across, 8, 4, p.unit_k // 16, 2, 2, 2).transpose(0, 6, 2, 1, 4, 5, 3, 7)
    whole: NDArray[np.uint8] = np.ascontiguousarray(parts).reshape(tiles * ROWS, across * p.unit_k)
    return whole


def _unpack_side(
    p: Packing, format: Descriptor, shape: tuple[int, int], side: Side, units: NDArray[np.uint8]
) -> NDArray[Any]:
    """Entries by block, from the first row and run of each."""
    element, block = next((e, b) for name, e, b in format.side_fields if name == side.name)
    tiles, across, _ = units.shape
    size = side.bytes * ROWS * p.runs
    bytes_ = np.ascontiguousarray(units[:, :, side.offset : side.offset + size])
    placed = bytes_.view(_UNSIGNED[side.bytes]).reshape(tiles, across, 8, p.runs, 2).transpose(0, 4, 2, 1, 3)
    every = placed.reshape(tiles * ROWS, across * p.runs)
    height, width = extent(block, shape)
    rows, columns = grid(block, shape)
    entries = every[np.arange(rows) * height][:, np.arange(columns) * width // p.run]
    return np.ascontiguousarray(entries).view(STORAGE[element.storage])
