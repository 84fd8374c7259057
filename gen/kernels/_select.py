"""Choosing among the logits of a row in whole numbers: the same choice on every target, in any order of
summation.

Numbers are ordered by `Logits.key`; e^((x - max) / temperature) is a weight of 40 bits (_weights.py), so that
sums are exact. A block has a row. `bisect` finds how small the chosen ones may be, `locate` where a running
sum passes a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.collective import add, block_reduce, block_scan, groups, lane_reduce
from ..ir.dsl import Builder, Val
from ..ir.nodes import Ref
from ._rows import load

Count = Callable[[Val, Val, Val], Val]
"""(number, key, column) -> u64, what is summed."""

SHIFT = {"f16": 13, "bf16": 16, "f32": 0}
"""Low bits of the f32 that the type does not have."""


@dataclass(frozen=True)
class Logits:
    """A row of v numbers of a dtype; a thread reads `count` neighbours at a time. SIMD groups have a part
    of the row each, in order."""

    b: Builder
    row: Ref
    v: Val
    count: int

    @property
    def part(self) -> Val:
        """Columns of a SIMD group, whole accesses."""
        b, unit = self.b, self.b.simd * self.count
        return b.ceildiv(self.v, groups(b) * unit) * unit

    def key(self, x: Val) -> Val:
        """A whole number in the order of x: 2^31 for both zeros. Keys of NaN are above that of inf or below
        that of -inf."""
        bits = x.bitcast("u32")
        negative = (bits.cast("i32") >> 31).cast("u32")  # all ones, or none
        return (((bits & 0x7FFFFFFF) ^ negative) - negative + 0x80000000) >> SHIFT[self.row.dtype]

    def number(self, key: Val) -> Val:
        """The f32 of a key."""
        b, bits = self.b, key << SHIFT[self.row.dtype]
        negative = (b.const(0x80000000, "u32") - bits) | 0x80000000
        return b.select(bits >= 0x80000000, bits & 0x7FFFFFFF, negative).bitcast("f32")

    @property
    def bottom(self) -> int:
        """The key of -inf."""
        return 0x00800000 >> SHIFT[self.row.dtype]

    def each(self, body: Callable[[Val, Val, Val], None]) -> None:
        """body(number, key, column) for the columns of this thread, in order."""
        b, part = self.b, self.part
        start = b.thread() // b.simd * part
        stop = b.minimum(start + part, self.v)
        with b.loop(start + b.thread() % b.simd * self.count, stop, b.simd * self.count) as first:
            self._read(first, lambda i, x: body(x, self.key(x), first + i))

    def _read(self, first: Val, body: Callable[[Val, Val], None]) -> None:
        """body(i, number) for the neighbours from column `first` on."""
        b, numbers = self.b, self.b.local("numbers", "f32", self.count)
        for i, x in enumerate(load(b, self.row, first, self.count)):
            b.store(numbers, i, x)
        with b.loop(0, self.count, unroll=True) as place:
            body(place, b.load(numbers, place))

    def largest(self) -> tuple[Val, Val]:
        """The largest key of a number, 0 where there is none, and its first column."""
        b = self.b
        key, place = b.var("key", 0, "u32"), b.var("place", 0, "u32")

        def one(x: Val, found: Val, column: Val) -> None:
            more = (found > key.get()) & x.eq(x)
            place.set(b.select(more, column, place.get()))
            key.set(b.select(more, found, key.get()))

        self.each(one)
        top, first = block_reduce(b, (key.get(), place.get()), _first)
        return top, first

    def bisect(self, function: Count, wanted: Val, least: Val, top: Val) -> tuple[Val, Val]:
        """(the largest key from `least` to `top` such that the sum of function over what has it or more is
        `wanted` at least, or else `least`; the sum over what has more)."""
        b, bits = self.b, 32 - SHIFT[self.row.dtype]
        low, high = b.var("low", least, "u32"), b.var("high", top + 1, "u32")
        above = b.var("above", 0, "u64")
        with b.loop(0, -(-bits // 2)):
            base, end, known = low.get(), high.get(), above.get()
            pivots = [_between(base, end, j) for j in (3, 2, 1)]
            sums = [b.var("sum", 0, "u64") for _ in pivots]

            def one(x: Val, key: Val, column: Val) -> None:
                with b.when((key >= base) & (key < end)):
                    value = function(x, key, column)
                    for pivot, total in zip(pivots, sums):
                        total.set(total.get() + b.select(key >= pivot, value, 0))

            self.each(one)
            totals = block_reduce(b, [each.get() for each in sums], add, again=True)
            for pivot, total in zip(pivots, totals):  # the sums grow as pivots fall
                enough = total + known >= wanted
                short = (pivot < high.get()) & b.op("not", enough)
                above.set(b.select(short, total + known, above.get()))
                high.set(b.select(short, pivot, high.get()))
                low.set(b.select(enough & (pivot > low.get()), pivot, low.get()))
        return low.get(), above.get()

    def parts(self, function: Count) -> tuple[Ref, Val]:
        """The sum of function over each group's part, in group memory, and over all of them."""
        b, count = self.b, groups(self.b)
        places = b.shared("parts", "u64", count)
        own = b.var("own", 0, "u64")
        self.each(lambda *at: own.set(own.get() + function(*at)))
        (mine,) = lane_reduce(b, (own.get(),), add)
        with b.when((b.thread() % b.simd).eq(0)):
            b.store(places, b.thread() // b.simd, mine)
        b.barrier()
        total = b.var("total", 0, "u64")
        with b.loop(0, count) as group:
            total.set(total.get() + b.load(places, group))
        return places, total.get()

    def locate(self, function: Count, parts: Ref, rank: Val, none: int) -> Val:
        """The column at which the running sum of function passes `rank`, or `none`."""
        b, threads = self.b, self.b.function.threads
        place, chosen = b.shared("place", "u32", 1), b.var("chosen", 0, "u32")
        before, passed = b.var("before", 0, "u64"), b.var("passed", 0, "u64")
        with b.when(b.thread().eq(0)):
            b.store(place, 0, none)
        with b.loop(0, groups(b)) as group:
            after = passed.get() + b.load(parts, group)
            here = (rank >= passed.get()) & (rank < after)
            chosen.set(b.select(here, group, chosen.get()))
            before.set(b.select(here, passed.get(), before.get()))
            passed.set(after)
        b.barrier()
        start, part = chosen.get() * self.part, self.part
        with b.loop(0, part, threads * self.count) as tile:
            first = tile + b.thread() * self.count
            inside = (first < part) & (start + first < self.v)
            sums, sum_ = b.local("sums", "u64", self.count), b.var("sum", 0, "u64")
            with b.loop(0, self.count, unroll=True) as i:
                b.store(sums, i, 0)

            def one(i: Val, x: Val) -> None:
                sum_.set(sum_.get() + function(x, self.key(x), start + first + i))
                b.store(sums, i, sum_.get())

            with b.when(inside):
                self._read(start + first, one)
            earlier, total = block_scan(b, sum_.get(), again=True)
            edge = b.var("edge", before.get() + earlier, "u64")
            with b.when((rank >= edge.get()) & (rank < edge.get() + sum_.get())):
                after, column = rank - edge.get(), b.var("column", 0, "u32")
                with b.loop(0, self.count, unroll=True) as i:
                    column.set(b.select(b.load(sums, i) <= after, i + 1, column.get()))
                b.store(place, 0, start + first + column.get())
            before.set(before.get() + total)
        b.barrier()
        return b.load(place, 0)


def _between(low: Val, high: Val, quarter: int) -> Val:
    """Rounded up: it is not `low` as long as there is a number between them."""
    apart = high - low
    return low + (apart >> 2) * quarter + (((apart & 3) * quarter + 3) >> 2)


def _first(a: Sequence[Val], b: Sequence[Val]) -> tuple[Val, Val]:
    (key, i), (other, j) = a, b
    build = key.builder
    after = (other > key) | (other.eq(key) & (j < i))
    return build.select(after, other, key), build.select(after, j, i)
