"""Where every bit of every code lies: packing axes -> bit positions inside a unit, and the fields beside it.

A *unit* is the least run of elements along K that repeats; all its bytes are contiguous. Bit offset
8 * byte + bit counts inside the unit, little-endian words. A *chunk* is the least run of whole units whose
bytes are a multiple of the vector load.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .axes import Block

MAX_UNIT = 512
VECTOR_LOAD, NARROW_LOAD, MAX_CHUNK_BYTES = 16, 4, 512
SCALE_FIELDS = ("scale", "scale1", "scale2")


@dataclass(frozen=True)
class Plane:
    """`take` bits of every code, from bit `start` up, packed as one array of `take`-bit slots.

    order: "lsb" fills words from the low end, "msb" from the high end. `padded` keeps slots inside words:
    floor(word / take) a word, the unused bits on top. Slot i holds element permutation[i], the table
    repeating; or, with `split` n over a run of `over` elements (0 = the unit),
    element (i % n) * (over / n) + i / n.
    """

    take: int
    start: int = 0
    order: str = "lsb"
    word: int = 8
    padded: bool = False
    permutation: tuple[int, ...] = ()
    split: int = 1
    over: int = 0

    @property
    def per_word(self) -> int:
        """Slots of a padded word."""
        return self.word // self.take

    @property
    def natural(self) -> int:
        """The least number of elements that fills whole words and whole tables."""
        words = self.per_word if self.padded else lcm(self.take, self.word) // self.take
        return lcm(words, len(self.permutation) or 1, self.over or 1)

    def bytes(self, unit: int) -> int:
        """Bytes of the plane for `unit` elements: whole words."""
        words = -(-unit // self.per_word) if self.padded else -(-unit * self.take // self.word)
        return words * self.word // 8

    def element(self, slot: int, unit: int) -> int:
        """Which element of the unit a slot holds."""
        if self.permutation:
            base = slot - slot % len(self.permutation)
            return base + self.permutation[slot - base]
        run = self.over or unit
        base, i = slot - slot % run, slot % run
        return base + (i % self.split) * (run // self.split) + i // self.split

    def bit(self, slot: int, k: int) -> int:
        """Bit offset, inside the plane, of bit k of a slot."""
        if self.padded:
            word, i = divmod(slot, self.per_word)
            place = i if self.order == "lsb" else self.per_word - 1 - i
            return word * self.word + place * self.take + k
        if self.order == "lsb":
            return slot * self.take + k
        word, down = divmod(slot * self.take + self.take - 1 - k, self.word)
        return word * self.word + self.word - 1 - down


@dataclass(frozen=True)
class Inline:
    """A field stored inside the unit: `count` entries along K, entry i is `bits` bits at `bit` + i * bits."""

    field: str
    bit: int
    bits: int
    count: int


@dataclass(frozen=True)
class Field:
    """One array of a quantised tensor: u8, u16 (raw bf16), f16 or f32; below 8 bits an LSB-first stream."""

    name: str
    dtype: str
    bits: int
    block: tuple[int, int] | None


@dataclass(frozen=True)
class Layout:
    """The storage of a format: see `positions`, `inline` and `fields`."""

    unit: int
    unit_bytes: int
    bits: int
    codes_byte: int  # where the codes begin inside the unit
    planes: tuple[Plane, ...]
    inline: tuple[Inline, ...]
    chunk: int
    load: int
    fields: tuple[Field, ...]

    @property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """[unit][bits]: the bit offset inside the unit of bit i (LSB = 0) of element j's code."""
        return _positions(self.bits, self.unit, self.codes_byte, self.planes)

    @property
    def chunk_elements(self) -> int:
        """Elements of one chunk."""
        return self.chunk * self.unit

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one chunk: a multiple of `load`."""
        return self.chunk * self.unit_bytes

    @property
    def period(self) -> int:
        """Elements after which the bits repeat at a whole 32-bit word: what a kernel's text spells out."""
        return self.unit * (NARROW_LOAD // gcd(self.unit_bytes, NARROW_LOAD))

    def row_bytes(self, k: int) -> int:
        """Bytes of one row of `k` elements: whole chunks."""
        return -(-k // self.chunk_elements) * self.chunk_bytes

    def descriptor(self) -> dict[str, Any]:
        """The layout as JSON data."""
        return {
            "unit": self.unit,
            "unit_bytes": self.unit_bytes,
            "positions": [list(p) for p in self.positions],
            "inline": [asdict(i) for i in self.inline],
            "chunk": self.chunk,
            "load": self.load,
            "fields": [{**asdict(f), "block": f.block and list(f.block)} for f in self.fields],
        }


@lru_cache(maxsize=512)
def _positions(
    bits: int, unit: int, codes_byte: int, planes: tuple[Plane, ...]
) -> tuple[tuple[int, ...], ...]:
    table = [[-1] * bits for _ in range(unit)]
    base = 8 * codes_byte
    for plane in planes:
        for slot in range(unit):
            row = table[plane.element(slot, unit)]
            for k in range(plane.take):
                row[plane.start + k] = base + plane.bit(slot, k)
        base += 8 * plane.bytes(unit)
    return tuple(map(tuple, table))


@dataclass(frozen=True)
class Part:
    """A scale level or the zero, as storage sees it: `type` is the wide type, "" for a narrow element."""

    name: str
    bits: int
    type: str
    block: Block


def natural_unit(planes: tuple[Plane, ...], run: int) -> int:
    """The unit where none is given: whole words of every plane, and, if `run` is not 0, a multiple of it."""
    return lcm(*(p.natural for p in planes), run or 1)


def place(
    bits: int, unit: int, planes: tuple[Plane, ...], parts: tuple[Part, ...], order: tuple[str, ...]
) -> Layout:
    """Lay a unit out. `order`: what it stores, in byte order ("codes" and inline parts, byte-aligned)."""
    known = {p.name: p for p in parts}
    byte, codes_byte, inline = 0, 0, []
    for name in order:
        if name == "codes":
            codes_byte = byte
            byte += sum(p.bytes(unit) for p in planes)
            continue
        part = known[name]
        count = unit // part.block.cols
        inline.append(Inline(name, 8 * byte, part.bits, count))
        byte += -(-count * part.bits // 8)
    load = VECTOR_LOAD if lcm(byte, VECTOR_LOAD) <= MAX_CHUNK_BYTES else NARROW_LOAD
    fields = (Field("codes", "u8", 8, None), *(_field(p) for p in parts if p.name not in order))
    return Layout(unit, byte, bits, codes_byte, planes, tuple(inline), lcm(byte, load) // byte, load, fields)


_DTYPES = {"f16": "f16", "bf16": "u16", "f32": "f32", "": "u8"}


def _field(part: Part) -> Field:
    return Field(part.name, _DTYPES[part.type], part.bits, (part.block.rows, part.block.cols))
