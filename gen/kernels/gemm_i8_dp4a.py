"""gemm_i8_dp4a: y[m, n] = x[m, k] w[n, k]^T, bytes with signs, exact sums in i32.

Without matrix instructions, so that it runs everywhere: four products an instruction where a GPU has that
one. k is at most 131071, for 131072 products of -128 and -128 are 2^31, one more than an i32 holds.

A block has a square tile of y, a thread 4 x 4 numbers of it; x and w go through group memory, 64 columns at a
time, as words of four bytes, those of one column for all rows side by side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..formats.axes import Format
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ..manifest.target import Target
from ..variants.family import Family, Formula, Operand, Variant

OWN = 4
"""Rows, and columns, of y that a thread has."""
WORDS = 16
"""Words of a row in group memory."""
MOST = 131071


def accepts(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> str | None:
    return None if dtype == "i8" else f"it multiplies i8; got {dtype}"


def variants(fmt: Format | None, dtype: str, target: Target, options: dict[str, str]) -> Iterable[Variant]:
    side = 16 if target.simd > 1 else 1
    blocks: Formula = ["mul", ["ceildiv", "m", OWN * side], ["ceildiv", "n", OWN * side]]
    few: Formula = ["lt", blocks, 2**31]
    for suffix, whole in (("", True), ("any", False)):
        when = (["eq", ["mod", "k", 16], 0], few) if whole else (few,)
        yield Variant(suffix, side * side, (blocks, 1, 1), _Tile(side, whole).build, when, options)


@dataclass(frozen=True)
class _Tile:
    """Of side x side threads. whole: rows are whole vectors of 16 bytes."""

    side: int
    whole: bool

    @property
    def rows(self) -> int:
        return OWN * self.side

    @property
    def pitch(self) -> int:
        """Words from one column to the next; whole vectors."""
        return self.rows + 4

    def build(self, b: Builder) -> None:
        x, w, y = b.buffer("x", "u8"), b.buffer("w", "u8"), b.buffer("y", "i32", "out")
        m, n, k = b.scalar("m"), b.scalar("n"), b.scalar("k")
        across = b.ceildiv(n, self.rows)
        top, left = b.block() // across * self.rows, b.block() % across * self.rows
        xs, ws = (b.shared(name, "u32", WORDS * self.pitch) for name in ("xs", "ws"))
        down, right = b.thread() // self.side * OWN, b.thread() % self.side * OWN
        totals = b.local("totals", "i32", OWN * OWN)
        for i in range(OWN * OWN):
            b.store(totals, i, 0)
        with b.loop(0, k, 4 * WORDS) as start:
            self._fill(b, xs, x, top, m, start, k)
            self._fill(b, ws, w, left, n, start, k)
            b.barrier()
            with b.loop(0, WORDS, unroll=self.side > 1) as column:
                one = b.load_words(xs, column * self.pitch + down, OWN)
                two = b.load_words(ws, column * self.pitch + right, OWN)
                for i in range(OWN * OWN):
                    total = b.dot4_i8(one.word(i // OWN), two.word(i % OWN), b.load(totals, i))
                    b.store(totals, i, total)
            b.barrier()
        for i in range(OWN * OWN):
            row, column = top + down + i // OWN, left + right + i % OWN
            with b.when((row < m) & (column < n)):
                b.store(y, row.cast("u64") * n.cast("u64") + column.cast("u64"), b.load(totals, i))

    def _fill(self, b: Builder, tile: Ref, ref: Ref, first: Val, rows: Val, start: Val, k: Val) -> None:
        """Columns from `start` of the rows from `first`; zeros past the ends."""
        with b.loop(b.thread(), self.rows * WORDS // 4, self.side * self.side) as item:
            row, word = item % self.rows, item // self.rows * 4
            at = start + word * 4
            line = (first + row).cast("u64") * k.cast("u64")
            held = b.local("held", "u32", 4)
            for i in range(4):
                b.store(held, i, 0)
            with b.when((first + row < rows) & (at < k)):
                if self.whole:
                    vector = b.load_words(ref, line + at.cast("u64"), 4)
                    for i in range(4):
                        b.store(held, i, vector.word(i))
                else:
                    self._bytes(b, held, b.at(ref, line + at.cast("u64")), k - at)
            for i in range(4):
                b.store(tile, (word + i) * self.pitch + row, b.load(held, i))

    def _bytes(self, b: Builder, held: Ref, line: Ref, left: Val) -> None:
        """The next 16, of which `left` are there."""
        for i in range(16):
            with b.when(left > i):
                byte = b.load(line, i).cast("u32") << (8 * (i % 4))
                b.store(held, i // 4, b.load(held, i // 4) | byte)


FAMILY = Family(
    (Operand("x", "array", ("m", "k")), Operand("w", "array", ("n", "k"))),
    Operand("y", "array", ("m", "n"), "i32"),
    variants,
    {"m": (0, 2**31 - 1), "n": (0, 2**31 - 1), "k": (0, MOST)},
    accepts=accepts,
)
