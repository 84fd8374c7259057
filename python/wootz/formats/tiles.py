"""Tiled tensors: codes and scale tiles in the order that block-scaled matrix instructions read them.

Codes     rows of whole runs of 128 elements, lowest bits first: of two 4-bit codes in a byte the even element
          is the low one. Elements past K have code 0, which is the number 0 in every element taken here.
Scales    one byte a block. Rows are padded to 128 and columns to 4 (a run of 128 elements fills whole tiles),
          and the byte PAD = 0 is written there: 2^-127 or 0, a finite number in both types. The tile of 128
          rows x 4 columns has 512 bytes; entry (r, c) lies at
              (r / 128 * columns / 4 + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4
Scale 1   the one float32 of the tensor, where the format has that level; it multiplies.

Elements and scales that the instructions take are found in a format's axes (`refusal`), never by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ldexp
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import ArgumentError, DtypeError, FormatError
from ..lazy_numpy import np
from .bank import Banked, one_matrix
from .bits import pack_stream, unpack_stream
from .descriptor import STORAGE, Descriptor, grid
from .element import Element
from .tensor import QuantizedTensor, pack_rows, side_entries, unpack_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS, COLUMNS, TILE = 128, 4, 512
"""A tile's rows and columns of scales, and its bytes."""

RUN = 128
"""Elements that a row of codes is padded to: one copy serves every kernel, and the scales of a run fill whole
columns of tiles."""

PAD = 0
"""The byte in padding rows and columns."""


# ------------------------------------------------------------ scale tiles
def tile_bytes(rows: int, columns: int) -> int:
    """Bytes of the tiles of [rows, columns] scales."""
    return -(-rows // ROWS) * -(-columns // COLUMNS) * TILE


def scale_tiles(scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Scales uint8 [rows, columns] -> tiles uint8 [tile_bytes(rows, columns)].

    Raises ArgumentError, DtypeError."""
    scales = np.asarray(scales)
    if scales.dtype != np.uint8:
        raise DtypeError(f"scales: wanted uint8, one byte a block; got {scales.dtype}: pass the stored codes")
    if scales.ndim != 2:
        raise ArgumentError(f"scales: wanted 2 dimensions (rows, columns); got shape {scales.shape}")
    rows, columns = (-(-n // step) for n, step in zip(scales.shape, (ROWS, COLUMNS), strict=True))
    padded = np.full((rows * ROWS, columns * COLUMNS), PAD, dtype=np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    # [tile row, quarter, row, tile column, column] -> [tile row, tile column, row, quarter, column]
    split = padded.reshape(rows, ROWS // 32, 32, columns, COLUMNS)
    return np.ascontiguousarray(split.transpose(0, 3, 2, 1, 4)).reshape(-1)


def untile_scales(tiles: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """The inverse of scale_tiles; padding is not read. Raises ArgumentError, DtypeError."""
    tiles = np.asarray(tiles)
    if tiles.dtype != np.uint8:
        raise DtypeError(f"tiles: wanted uint8; got {tiles.dtype}")
    wanted = tile_bytes(rows, columns)
    if tiles.shape != (wanted,):
        raise ArgumentError(
            f"tiles: wanted shape ({wanted},) for {rows} rows and {columns} columns; got {tiles.shape}"
        )
    down, across = -(-rows // ROWS), -(-columns // COLUMNS)
    split = tiles.reshape(down, across, 32, ROWS // 32, COLUMNS).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(split.reshape(down * ROWS, across * COLUMNS)[:rows, :columns])


# ------------------------------------------------------------ what the instructions take
def _minifloat(exponent: int, mantissa: int, top: tuple[float, ...]) -> tuple[float, ...]:
    """The values of a small float with the usual bias; `top` replaces the last magnitudes."""
    bias = (1 << (exponent - 1)) - 1
    codes = [divmod(code, 1 << mantissa) for code in range(1 << (exponent + mantissa))]
    plain = [ldexp((e > 0) * (1 << mantissa) + m, max(e, 1) - bias - mantissa) for e, m in codes]
    half = [*plain[: len(plain) - len(top)], *top]
    return (*half, *(-v for v in half))


_NAN, _INF = float("nan"), float("inf")
_E4M3 = _minifloat(4, 3, (_NAN,))
ELEMENTS: dict[str, tuple[float, ...]] = {
    "e2m1": _minifloat(2, 1, ()),
    "e4m3": _E4M3,
    "e5m2": _minifloat(5, 2, (_INF, _NAN, _NAN, _NAN)),
}
SCALES: dict[str, tuple[float, ...]] = {
    "e8m0": (*(ldexp(1.0, code - 127) for code in range(255)), _NAN),
    "e4m3": _E4M3,
}
COMBINATIONS = frozenset(
    {("e2m1", "e8m0", 32), ("e2m1", "e4m3", 16), ("e4m3", "e8m0", 32), ("e5m2", "e8m0", 32)}
)
"""Element, scale and block length along K that the block-scaled instructions take."""


@dataclass(frozen=True)
class Scaling:
    """What the instructions see of a format. globally: a further float32 scale multiplies the whole
    tensor."""

    element: str
    bits: int
    scale: str
    block: int
    globally: bool


def _kind(element: Element, known: Mapping[str, tuple[float, ...]]) -> str:
    """The name of the element's value table among the known ones, "" where it is none of them."""
    for name, values in known.items():
        table = np.array(values)
        same = element.values.shape == table.shape and np.array_equal(element.values, table, equal_nan=True)
        if same and np.array_equal(np.signbit(element.values[table == 0]), np.signbit(table[table == 0])):
            return name
    return ""


def _taken() -> str:
    taken = ", ".join(f"{e} in blocks of {n} with {s} scales" for e, s, n in sorted(COMBINATIONS))
    return f"the block-scaled instructions take {taken}"


@lru_cache(maxsize=256)
def _scaling(format: Descriptor) -> Scaling | str:
    if not format.scales or format.zero is not None:
        return "its blocks have a zero point" if format.zero is not None else "its blocks have no scale"
    first, above = format.scales[0], format.scales[1:]
    element, scale = _kind(format.element, ELEMENTS), _kind(first.element, SCALES)
    rows, block = format.block
    if rows != 1 or (element, scale, block) not in COMBINATIONS:
        return _taken()
    if any(a.element.wide != "f32" or a.block != (0, 0) or a.op != "multiply" for a in above) or above[1:]:
        return "above a block's scale they take one float32 for the whole tensor, which multiplies"
    return Scaling(element, format.element.bits, scale, block, bool(above))


def refusal(format: Descriptor) -> str | None:
    """Why the block-scaled instructions cannot take a format, or None where they can."""
    found = _scaling(format)
    return found if isinstance(found, str) else None


def scaling(format: Any) -> Scaling:
    """What the instructions see of a format. Raises FormatError, naming the axis they do not take."""
    descriptor = Descriptor.parse(format)
    found = _scaling(descriptor)
    if isinstance(found, str):
        raise FormatError(f"format {descriptor.name} has no scale tiles: {found}")
    return found


def activations(format: Any, element: str) -> Descriptor:
    """The format of 8-bit activations (element "e4m3" or "e5m2") that go with 4-bit weights of `format`: the
    same blocks and scales, codes one byte each. Raises FormatError where there is none."""
    descriptor = Descriptor.parse(format)
    weights = scaling(descriptor)
    if (element, weights.scale, weights.block) not in COMBINATIONS or weights.bits != 4:
        raise FormatError(f"format {descriptor.name} has no activations of {element!r}: {_taken()}")
    values = ELEMENTS[element]
    spelt = ["nan" if v != v else v if abs(v) < _INF else "inf" if v > 0 else "-inf" for v in values]
    first = descriptor.raw["scales"][0]
    fields = [("codes", None), ("scale", [1, weights.block])]
    return Descriptor.parse(
        {
            "name": f"{element}_with_{descriptor.name}",
            "element": {
                "kind": "float",
                "bits": 8,
                "values": spelt,
                "max": max(v for v in values if v < _INF),
            },
            "block": [1, weights.block],
            "scales": [first],
            "zero": None,
            "layout": {
                "unit": 1,
                "unit_bytes": 1,
                "positions": [list(range(8))],
                "inline": [],
                "chunk": 16,
                "load": 16,
                "fields": [
                    {"name": name, "dtype": "u8", "bits": 8, "block": block} for name, block in fields
                ],
            },
        }
    )


# ------------------------------------------------------------ the tensor
Shape = tuple[int, ...]


def padded_k(k: int) -> int:
    """Elements of a row of codes, padding included."""
    return -(-k // RUN) * RUN


def field_shapes(format: Any, shape: Sequence[int]) -> dict[str, tuple[str, Shape]]:
    """Field -> (dtype, shape) of a tiled tensor of shape (rows, K), or (groups, rows, K) for a bank of them.

    Raises FormatError for a format that has no tiles.
    """
    found = scaling(format)
    *bank, rows, k = shape
    whole = padded_k(k)
    fields: dict[str, tuple[str, Shape]] = {
        "codes": ("u8", (*bank, rows, whole * found.bits // 8)),
        "tiles": ("u8", (*bank, tile_bytes(rows, whole // found.block))),
    }
    if found.globally:
        fields["scale1"] = ("f32", (*bank, 1, 1))
    return fields


@dataclass(frozen=True, eq=False, repr=False)
class TiledTensor(Banked):
    """A matrix (rows, K), or a bank (groups, rows, K) of them, as block-scaled instructions read it. There
    may be no rows at all.

    fields: "codes" uint8 [rows, padded_k(K) * bits / 8], "tiles" uint8 [tile_bytes(rows, padded_k(K) /
    block)] and, where the format has a scale of the whole tensor, "scale1" float32 [1, 1]; a bank's have one
    axis more in front. The arrays may be NumPy's, torch's or CuPy's. Raises FormatError (a format without
    tiles, fields), ArgumentError (shapes), DtypeError.
    """

    format: Descriptor
    shape: Shape
    fields: Mapping[str, Any]
    layout: ClassVar[str] = "tiled"

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", Descriptor.parse(self.format))
        object.__setattr__(self, "shape", _check_shape(self.shape))
        wanted = field_shapes(self.format, self.shape)
        if not isinstance(self.fields, Mapping):
            raise ArgumentError(f"fields: wanted arrays by name; got a {type(self.fields).__name__}")
        if sorted(self.fields) != sorted(wanted):
            raise FormatError(
                f"{self.format.name}: wanted the fields {sorted(wanted)}; got {sorted(self.fields)}"
            )
        for name, (dtype, shape) in wanted.items():
            _check_array(f"{self.format.name}, field {name}", self.fields[name], dtype, shape)
        object.__setattr__(self, "fields", MappingProxyType({name: self.fields[name] for name in wanted}))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (dict(self.format.raw), self.shape, dict(self.fields))

    @property
    def nbytes(self) -> int:
        """Bytes of all fields together, padding included."""
        wanted = field_shapes(self.format, self.shape)
        return sum(
            int(np.prod(shape)) * np.dtype(STORAGE[dtype]).itemsize for dtype, shape in wanted.values()
        )

    def untile(self) -> QuantizedTensor:
        """The tensor in the format's own layout; see `untile`."""
        return untile(self)

    def dequantize(self) -> NDArray[np.float32]:
        """float32 of the tensor's shape, as QuantizedTensor.dequantize gives it."""
        if 0 in self.shape:
            return np.zeros(self.shape, dtype=np.float32)
        values = [untile(matrix).dequantize() for matrix in self.matrices()]
        return np.stack(values) if len(self.shape) == 3 else values[0]

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        arrays = ", ".join(f"{name} {list(a.shape)}" for name, a in self.fields.items())
        return f"TiledTensor({self.format.name}, {size}, {self.nbytes} bytes: {arrays})"


def _rebuild(raw: dict[str, Any], shape: Shape, fields: dict[str, Any]) -> TiledTensor:
    return TiledTensor(Descriptor.parse(raw), shape, fields)


def _check_shape(shape: Any) -> Shape:
    try:
        axes = tuple(int(v) for v in shape)
    except (TypeError, ValueError):
        raise ArgumentError(f"shape: wanted (rows, K) or (groups, rows, K); got {shape!r}") from None
    if len(axes) not in (2, 3) or min(axes) < 0 or axes[-1] < 1:
        raise ArgumentError(f"shape: wanted (rows, K) or (groups, rows, K), K at least 1; got {axes}")
    return axes


_NAMES = {"u8": "uint8", "f32": "float32"}


def _check_array(where: str, array: Any, dtype: str, shape: Shape) -> None:
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise ArgumentError(f"{where}: wanted an array; got {type(array).__name__}")
    if tuple(array.shape) != shape:
        raise ArgumentError(f"{where}: wanted shape {shape}; got {tuple(array.shape)}")
    if str(array.dtype).rpartition(".")[2] != _NAMES[dtype]:
        raise DtypeError(f"{where}: wanted dtype {_NAMES[dtype]}; got {array.dtype}")


# ------------------------------------------------------------ conversions
def tile(q: QuantizedTensor) -> TiledTensor:
    """A quantised matrix -> its codes in the instructions' order and its scales in tiles. Exact; `untile` is
    the inverse. Fields on a device are copied to the CPU first.

    Raises FormatError where the instructions do not take the format, ArgumentError for a bank (see its
    `matrices`) or a scale with a sign.
    """
    if not isinstance(q, QuantizedTensor):
        raise ArgumentError(f"q: wanted a QuantizedTensor; got {type(q).__name__}: call wootz.quantize first")
    n, k = one_matrix("q", q)
    found = scaling(q.format)
    q = q.to("cpu")
    sides = side_entries(q)
    scales = sides["scale"]
    if found.scale == "e4m3" and (scales & 0x80).any():
        row, column = (int(i) for i in np.argwhere(scales & 0x80)[0])
        raise ArgumentError(
            f"q: the scale of block [{row}, {column}] is negative; the instructions ignore its sign"
        )
    codes = np.zeros((n, padded_k(k)), dtype=np.uint8)
    codes[:, :k] = unpack_rows(q, 0, n)
    columns = np.full((n, padded_k(k) // found.block), PAD, dtype=np.uint8)
    columns[:, : scales.shape[1]] = scales
    fields: dict[str, Any] = {"codes": pack_stream(codes, found.bits), "tiles": scale_tiles(columns)}
    if found.globally:
        fields["scale1"] = np.ascontiguousarray(sides["scale1"])
    return TiledTensor(q.format, (n, k), fields)


def untile(t: TiledTensor) -> QuantizedTensor:
    """The inverse of `tile`, bit for bit; padding is not read. Raises ArgumentError for a bank: see its
    `matrices`."""
    if not isinstance(t, TiledTensor):
        raise ArgumentError(f"t: wanted a TiledTensor; got {type(t).__name__}")
    n, k = one_matrix("t", t)
    t = t.to("cpu")
    found, layout = scaling(t.format), t.format.layout
    codes = unpack_stream(t.fields["codes"], padded_k(k), found.bits)[:, :k]
    rows, columns = grid(t.format.block, (n, k))
    entries = {"scale": untile_scales(t.fields["tiles"], n, padded_k(k) // found.block)[:rows, :columns]}
    if found.globally:
        entries["scale1"] = t.fields["scale1"]
    packed = np.zeros((n, layout.row_bytes(k)), dtype=np.uint8)
    inline = {i.field for i in layout.inline}
    pack_rows(t.format, np.ascontiguousarray(codes), {name: entries[name] for name in inline}, packed)
    fields = {"codes": packed}
    fields |= {name: np.ascontiguousarray(a) for name, a in entries.items() if name not in inline}
    return QuantizedTensor(t.format, (n, k), fields)
