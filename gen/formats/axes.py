"""What a quantisation format is made of: element, block, scale levels, zero point. Storage is in `layout`.

Everything here is a frozen dataclass, hashable, and free of I/O. Values are Python floats that are exactly
representable in float32, so "bit for bit" means the float32 bits (`f32_bits`).

The dequantisation of element code q with value v (float32, in this order):
    s = scale; for each further level l: s = s * l  or  s = s / l
    w = v * s  |  (v - z) * s  |  fma(v, s, z), then one rounding to the output dtype.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .layout import Layout

WIDE_BITS = {"f16": 16, "bf16": 16, "f32": 32}
SPECIALS = ("none", "nan", "ieee")
EXPONENT_RULES = ("floor", "nearest", "ceil", "even")
RULES = ("absmax", "signed_absmax", "minmax", *EXPONENT_RULES)
OPS = ("multiply", "divide")
MAX_LEVELS = 3
MAX_BITS = 8
F32_MIN_NORMAL, F32_MAX_EXPONENT = -126, 127


class AxesError(ValueError):
    """Axes that contradict each other. `path` leads from the object at hand to the part that is wrong."""

    def __init__(self, message: str, path: Sequence[str | int] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = tuple(path)


def f32_bits(value: float) -> int:
    """The float32 bits of `value` (to nearest even; every NaN is 0x7fc00000). Past float32: OverflowError."""
    if math.isnan(value):
        return 0x7FC00000
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def f32(value: float) -> float:
    """`value` rounded to float32. Raises OverflowError where it is finite but past the float32 range."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def json_number(value: float) -> float | str:
    """A number that JSON can carry: non-finite values become "nan", "inf" or "-inf"."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def minifloat_value(code: int, exponent: int, mantissa: int, bias: int, specials: str, signed: bool) -> float:
    """The exact value of one code of a small float: sign | exponent | mantissa, subnormals at exponent 0.

    `specials`: "none" (every code is finite), "nan" (all-ones magnitude is NaN, as in OCP E4M3),
    "ieee" (all-ones exponent: infinity where the mantissa is 0, else NaN). Source: OCP MX 1.0, section 5.3.
    """
    magnitude = code & ((1 << (exponent + mantissa)) - 1)
    sign = -1.0 if signed and code >> (exponent + mantissa) else 1.0
    field, fraction = magnitude >> mantissa, magnitude & ((1 << mantissa) - 1)
    top = (1 << exponent) - 1
    if specials == "nan" and magnitude == (1 << (exponent + mantissa)) - 1:
        return math.nan
    if specials == "ieee" and field == top:
        return math.nan if fraction else sign * math.inf
    if field == 0:
        return sign * math.ldexp(fraction, 1 - bias - mantissa)
    return sign * math.ldexp((1 << mantissa) + fraction, field - bias - mantissa)


@dataclass(frozen=True)
class Element:
    """How one code of `bits` bits becomes a number. Build it with the functions below, which check the axes.

    kind "int": two's complement where `signed`, else unsigned with value = code - offset; `symmetric` limits
    the quantiser to +-(2^(bits-1) - 1). "float": see `minifloat_value`. "exponent": 2^(code - bias), 255 NaN.
    "codebook": table[code]. "wide": an IEEE type (f16, bf16, f32), only for scales and zeros.
    """

    kind: str
    bits: int
    signed: bool = True
    offset: int = 0
    symmetric: bool = False
    exponent: int = 0
    mantissa: int = 0
    bias: int = 0
    specials: str = "none"
    table: tuple[float, ...] = ()
    type: str = ""

    def values(self) -> tuple[float, ...]:
        """The value of each of the 2^bits codes, specials included. ValueError for a wide element."""
        return _values(self)

    def _magnitudes(self) -> list[float]:
        return [v for v in self.values() if math.isfinite(v)]

    @property
    def max(self) -> float:
        """The magnitude that the quantiser maps a block's largest magnitude to.

        Integers: the positive end (the shorter side of two's complement), so that both signs fit;
        the negative end where there is no positive value. Other kinds: the largest finite magnitude.
        """
        if self.kind == "int":
            if self.symmetric:
                return float((1 << (self.bits - 1)) - 1)
            values = self.values()
            return max(values) if max(values) > 0 else -min(values)
        return max(abs(v) for v in self._magnitudes())

    @property
    def min(self) -> float:
        """The most negative finite value that the quantiser may use."""
        return -self.max if self.symmetric else min(self._magnitudes())

    def descriptor(self) -> dict[str, Any]:
        """The axes and the value table, ready for JSON."""
        return dict(_element_descriptor(self))


@lru_cache(maxsize=4096)
def _values(e: Element) -> tuple[float, ...]:
    codes = range(1 << e.bits) if e.kind != "wide" else range(0)
    if e.kind == "int":
        half = 1 << (e.bits - 1)
        return tuple(float((c ^ half) - half if e.signed else c - e.offset) for c in codes)
    if e.kind == "float":
        return tuple(minifloat_value(c, e.exponent, e.mantissa, e.bias, e.specials, e.signed) for c in codes)
    if e.kind == "exponent":
        return tuple(math.ldexp(1.0, c - e.bias) if c != len(codes) - 1 else math.nan for c in codes)
    if e.kind == "codebook":
        return e.table
    raise ValueError(f"a {e.kind} element ({e.type}) has no value table")


_AXES_OF_KIND = {
    "int": ("signed", "offset", "symmetric"),
    "float": ("exponent", "mantissa", "bias", "specials", "signed"),
    "exponent": ("bias",),
    "codebook": (),
    "wide": ("type",),
}


@lru_cache(maxsize=4096)
def _element_descriptor(e: Element) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": e.kind, "bits": e.bits}
    out.update({axis: getattr(e, axis) for axis in _AXES_OF_KIND[e.kind]})
    if e.kind != "wide":
        out["values"] = [json_number(v) for v in e.values()]
        out["max"] = e.max
    return out


def _bits_in_range(bits: int, what: str) -> None:
    if not 1 <= bits <= MAX_BITS:
        raise AxesError(f"{what} makes {bits} bits; an element has 1 to {MAX_BITS}")


def integer(
    bits: int, signed: bool | None = None, offset: int | None = None, symmetric: bool = False
) -> Element:
    """An integer element. Two's complement by default; with an offset, value = code - offset."""
    _bits_in_range(bits, "int")
    if signed and offset is not None:
        raise AxesError(
            "an offset makes codes unsigned (value = code - offset): drop signed: true", ["offset"]
        )
    if offset is not None and not 0 <= offset < 1 << bits:
        raise AxesError(f"offset {offset} is outside the codes 0 to {(1 << bits) - 1}", ["offset"])
    twos = signed if signed is not None else offset is None
    if symmetric and bits < 2:
        raise AxesError("symmetric needs 2 bits or more: with 1 bit only 0 is left", ["symmetric"])
    if symmetric and not twos and offset != 1 << (bits - 1):
        raise AxesError(
            f"symmetric needs two's complement or offset {1 << (bits - 1)}, the middle code", ["symmetric"]
        )
    return Element("int", bits, signed=twos, offset=offset or 0, symmetric=symmetric)


def floating(
    exponent: int, mantissa: int, bias: int | None = None, specials: str | None = None, signed: bool = True
) -> Element:
    """A small float. Defaults: bias 2^(exponent-1) - 1; specials none below 8 bits, else ieee with 2
    mantissa bits or fewer, else nan. Every finite value must be a normal float32 (or zero)."""
    bits = int(signed) + exponent + mantissa
    _bits_in_range(bits, f"{'sign + ' if signed else ''}{exponent} exponent + {mantissa} mantissa bits")
    if exponent < 1:
        raise AxesError("a float has 1 exponent bit or more; with none, use int", ["exponent"])
    bias = (1 << (exponent - 1)) - 1 if bias is None else bias
    if specials is None:
        specials = "none" if bits < MAX_BITS else "ieee" if mantissa <= 2 else "nan"
    top = (1 << exponent) - 1 - (specials == "ieee")
    if 1 - bias - mantissa < F32_MIN_NORMAL or top - bias > F32_MAX_EXPONENT:
        raise AxesError(
            f"bias {bias}: values from 2^{1 - bias - mantissa} to 2^{top - bias + 1} pass normal float32",
            ["bias"],
        )
    element = Element(
        "float", bits, signed=signed, exponent=exponent, mantissa=mantissa, bias=bias, specials=specials
    )
    if element.max == 0:
        raise AxesError("these axes leave no finite value but zero")
    return element


def power_of_two() -> Element:
    """E8M0: 2^(code - 127) for codes 0 to 254 (so code 0 is 2^-127), 255 is NaN. Source: OCP MX 1.0, 5.4."""
    return Element("exponent", 8, signed=False, bias=127)


def codebook(table: Sequence[float], bits: int | None = None) -> Element:
    """A table of 2^bits finite numbers, rounded to float32, not all zero."""
    count = len(table)
    wanted = 1 << bits if bits is not None else 1 << max(count - 1, 1).bit_length()
    if count != wanted or not 2 <= count <= 1 << MAX_BITS:
        what = f"{wanted} for bits: {bits}" if bits is not None else "a power of two from 2 to 256"
        raise AxesError(f"the codebook has {count} entries, wanted {what}", ["codebook"])
    entries = []
    for i, entry in enumerate(table):
        try:
            entries.append(f32(entry))
        except OverflowError:
            entries.append(math.inf)
        if not math.isfinite(entries[-1]):
            raise AxesError(f"entry {i} is {entry:g}, wanted a finite float32 number", ["codebook", i])
    if not any(entries):
        raise AxesError("every entry of the codebook is zero", ["codebook"])
    return Element("codebook", count.bit_length() - 1, table=tuple(entries))


def wide(type: str) -> Element:
    """An IEEE type of 16 or 32 bits, for scales and zeros: f16, bf16, f32."""
    return Element("wide", WIDE_BITS[type], type=type)


@dataclass(frozen=True)
class Block:
    """What one scale covers, in weights: rows (along N) x cols (along K). 0 = the whole extent."""

    rows: int
    cols: int

    def __iter__(self) -> Any:
        return iter((self.rows, self.cols))

    @property
    def along_k(self) -> bool:
        """A bounded run inside one row: the only shape that can be stored interleaved with the codes."""
        return self.rows == 1 and self.cols > 0

    def nests_in(self, outer: Block) -> bool:
        """Whether every block of `outer` is made of whole blocks of this one."""
        pairs = ((self.rows, outer.rows), (self.cols, outer.cols))
        return all(big == 0 or (small != 0 and big % small == 0) for small, big in pairs)


@dataclass(frozen=True)
class Scale:
    """One scale level. Level 0 covers the format's block; level i + 1 scales level i, by `op`."""

    element: Element
    block: Block
    rule: str
    op: str = "multiply"


@dataclass(frozen=True)
class Zero:
    """The zero point, of level 0's block. domain "code": w = (q - z) * s; "value": w = fma(q, s, z)."""

    element: Element
    domain: str = "code"
    stored: str = "value"


@dataclass(frozen=True)
class Format:
    """A complete format: the one object that packers, references and code generators are driven by."""

    name: str
    element: Element
    block: Block
    scales: tuple[Scale, ...]
    zero: Zero | None
    layout: Layout

    def descriptor(self) -> dict[str, Any]:
        """The format as JSON data: axes, value tables, levels, layout. What the index carries."""
        scales = [
            {"element": s.element.descriptor(), "block": list(s.block), "rule": s.rule, "op": s.op}
            for s in self.scales
        ]
        zero = self.zero and {
            "element": self.zero.element.descriptor(),
            "domain": self.zero.domain,
            "stored": self.zero.stored,
        }
        return {
            "name": self.name,
            "element": self.element.descriptor(),
            "block": list(self.block),
            "scales": scales,
            "zero": zero,
            "layout": self.layout.descriptor(),
        }
