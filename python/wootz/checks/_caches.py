"""Block tables and caches with all that may be wrong with them: pages that no cache has, negative positions,
tokens behind the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..reference import Expected, to_double
from ._data import activations

Place = Callable[[int, int], "tuple[int, int] | None"]
"""(batch entry, token) -> the cache's first index, and the token's place there."""


def table(size: Mapping[str, int], rng: np.random.Generator) -> NDArray[np.int32]:
    """A block table whose entries differ, with a few that the cache does not have."""
    b, blocks, pages = (size[axis] for axis in ("b", "blocks", "pages"))
    found = rng.permutation(max(pages, b * blocks))[: b * blocks].reshape(b, blocks) % max(pages, 1)
    odd = rng.random(found.shape) < 0.1
    return np.where(odd, rng.choice([-1, pages, 2**31 - 1, -(2**31)], found.shape), found).astype(np.int32)


def in_pages(block_table: NDArray[np.int32], page: int, pages: int) -> Place:
    def place(entry: int, token: int) -> tuple[int, int] | None:
        block = token // page
        number = int(block_table[entry, block]) if block < block_table.shape[1] else -1
        return (number, token % page) if 0 <= number < pages else None

    return place


def gathered(
    operands: Mapping[str, Any], name: str, entry: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The keys or values [hk, n, d] of a batch entry, of pages in float64, zero where there are none; and
    which there are."""
    cache = operands[name]
    pages, heads, page, d = cache.shape
    block_table = operands["block_table"]
    count = int(np.clip(operands["lengths"][entry], 0, block_table.shape[1] * page))
    place = in_pages(block_table, page, pages)
    rows, there = np.zeros((heads, count, d)), np.zeros(count, bool)
    for token in range(count):
        if at := place(entry, token):
            rows[:, token], there[token] = cache[at[0], :, at[1]], True
    return rows, there


def unread(operands: Mapping[str, Any], pages: int, page: int) -> NDArray[np.bool_]:
    """[pages, page]: the tokens that `gathered` takes for no batch entry."""
    block_table, found = operands["block_table"], np.ones((pages, page), bool)
    place = in_pages(block_table, page, pages)
    for entry, length in enumerate(np.clip(operands["lengths"], 0, block_table.shape[1] * page)):
        for at in filter(None, (place(entry, token) for token in range(length))):
            found[at] = False
    return found


def rows(size: Mapping[str, int], room: int, dtype: str, rng: np.random.Generator) -> dict[str, Any]:
    """New rows, and positions up to past the end and below 0."""
    shape = (size["b"], size["s"], size["hk"], size["d"])
    given: dict[str, Any] = {name: activations(shape, dtype, rng, specials=True) for name in ("k", "v")}
    return given | {"positions": rng.integers(-2, room + 2, size["b"]).astype(np.int32)}


def caches(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> dict[str, Any]:
    """With something in them."""
    return {f"{name}_cache": activations(shape, dtype, rng) for name in ("k", "v")}


def lengths(operands: Mapping[str, Any], room: int) -> Expected:
    start = operands["positions"].astype(np.int64)
    found = np.where(start < 0, 0, np.minimum(start + operands["k"].shape[1], room)).astype(np.float64)
    return Expected(found, np.zeros_like(found))


def moves(
    operands: Mapping[str, Any], room: int, place: Place
) -> Iterator[tuple[tuple[int, ...], tuple[int, int]]]:
    """(batch entry, number of its token, head), and where that token goes."""
    for entry, i, head in np.ndindex(operands["k"].shape[:3]):
        token = int(operands["positions"][entry]) + i
        if i <= token < room and (at := place(entry, token)):
            yield (entry, i, head), at


def appended(operands: Mapping[str, Any], room: int, place: Place, dtype: str) -> dict[str, Expected]:
    """The caches afterwards: exact."""
    found = {}
    for name in ("k", "v"):
        cache = operands[f"{name}_cache"].copy()
        for (entry, i, head), (first, token) in moves(operands, room, place):
            cache[first, head, token] = operands[name][entry, i, head]
        value = to_double(cache, dtype)
        found[f"{name}_cache"] = Expected(value, np.zeros_like(value))
    return found
