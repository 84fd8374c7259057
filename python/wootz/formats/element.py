"""Sets of numbers with codes: the elements of a format, its scale types and its zero points."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import FormatError
from ..lazy_numpy import np
from .bits import from_bf16, to_bf16

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("int", "float", "exponent", "codebook", "wide")
WIDE = {"f16": (16, "float16"), "bf16": (16, "uint16"), "f32": (32, "float32")}
_SPECIAL: Mapping[Any, float] = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def lookup(obj: Mapping[str, Any], key: str, where: str) -> Any:
    if not isinstance(obj, Mapping) or key not in obj:
        raise FormatError(
            f"{where}: wanted the key {key!r}, got {sorted(obj) if isinstance(obj, Mapping) else obj!r}"
        )
    return obj[key]


def choice(value: Any, allowed: Sequence[str], where: str) -> str:
    if value not in allowed:
        raise FormatError(f"{where}: wanted one of {', '.join(allowed)}; got {value!r}")
    return str(value)


@dataclass(frozen=True, eq=False)
class Element:
    """A set of numbers with codes: `numbers[code]` for the narrow kinds (2^bits, exact in float32).

    max is the magnitude that a block's largest value is scaled to. The wide kind (f16, bf16, f32) has no
    table.
    """

    kind: str
    bits: int
    numbers: Sequence[float]
    max: float
    symmetric: bool = False
    wide: str = ""

    @classmethod
    def parse(cls, obj: Any, where: str) -> Element:
        kind = choice(lookup(obj, "kind", where), KINDS, f"{where}.kind")
        if kind == "wide":
            wide = choice(lookup(obj, "type", where), tuple(WIDE), f"{where}.type")
            return cls(kind, WIDE[wide][0], (), 1.0, wide=wide)
        bits = lookup(obj, "bits", where)
        if type(bits) is not int or not 1 <= bits <= 8:
            raise FormatError(f"{where}.bits: wanted an integer from 1 to 8; got {bits!r}")
        raw = lookup(obj, "values", where)
        if not isinstance(raw, list | tuple) or len(raw) != 1 << bits:
            got = len(raw) if isinstance(raw, list | tuple) else raw
            raise FormatError(
                f"{where}.values: wanted a list of {1 << bits} numbers for {bits} bits; got {got!r}"
            )
        try:
            # Kernels hold these tables as float32, so float32 is what the numbers are.
            numbers = tuple(array("f", [float(_SPECIAL.get(v, v)) for v in raw]))
        except (TypeError, ValueError, OverflowError):
            raise FormatError(
                f'{where}.values: wanted numbers, "nan", "inf" or "-inf"; got {raw!r}'
            ) from None
        finite = [abs(v) for v in numbers if math.isfinite(v)]
        if not finite:
            raise FormatError(f"{where}.values: wanted at least one finite number; got {raw!r}")
        # An exponent has the range of float32: it needs no headroom, so a level above it aims at 1.
        peak = 1.0 if kind == "exponent" else float(obj.get("max") or max(finite))
        return cls(kind, bits, numbers, peak or 1.0, symmetric=bool(obj.get("symmetric", False)))

    @property
    def storage(self) -> str:
        """Storage dtype of a code: u8, f16, u16 or f32."""
        return {"": "u8", "bf16": "u16"}.get(self.wide, self.wide)

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """The numbers as float64 [2^bits]."""
        return np.array(self.numbers, dtype=np.float64)

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Which codes the quantiser uses: the finite ones, less the odd one out of a symmetric range."""
        return np.isfinite(self.values) & (np.abs(self.values) <= (self.max if self.symmetric else np.inf))

    @cached_property
    def low(self) -> float:
        return -self.max if self.wide else min(self._usable_numbers)

    @cached_property
    def high(self) -> float:
        return self.max if self.wide else max(self._usable_numbers)

    @property
    def _usable_numbers(self) -> list[float]:
        limit = self.max if self.symmetric else sys.float_info.max
        return [v for v in self.numbers if abs(v) <= limit and math.isfinite(v)]

    @property
    def nan_code(self) -> int | None:
        found = np.flatnonzero(np.isnan(self.values))
        return int(found[0]) if found.size else None

    @property
    def has_zero(self) -> bool:
        return bool(self.wide) or bool((self.values[self.usable] == 0).any())

    @cached_property
    def _negative_zero(self) -> np.uint8 | None:
        found = np.flatnonzero(self.usable & (self.values == 0) & np.signbit(self.values))
        return np.uint8(found[0]) if found.size else None

    @cached_property
    def _int_codes(self) -> NDArray[np.uint8]:
        """Code of the integer low + i; integers are dense in an int element's range."""
        order = np.argsort(np.where(self.usable, self.values, np.inf), kind="stable")
        return order[: int(self.usable.sum())].astype(np.uint8)

    @cached_property
    def _thresholds(self) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """Ascending codes, and the bounds between them such that x > bound[i] takes code i + 1 or later.

        A tie goes to the even code of a float or exponent and to the lower index of a codebook. Negative
        numbers that round to zero take the code of -0 where there is one, as an IEEE conversion gives it.
        """
        signs = np.signbit(self.values)
        best: dict[tuple[float, bool], int] = {}
        for code in np.flatnonzero(self.usable):
            key = (float(self.values[code]), bool(signs[code]))
            best.setdefault(key, int(code))
        ranked = sorted(best.items(), key=lambda item: (item[0][0], not item[0][1]))
        codes = np.array([code for _, code in ranked], dtype=np.uint8)
        ordered = self.values[codes]
        middle = ordered[:-1] / 2 + ordered[1:] / 2
        if self.kind == "codebook":
            up = codes[1:] < codes[:-1]
        else:
            up = (codes[1:] % 2 == 0) & (codes[:-1] % 2 == 1)
        up |= (ordered[:-1] == 0) & (ordered[1:] == 0)
        return np.where(up, np.nextafter(middle, -np.inf), middle), codes

    def nearest(self, x: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Codes of the nearest values, saturating; ints tie to the even value. NaN is undefined here."""
        if self.kind == "int":
            whole = np.rint(np.clip(x, self.low, self.high))
            return self._int_codes[(whole - self.low).astype(np.intp)]
        bounds, codes = self._thresholds
        found = codes[np.searchsorted(bounds, x, side="left")]
        if self._negative_zero is not None:
            found[(x == 0) & np.signbit(x)] = self._negative_zero
        return found

    def encode(self, x: NDArray[np.float64], *, nonzero: bool = False) -> NDArray[Any]:
        """Stored form of the numbers, nearest and saturating.

        With nonzero, a number other than 0 never becomes 0: it takes the least magnitude of its sign instead.
        """
        if not self.wide:
            codes = self.nearest(x)
            if nonzero:
                lost = (self.values[codes] == 0) & (x != 0)
                for sign in (1.0, -1.0):
                    ours = np.where(self.usable & (self.values * sign > 0), np.abs(self.values), np.inf)
                    if np.isfinite(ours).any():
                        codes = np.where(lost & (x * sign > 0), np.uint8(np.argmin(ours)), codes)
            return codes
        limit, least = _WIDE_RANGE[self.wide]
        x = np.clip(x, -limit, limit)
        if nonzero:
            x = np.where((x != 0) & (np.abs(x) < least), np.copysign(least, x), x)
        return to_bf16(x) if self.wide == "bf16" else x.astype(WIDE[self.wide][1])

    def decode(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """Stored form -> float32, exact."""
        if self.wide == "bf16":
            return from_bf16(stored)
        if self.wide:
            return stored.astype(np.float32)
        single: NDArray[np.float32] = self.values.astype(np.float32)[stored]
        return single


# Largest finite and least positive number of each wide type.
_WIDE_RANGE = {
    "f16": (65504.0, 2.0**-24),
    "bf16": (float.fromhex("0x1.fep127"), 2.0**-133),
    "f32": (float.fromhex("0x1.fffffep127"), 2.0**-149),
}
