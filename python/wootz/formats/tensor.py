"""QuantizedTensor: a matrix in a format, or a bank of them, as plain arrays; and the split of a matrix' bytes
into codes and side fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, DtypeError, FormatError
from ..lazy_numpy import is_ndarray, np
from .bank import Banked, check_banked, check_shape, one_matrix
from .bits import gather, pack_stream, scatter, unpack_stream
from .descriptor import STORAGE, Block, Descriptor, Field, grid
from .element import Element
from .moving import to_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TORCH = {"u8": "uint8", "u16": "uint16", "f16": "float16", "f32": "float32"}


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedTensor(Banked):
    """An [N, K] matrix in a format, or a bank of them (`stack`).

    format: the Descriptor (a descriptor dict is parsed). shape: (N, K), or (matrices, N, K). fields: name ->
    array, in kernel-argument order; `codes` is uint8 [N, row_bytes(K)] and holds whatever the format
    interleaves, the others are one entry a block ([ceil(N / rows), ceil(K / columns)]) or LSB-first byte
    streams of it; a bank's have one axis more in front. The arrays may be NumPy's, torch's or CuPy's; names,
    shapes and dtypes are checked here, the bytes are not. Raises FormatError (fields), ArgumentError
    (shapes), DtypeError.
    """

    format: Descriptor
    shape: tuple[int, ...]
    fields: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", Descriptor.parse(self.format))
        object.__setattr__(self, "shape", check_banked(self.shape))
        layout = self.format.layout
        wanted = [f.name for f in layout.fields]
        if sorted(self.fields) != sorted(wanted):
            raise FormatError(f"{self.format.name}: wanted the fields {wanted}; got {sorted(self.fields)}")
        *bank, n, k = self.shape
        for f in layout.fields:
            check_field(self.format, f, (n, k), self.fields[f.name], tuple(bank))
        object.__setattr__(self, "fields", MappingProxyType({name: self.fields[name] for name in wanted}))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (dict(self.format.raw), self.shape, dict(self.fields))

    @property
    def nbytes(self) -> int:
        """Bytes of all fields together, padding included."""
        sizes = {f.name: np.dtype(STORAGE[f.dtype]).itemsize for f in self.format.layout.fields}
        return sum(int(np.prod(tuple(a.shape))) * sizes[name] for name, a in self.fields.items())

    def dequantize(self) -> NDArray[np.float32]:
        """float32 of the tensor's shape, rounded as kernels round it, bit for bit. Fields on a device are
        copied to the CPU first.
        """
        from .dequantize import decode

        values = [decode(matrix) for matrix in self.to("cpu").matrices()]
        return np.stack(values) if len(self.shape) == 3 else values[0]

    def __repr__(self) -> str:
        arrays = ", ".join(
            f"{name} {str(a.dtype).rpartition('.')[2]}{list(a.shape)}" for name, a in self.fields.items()
        )
        size = f"{'x'.join(map(str, self.shape))}, {self.nbytes} bytes"
        return f"QuantizedTensor({self.format.name}, {size}: {arrays})"


def _rebuild(raw: dict[str, Any], shape: tuple[int, ...], fields: dict[str, Any]) -> QuantizedTensor:
    return QuantizedTensor(Descriptor.parse(raw), shape, fields)


def check_field(
    format: Descriptor, f: Field, shape: tuple[int, int], array: Any, bank: tuple[int, ...] = ()
) -> None:
    """bank: the axis that the fields of several matrices have in front."""
    where = f"{format.name}, field {f.name}"
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise ArgumentError(f"{where}: wanted an array; got {type(array).__name__}")
    wanted = (*bank, *format.field_shape(f, shape))
    if tuple(array.shape) != wanted:
        raise ArgumentError(
            f"{where}: wanted shape {wanted} for {shape[0]}x{shape[1]}; got {tuple(array.shape)}"
        )
    if is_ndarray(array):
        fits = array.dtype == np.dtype(STORAGE[f.dtype])
    else:
        fits = str(array.dtype).rpartition(".")[2] == _TORCH[f.dtype]
    if not fits:
        raise DtypeError(f"{where}: wanted dtype {_TORCH[f.dtype]}; got {array.dtype}")


def from_fields(format: Any, shape: tuple[int, int], fields: Mapping[str, Any]) -> QuantizedTensor:
    """A QuantizedTensor from arrays that another program made.

    codes: uint8 [N, B], B the padded row_bytes(K) or the unpadded bytes (whole units), which are copied
    into padded rows. Side fields: a scalar or any array with as many entries as wanted is reshaped; arrays
    of 8- and 16-bit types that NumPy does not know (ml_dtypes) are taken by their bits. Raises as
    QuantizedTensor does.
    """
    descriptor = Descriptor.parse(format)
    shape = check_shape(shape)
    found = {name: to_numpy(a) for name, a in fields.items()}
    for f in descriptor.layout.fields:
        if f.name not in found:
            continue
        a = found[f.name]
        storage = np.dtype(STORAGE[f.dtype])
        if (a.dtype != storage and a.dtype.kind in "V") or (a.dtype.name == "int8" and f.dtype == "u8"):
            if a.dtype.itemsize != storage.itemsize:
                raise DtypeError(
                    f"{descriptor.name}, field {f.name}: wanted {storage.itemsize} bytes an entry; "
                    f"got {a.dtype}"
                )
            a = np.ascontiguousarray(a).view(storage)
        wanted = descriptor.field_shape(f, shape)
        if f.block is None and a.shape == (shape[0], descriptor.layout.natural_bytes(shape[1])):
            padded = np.zeros(wanted, dtype=np.uint8)
            padded[:, : a.shape[1]] = a
            a = padded
        elif a.shape != wanted and a.size == wanted[0] * wanted[1]:
            a = a.reshape(wanted)
        found[f.name] = np.ascontiguousarray(a)
    return QuantizedTensor(descriptor, shape, found)


# ------------------------------------------------------------ codes and side fields
def side_entries(q: QuantizedTensor) -> dict[str, NDArray[Any]]:
    """Stored entries (codes of narrow types, storage dtype of wide ones) of the scales and the zero point,
    by block.
    """
    return {name: _side(q, name, element, block) for name, element, block in q.format.side_fields}


def _side(q: QuantizedTensor, name: str, element: Element, block: Block) -> NDArray[Any]:
    shape, layout = one_matrix("tensor", q), q.format.layout
    rows, columns = grid(block, shape)
    for inline in layout.inline:
        if inline.field == name:
            units = q.fields["codes"][:, : layout.natural_bytes(shape[1])].reshape(-1, layout.unit_bytes)
            raw = gather(units, inline.count, _unsigned(inline.bits), inline.moves)
            return _typed(raw.reshape(rows, -1)[:, :columns], element)
    data = q.fields[name]
    return data if element.bits in (8, 16, 32) else unpack_stream(data, columns, element.bits)


def pack_side(entries: NDArray[Any], element: Element) -> NDArray[Any]:
    """Entries by block -> the array of a field that is not inline."""
    return (
        np.ascontiguousarray(entries) if element.bits in (8, 16, 32) else pack_stream(entries, element.bits)
    )


def pack_rows(
    format: Descriptor, codes: NDArray[np.uint8], sides: Mapping[str, NDArray[Any]], out: NDArray[np.uint8]
) -> None:
    """Write the codes [R, K] and the inline fields [R, blocks] of some rows into zeroed bytes [R,
    row_bytes].
    """
    layout = format.layout
    rows, k = codes.shape
    units = -(-k // layout.unit)
    packed = np.zeros((rows * units, layout.unit_bytes), dtype=np.uint8)
    scatter(packed, _whole(codes, units * layout.unit).reshape(-1, layout.unit), layout.moves)
    for inline in layout.inline:
        raw = sides[inline.field]
        raw = np.ascontiguousarray(raw).view(_unsigned(8 * raw.dtype.itemsize))
        scatter(packed, _whole(raw, units * inline.count).reshape(-1, inline.count), inline.moves)
    out[:, : units * layout.unit_bytes] = packed.reshape(rows, -1)


def unpack_rows(q: QuantizedTensor, start: int, stop: int) -> NDArray[np.uint8]:
    """Codes [stop - start, K] of some rows."""
    layout = q.format.layout
    k = q.shape[1]
    data = np.ascontiguousarray(q.fields["codes"][start:stop, : layout.natural_bytes(k)])
    codes = gather(data.reshape(-1, layout.unit_bytes), layout.unit, np.uint8, layout.moves)
    return codes.reshape(stop - start, -1)[:, :k]


def _whole(a: NDArray[Any], columns: int) -> NDArray[Any]:
    """Zero columns appended up to the given number."""
    if a.shape[1] == columns:
        return a
    out = np.zeros((a.shape[0], columns), dtype=a.dtype)
    out[:, : a.shape[1]] = a
    return out


def _unsigned(bits: int) -> Any:
    return np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32


def _typed(raw: NDArray[Any], element: Element) -> NDArray[Any]:
    storage = np.dtype(STORAGE[element.storage])
    return np.ascontiguousarray(raw).view(storage)
