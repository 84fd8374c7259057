"""A quantised operand inside a kernel: its fields as buffers, the walk over its chunks, scales and zero
points.

All of it follows from the format's axes (`Layout`): no kernel knows a format.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..formats.axes import Block, Element, Format, wide
from ..formats.layout import Plane, place
from ..manifest.target import Target
from ..variants.family import Formula
from .decode import decode, decode_less, decode_one, decode_wide, extract, factor_of
from .dsl import Builder, Val
from .nodes import Ref

CHUNK = 64
"""Most elements of a lane's chunk, where the format allows: bounds registers and the length of the emitted
text."""


@dataclass(frozen=True)
class Steps:
    """How a kernel walks a row, in elements: chunk > span > step > segment > vector.

    A lane takes one chunk at a time, by loads of `load` bytes. The text of a step is written once and
    looped over. Scales and zero points are constant over a segment, and over the whole span where a span is
    several steps. A step starts at a whole word of its own. `vector` elements are decoded and multiplied at
    once."""

    chunk: int
    load: int
    span: int
    step: int
    segment: int
    vector: int
    step_words: int

    @property
    def chunk_words(self) -> int:
        return self.chunk // self.step * self.step_words


def steps(fmt: Format, most: int = CHUNK) -> Steps:
    """The walk for a format: the widest loads (16 bytes down to 4) that keep a chunk within `most`
    elements."""
    layout = fmt.layout
    widths = [w for w in (16, 8, 4) if w <= layout.load]
    load = next((w for w in widths if _elements(fmt, w) <= most), widths[-1])
    chunk = _elements(fmt, load)
    base = math.lcm(layout.period, 8)
    base = base if chunk % base == 0 else layout.period
    run = math.gcd(*(columns for columns in _columns(fmt)), chunk)
    fitting = [s for s in range(base, max(most // 2, base) + 1, base) if chunk % s == 0]
    whole = [s for s in fitting if run % s == 0]
    step = max(whole or fitting)
    words = step // layout.unit * layout.unit_bytes // 4
    segment = step if run % step == 0 else math.gcd(run, step)
    span = run if run % step == 0 else step
    return Steps(chunk, load, span, step, segment, math.gcd(segment, 8), words)


def _elements(fmt: Format, load: int) -> int:
    """The least number of elements in whole units that fills whole loads."""
    layout = fmt.layout
    return layout.unit * (load // math.gcd(layout.unit_bytes, load))


def _columns(fmt: Format) -> list[int]:
    """The block lengths along K of all scale levels (0 where a level spans the row)."""
    blocks = [level.block for level in fmt.scales] or [fmt.block]
    return [block.cols for block in blocks]


COLUMNS: Formula = ["lt", "k", 2**31]
"""When positions along a row, a tile past its end included, fit u32 arithmetic."""


def require(fmt: Format | None, kernel: str) -> Format:
    if fmt is None:
        raise ValueError(f"{kernel}: takes a quantised operand, so it needs a format")
    return fmt


def plain(dtype: str) -> Format:
    """Numbers of a plain type, as a format of one unit an element and no scale."""
    element = wide(dtype)
    planes = (Plane(element.bits, word=element.bits),)
    return Format(dtype, element, Block(1, 0), (), None, place(element.bits, 1, planes, (), ("codes",)))


class Packed:
    """The fields of one quantised operand [N, K] as kernel arguments.

    Declares the buffers on construction; `declare_pitches` adds the row pitches after the kernel's shapes.
    """

    def __init__(self, b: Builder, fmt: Format, target: Target, walk: Steps, name: str = "w") -> None:
        self.b, self.fmt, self.target, self.walk, self.name = b, fmt, target, walk, name
        self.fields: dict[str, Ref] = {
            f.name: b.buffer(f"{name}.{f.name}", f.dtype) for f in fmt.layout.fields
        }
        self.pitches: dict[str, Val] = {}
        self._columns: Val | None = None

    def declare_pitches(self, k: Val) -> None:
        """One u32 a two-dimensional field; a field with one entry for the whole tensor has none."""
        self._columns = k
        for f in self.fmt.layout.fields:
            if f.block is None or f.block[0] != 0:
                self.pitches[f.name] = self.b.scalar(f"{self.name}.{f.name}", "u32", "pitch")

    def chunks(self) -> Val:
        """Chunks in a row."""
        return self.b.ceildiv(self._k(), self.walk.chunk)

    def columns(self) -> Val:
        """Elements in a row."""
        return self._k()

    def _k(self) -> Val:
        if self._columns is None:
            raise ValueError(f"{self.name}: declare_pitches must come before the operand is read")
        return self._columns

    def place(self, name: str, row: Val) -> tuple[Ref, Val]:
        """The buffer of a field that has a row of the operand, and the row's number there."""
        return self.fields[name], row

    # -- codes ----------------------------------------------------------------------------------------------
    def load_chunk(self, row: Val, chunk: Val, into: Ref, at: Val | int) -> None:
        """The chunk's 32-bit words to into[at:], by the walk's loads."""
        size, load = 4 * self.walk.chunk_words, self.walk.load
        field, row = self.place("codes", row)
        codes = self.b.at(field, row.cast("u64") * self.pitches["codes"].cast("u64"))
        first = chunk * size
        start = at if isinstance(at, Val) else self.b.const(at, "u32")
        for byte in range(0, size, load):
            vector = self.b.load_words(codes, first + byte, load // 4)
            for i in range(load // 4):
                word = vector if load == 4 else vector.word(i)
                self.b.store(into, start + (byte // 4 + i), word)

    def view(self, words: Ref, start: Val | int, count: int) -> list[Val]:
        """`count` words from `start`, as values; those that nothing uses vanish."""
        first = start if isinstance(start, Val) else self.b.const(start, "u32")
        return [self.b.load(words, first + i) for i in range(count)]

    def code_bits(self, element: int, count: int) -> list[list[int]]:
        """Bit positions, relative to the chunk, of `count` codes from `element`."""
        layout = self.fmt.layout
        return [
            [p + e // layout.unit * layout.unit_bytes * 8 for p in layout.positions[e % layout.unit]]
            for e in range(element, element + count)
        ]

    def decode(self, words: Sequence[Val], element: int, count: int) -> list[Val]:
        """The values, lacking `factor`, of `count` codes from `element`; `words` starts at element 0."""
        return decode(self.b, self.fmt.element, words, self.code_bits(element, count), self.target)

    def decode_less(self, words: Sequence[Val], element: int, count: int, zero: Val) -> list[Val]:
        """`decode` less a zero point, exactly; both are integers."""
        return decode_less(self.b, self.fmt.element, words, self.code_bits(element, count), zero)

    @property
    def factor(self) -> float:
        """The power of two that decoded values lack."""
        return factor_of(self.fmt.element, self.target)

    # -- scales and zero points -----------------------------------------------------------------------------
    def scale(self, row: Val, k: Val, words: Sequence[Val], element: int) -> Val | None:
        """The effective f32 scale at (row, k): level by level from the innermost (docs/extending.md).
        `words` and `element` (static, from the words' start) serve interleaved fields."""
        result: Val | None = None
        for i, level in enumerate(self.fmt.scales):
            value = self._field(f"scale{i or ''}", level.element, level.block, row, k, words, element)
            if result is None:
                result = value
            else:
                result = result / value if level.op == "divide" else result * value
        return result

    def zero(self, row: Val, k: Val, words: Sequence[Val], element: int) -> Val | None:
        zero = self.fmt.zero
        if zero is None:
            return None
        value = self._field("zero", zero.element, self.fmt.block, row, k, words, element)
        return value + 1.0 if zero.stored == "minus_one" else value

    def exact(self, value: Val) -> Val:
        """The element's value, from a decoded one."""
        return value if self.factor == 1.0 else value * self.factor

    def apply(self, value: Val, scale: Val | None, zero: Val | None) -> Val:
        """The dequantised element, from a decoded one: v*s, (v - z)*s or fma(v, s, z)."""
        value = self.exact(value)
        if zero is not None and self.fmt.zero is not None and self.fmt.zero.domain == "value":
            return value + zero if scale is None else self.b.fma(value, scale, zero)
        if zero is not None:
            value = value - zero
        return value if scale is None else value * scale

    def _field(
        self, name: str, element: Element, block: Block, row: Val, k: Val, words: Sequence[Val], at: int
    ) -> Val:
        rows, cols = block.rows, block.cols
        layout = self.fmt.layout
        for inline in layout.inline:
            if inline.field == name:
                start = at // layout.unit * layout.unit_bytes * 8 + inline.bit
                start += at % layout.unit // cols * inline.bits
                return self._value(element, words, list(range(start, start + inline.bits)))
        ref, row = self.place(name, row)
        if rows == 0:
            return self._stored(element, ref, self.b.const(0, "u32"))
        row_block = row // rows
        line = self.b.at(ref, row_block.cast("u64") * self.pitches[name].cast("u64"))
        if cols == 0:
            return self._stored(element, line, self.b.const(0, "u32"))
        last = self.b.ceildiv(self._k(), cols) - 1
        return self._stored(element, line, self.b.minimum(k // cols, last))

    def _stored(self, element: Element, line: Ref, index: Val) -> Val:
        """Entry `index` of a field's row: typed where its width is a storage type, else from a bit stream."""
        b = self.b
        if element.bits in (16, 32):
            value = b.load(line, index)
            return value.cast("f32") if value.dtype != "u16" else decode_wide(b, element, value.cast("u32"))
        if element.bits == 8:
            return self._value(element, [b.load(line, index).cast("u32")], list(range(8)))
        bit = index * element.bits
        code = b.load(line, bit >> 3).cast("u32")
        if 8 % element.bits:  # the code may end in the next byte; a guard byte makes that always readable
            code = code | (b.load(line, (bit >> 3) + 1).cast("u32") << 8)
        code = (code >> (bit & 7)) & ((1 << element.bits) - 1)
        return self._value(element, [code], list(range(element.bits)))

    def _value(self, element: Element, words: Sequence[Val], bits: list[int]) -> Val:
        if element.kind == "wide":
            return decode_wide(self.b, element, extract(self.b, words, bits))
        return decode_one(self.b, element, words, bits, self.target)


class Array(Packed):
    """An operand whose codes, of 8 or 16 bits, and scales are arrays of their own: rows of K elements, with
    nothing after the last. names: field -> argument."""

    def __init__(self, b: Builder, fmt: Format, target: Target, walk: Steps, names: dict[str, str]) -> None:
        self.b, self.fmt, self.target, self.walk, self.name = b, fmt, target, walk, names["codes"]
        self.bytes = fmt.element.bits // 8
        types = {f.name: f.dtype for f in fmt.layout.fields} | {"codes": f"u{fmt.element.bits}"}
        self.fields = {field: b.buffer(name, types[field]) for field, name in names.items()}
        self.pitches: dict[str, Val] = {}
        self._columns = None

    def declare_pitches(self, k: Val) -> None:
        """Arrays have no pitches but their lengths."""
        self._columns = k
        for f in self.fmt.layout.fields:
            if f.block and f.block[0]:
                self.pitches[f.name] = self.b.ceildiv(k, f.block[1]) if f.block[1] else self.b.const(1, "u32")

    def load_chunk(self, row: Val, chunk: Val, into: Ref, at: Val | int) -> None:
        """As `Packed` does where rows keep the loads aligned, else element by element; 0 past the end."""
        b, k, load = self.b, self._k(), self.walk.load
        count, each = load // self.bytes, 4 // self.bytes
        line = b.at(self.fields["codes"], row.cast("u64") * k.cast("u64"))
        start = at if isinstance(at, Val) else b.const(at, "u32")
        for piece in range(0, self.walk.chunk, count):
            first, word = chunk * self.walk.chunk + piece, start + piece // each
            with b.when((k % count).eq(0) & (first < k)) as whole:
                vector = b.load_words(line, first, load // 4)
                for i in range(load // 4):
                    b.store(into, word + i, vector.word(i))
            with b.otherwise(whole), b.loop(0, count, unroll=True) as e:
                place, shift = word + e // each, e % each * (8 * self.bytes)
                with b.when((e % each).eq(0)):
                    b.store(into, place, 0)
                with b.when(first + e < k):
                    b.store(into, place, b.load(into, place) | (b.load(line, first + e).cast("u32") << shift))
