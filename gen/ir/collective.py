"""What the threads of a block do together: reductions and scans, from shuffles and group memory.

Where lanes run together a block is a power of two of whole SIMD groups; on the CPU it is one thread, and
these functions hand back what they are given. Everything is in one fixed order, so that the same input gives
the same bits. All lanes of a block must arrive (see `verify`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .dsl import Builder, Val

LINE = 8
"""Neighbouring lanes whose accesses of 16 bytes are one line of 128."""

Tuple = tuple[Val, ...]
Combine = Callable[[Tuple, Tuple], Tuple]
"""Two partial results -> one; commutative to the bit, for either lane of a pair may come first."""


def groups(b: Builder) -> int:
    """SIMD groups of the block."""
    return max(1, b.function.threads // b.simd)


def lane_reduce(b: Builder, values: Sequence[Val], combine: Combine, width: int = 0) -> Tuple:
    """The combination over the SIMD group (or over each `width` neighbouring lanes), in every lane."""
    found = tuple(values)
    mask = (width or b.simd) // 2
    while mask:
        found = combine(found, tuple(across(b, v, mask) for v in found))
        mask //= 2
    return found


def across(b: Builder, value: Val, mask: int) -> Val:
    """The value of the lane whose number differs in this bit; of u64 by halves."""
    if value.dtype == "u64":
        low, high = (across(b, half.cast("u32"), mask).cast("u64") for half in (value, value >> 32))
        return low | (high << 32)
    return b.make("lane_xor", value.dtype, (value.value,), {"mask": mask})


def exchange(b: Builder, held: Sequence[Tuple], lane: Val) -> list[Tuple]:
    """LINE neighbours, of which this is number `lane`, hand each other the pieces that they hold (a power of
    two up to LINE), so that equal places of all of them are pieces that follow each other: `neighbour` says
    which."""
    pieces, bit = list(held), len(held) // 2
    while bit:  # a bit of the lane's number for the same one of the place's
        mask = bit * (LINE // len(held))
        up = (lane & mask).ne(0)
        for i in (i for i in range(len(held)) if not i & bit):
            low, high = pieces[i], pieces[i + bit]
            got = [across(b, b.select(up, x, y), mask) for x, y in zip(low, high)]
            pieces[i] = tuple(b.select(up, g, x) for g, x in zip(got, low))
            pieces[i + bit] = tuple(b.select(up, y, g) for g, y in zip(got, high))
        bit //= 2
    return pieces


def neighbour(lane: Val, pieces: int) -> tuple[Val, Val]:
    """(the lane whose piece is at place 0 after an exchange of so many pieces, the piece's number there);
    that at place i is of the lane that is i * LINE / pieces further."""
    apart = LINE // pieces
    return lane // LINE * LINE + lane % apart, lane % LINE // apart


def block_reduce(b: Builder, values: Sequence[Val], combine: Combine, again: bool = False) -> Tuple:
    """The combination over the block, in every thread. again: this place is reached more than once."""
    found = lane_reduce(b, values, combine)
    count = groups(b)
    if count == 1:
        return found
    lane, group = b.thread() % b.simd, b.thread() // b.simd
    places = [b.shared("partial", v.dtype, count) for v in found]
    if again:
        b.barrier()
    with b.when(lane.eq(0)):
        for place, value in zip(places, found):
            b.store(place, group, value)
    b.barrier()
    return lane_reduce(b, [b.load(p, b.thread() % count) for p in places], combine, count)


# ------------------------------------------------------------ what is combined
def add_twice(a: Tuple, b: Tuple) -> Tuple:
    """(sum, what its roundings lost): Knuth's exact sum of two, so that either order gives the same bits."""
    (x, lost_x), (y, lost_y) = a, b
    total = x + y
    part = total - x
    return total, (lost_x + lost_y) + ((x - (total - part)) + (y - part))


def add(a: Tuple, b: Tuple) -> Tuple:
    return tuple(x + y for x, y in zip(a, b))


def multiply(a: Tuple, b: Tuple) -> Tuple:
    return tuple(x * y for x, y in zip(a, b))


def maximum(a: Tuple, b: Tuple) -> Tuple:
    """NaN if either is."""
    return tuple(x.builder.maximum(x, y) for x, y in zip(a, b))


def minimum(a: Tuple, b: Tuple) -> Tuple:
    """NaN if either is."""
    return tuple(x.builder.minimum(x, y) for x, y in zip(a, b))


def either(a: Tuple, b: Tuple) -> Tuple:
    return tuple(x | y for x, y in zip(a, b))


def both(a: Tuple, b: Tuple) -> Tuple:
    return tuple(x & y for x, y in zip(a, b))


def first_largest(a: Tuple, b: Tuple) -> Tuple:
    """(number, index): the larger number, of equal ones the lower index; NaN is larger than any number."""
    (x, i), (y, j) = a, b
    build, nan_x, nan_y = x.builder, x.ne(x), y.ne(y)
    tied = x.eq(y) | (nan_x & nan_y)
    other = (y > x) | (nan_y & x.eq(x)) | (tied & (j < i))
    return build.select(other, y, x), build.select(other, j, i)


# ------------------------------------------------------------ scans
def lane_scan(b: Builder, value: Val) -> tuple[Val, Val]:
    """(the sum of the lanes before, the sum of all)."""
    before, total = b.const(0, value.dtype), value
    lane, mask = b.thread() % b.simd, 1
    while mask < b.simd:
        other = across(b, total, mask)
        before = before + b.select((lane & mask).eq(0), b.const(0, value.dtype), other)
        total = total + other
        mask *= 2
    return before, total


def block_scan(b: Builder, value: Val, again: bool = False) -> tuple[Val, Val]:
    """(the sum over the threads before, the sum over the block). again: as for `block_reduce`."""
    before, total = lane_scan(b, value)
    count = groups(b)
    if count == 1:
        return before, total
    lane, group = b.thread() % b.simd, b.thread() // b.simd
    place = b.shared("partial", value.dtype, count)
    if again:
        b.barrier()
    with b.when(lane.eq(0)):
        b.store(place, group, total)
    b.barrier()
    sums = b.load(place, lane % count)
    earlier = b.select(lane % count < group, sums, b.const(0, value.dtype))
    both = lane_reduce(b, (earlier, sums), add, count)
    return both[0] + before, both[1]
