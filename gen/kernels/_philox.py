"""Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
easy as 1, 2, 3" (SC 2011): ten rounds of two 32 x 32 bit products, the key raised by two constants
after each."""

from __future__ import annotations

from ..ir.dsl import Builder, Val

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(b: Builder, counter: tuple[Val, Val, Val, Val], key: tuple[Val, Val]) -> tuple[Val, Val, Val, Val]:
    """Four random u32 of a counter and a key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = (c.cast("u64") * m for c, m in zip((c0, c2), _MULTIPLIERS))
        c0, c1 = _high(second) ^ c1 ^ k0, second.cast("u32")
        c2, c3 = _high(first) ^ c3 ^ k1, first.cast("u32")
        k0, k1 = k0 + _WEYL[0], k1 + _WEYL[1]
    return c0, c1, c2, c3


def below(b: Builder, high: Val, low: Val, end: Val) -> Val:
    """The u64 number floor(r * end / 2^64) of the random 64 bits r = high, low."""
    r0, r1, e0, e1 = low.cast("u64"), high.cast("u64"), end & 0xFFFFFFFF, end >> 32
    middle = e1 * r0 + ((e0 * r0) >> 32)
    other = e0 * r1 + (middle & 0xFFFFFFFF)
    return e1 * r1 + (middle >> 32) + (other >> 32)


def _high(product: Val) -> Val:
    return (product >> 32).cast("u32")
